"""What a record says of the machine and toolchain it was made on."""

from __future__ import annotations

import platform
from pathlib import Path

from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.errors import NoDevice, WorkerError
from kernel_skills.executor.models import Record
from kernel_skills.executor.nvidia_smi import driver_version
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.targets import Target, target_of_device
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.executor.trace import Environment

_PROBE_TIMEOUT_S = 60.0


class Device(Record):
    """A GPU at hand."""

    index: int
    """As torch counts: among the devices that CUDA_VISIBLE_DEVICES leaves over."""
    uuid: str = ""
    """As `nvidia-smi` names it, `GPU-...`; empty where the driver tells none."""
    hardware: str
    arch: str
    cuda: str
    target: Target
    """The chip that it is, whatever chip was asked for."""

    @property
    def place(self) -> str:
        return f"cuda:{self.index}"

    @property
    def identity(self) -> str:
        """The same in every process of the machine, whatever devices it sees."""
        return self.uuid or f"index-{self.index}"


def find_device(pool: Pool, index: int) -> Device | None:
    """Return the GPU with this index, looked at in a worker: the parent never touches CUDA.

    Raises:
        NoDevice: it is a chip that no Target describes.
        WorkerError: it does not answer.
    """
    if not _gpu_nodes():
        return None
    worker = pool.start("task")
    try:
        answer = worker.request({"op": "probe", "device": index}, timeout_s=_PROBE_TIMEOUT_S)
    except ChannelError as error:
        raise WorkerError(
            f"GPU {index} does not answer: {error}; `skills doctor` looks closer"
        ) from error
    finally:
        worker.end(0.5)
    if "hardware" not in answer:
        return None
    target = target_of_device(answer["hardware"], answer["arch"])
    if target is None:
        raise NoDevice(
            f"{answer['hardware']} ({answer['arch']}) is no known target; add it to executor/targets.toml"
        )
    return Device(
        index=index, uuid=answer["uuid"], hardware=answer["hardware"], arch=answer["arch"],
        cuda=answer["cuda"], target=target,
    )  # fmt: skip


def gpu_in_words(device: Device | None) -> str:
    """Return a clause for a person: which GPU is here, if any."""
    if device is None:
        return "there is no GPU here"
    return f"the GPU here is {device.hardware} ({device.arch})"


def _gpu_nodes() -> bool:
    """Tell whether the machine can have a GPU at all; saves 0.3 s where it cannot."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()


def cpu_environment() -> Environment:
    return Environment(hardware=_cpu_name(), libs=_python_toolchain(), target="cpu", arch="cpu")


def device_environment(device: Device) -> Environment:
    libs = {**_python_toolchain(), "cuda": device.cuda}
    if driver := driver_version():
        libs["driver"] = driver
    return Environment(
        hardware=device.hardware, libs=libs, target=device.target.name, arch=device.arch
    )


def _python_toolchain() -> dict[str, str]:
    return {"python": platform.python_version(), **installed_toolchain()}


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
