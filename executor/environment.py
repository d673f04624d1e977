"""What a record says of the machine and toolchain it was made on."""

from __future__ import annotations

import platform
import shutil
import subprocess
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.errors import NoDevice, WorkerError
from kernel_skills.executor.models import Record
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.targets import Target, target_of_device
from kernel_skills.executor.trace import Environment

_PROBE_TIMEOUT_S = 60.0


class Device(Record):
    """A GPU at hand."""

    index: int
    hardware: str
    arch: str
    cuda: str
    target: Target
    """The chip that it is, whatever chip was asked for."""

    @property
    def place(self) -> str:
        return f"cuda:{self.index}"


def toolchain() -> dict[str, str]:
    """Return installed versions by name, without importing anything heavy."""
    found = {"python": platform.python_version()}
    for name in ("torch", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def find_device(pool: Pool, index: int) -> Device | None:
    """Return the GPU with this index, looked at in a worker: the parent never touches CUDA."""
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
        index=index, hardware=answer["hardware"], arch=answer["arch"], cuda=answer["cuda"], target=target
    )  # fmt: skip


def _gpu_nodes() -> bool:
    """Tell whether the machine can have a GPU at all; saves 0.3 s where it cannot."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/kfd").exists()


def cpu_environment() -> Environment:
    return Environment(hardware=_cpu_name(), libs=toolchain(), target="cpu", arch="cpu")


def device_environment(device: Device) -> Environment:
    libs = {**toolchain(), "cuda": device.cuda}
    if driver := driver_version():
        libs["driver"] = driver
    return Environment(
        hardware=device.hardware, libs=libs, target=device.target.name, arch=device.arch
    )


@lru_cache(maxsize=1)
def driver_version() -> str:
    path = shutil.which("nvidia-smi")
    if not path:
        return ""
    command = [path, "--query-gpu=driver_version", "--format=csv,noheader"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return result.stdout.strip().splitlines()[0] if result.returncode == 0 and result.stdout else ""


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
