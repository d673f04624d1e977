"""What this machine can do, and the mend for what is missing.

The process that asks runs no CUDA call and imports neither torch nor Triton: a probe process does (`doctor_probe`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, Literal

from kernel_skills.executor.models import Record
from kernel_skills.executor.ncu import find_ncu, ncu_version
from kernel_skills.executor.nvidia_smi import driver_version
from kernel_skills.executor.sandbox_probe import sandbox_mechanisms
from kernel_skills.executor.targets import target_of_device

PROBE_SECONDS = 180.0
"""The whole examination took 7 s on two shared cores; a hung driver never answers."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "retrieval": ("chromadb", "sentence_transformers"),
    "server": ("fastapi", "uvicorn"),
    "agents": ("langgraph",),
    "ray": ("ray",),
    "plot": ("matplotlib",),
}
"""Extra of the distribution -> a module of each package that it brings."""


class Check(Record):
    """One thing that was looked for."""

    name: str
    status: Literal["ok", "missing", "broken"]
    detail: str = ""
    mend: str = ""
    needed: bool = False
    """Without it `skills run` cannot do even what it does on a machine with no GPU."""


class Diagnosis(Record):
    checks: tuple[Check, ...]

    @property
    def able(self) -> bool:
        """Everything that is needed is there and works."""
        return all(check.status == "ok" for check in self.checks if check.needed)


def diagnose(data_home: Path) -> Diagnosis:
    """Look at everything; takes as long as importing torch and Triton, some seconds.

    Args:
        data_home: folder that must be writable; made if it is not there.
    """
    with tempfile.TemporaryDirectory(prefix="kernel-skills-doctor-") as scratch:
        toolchain = _start_probe("toolchain", Path(scratch))
        interpreter = _start_probe("interpreter", Path(scratch))
        try:
            still = [_python(), _data_home(data_home), *_sandbox(), *_extras()]
            seen = {**_answer(toolchain), "interpreted": _answer(interpreter)}
        finally:
            # Ctrl-C while one is asked must not leave the other behind
            for probe in (toolchain, interpreter):
                _end(probe)
    gpus = seen.get("gpus", [])
    return Diagnosis(
        checks=(
            *_packages(seen),
            *_gpus(gpus, seen),
            _driver(bool(gpus)),
            _cross_compile(seen),
            _interpreter(seen["interpreted"]),
            _compiler(bool(gpus)),
            _counters(bool(gpus)),
            *still,
        )
    )


# --- torch and Triton, asked in a process of their own ----------------------------------------


def _start_probe(question: str, scratch: Path) -> subprocess.Popen[str]:
    script = Path(__file__).with_name("doctor_probe.py")
    # the folder of the script must not shadow modules (-P), and the kernel is compiled anew, not found in a cache
    return subprocess.Popen(
        [sys.executable, "-P", str(script), question],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TRITON_CACHE_DIR": str(scratch / question)},
    )


def _answer(probe: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what the probe printed, or `{"error": its last words}`."""
    try:
        output, errors = probe.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {PROBE_SECONDS:.0f} s"}
    finally:
        _end(probe)
    lines = output.strip().splitlines()
    if probe.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    words = errors.strip().splitlines()
    return {"error": words[-1] if words else f"exit code {probe.returncode}"}


def _end(probe: subprocess.Popen[str]) -> None:
    if probe.poll() is None:
        probe.kill()
        probe.communicate()


def _packages(seen: Mapping[str, Any]) -> Iterator[Check]:
    mends = {
        "torch": "pip install 'torch>=2.10'",
        "triton": "pip install 'triton>=3.6' (Linux; a CPU build of torch does not bring it)",
    }
    for name, mend in mends.items():
        if find_spec(name) is None:
            yield Check(name=name, status="missing", mend=mend, needed=True)
        elif "error" in seen:
            yield Check(name=name, status="broken", detail=seen["error"], mend=mend, needed=True)
        else:
            yield Check(name=name, status="ok", detail=seen[name], needed=True)


def _gpus(gpus: Sequence[Mapping[str, Any]], seen: Mapping[str, Any]) -> Iterator[Check]:
    for index, gpu in enumerate(gpus):
        target = target_of_device(gpu["name"], gpu["arch"])
        gib = gpu["memory_bytes"] / 2**30
        known = (
            f"target {target.name}" if target else "no known target; kernels run, ceilings do not"
        )
        detail = f"{gpu['name']}, {gpu['arch']}, {gib:.0f} GiB, {known}"
        yield Check(name=f"GPU {index}", status="ok", detail=detail)
    if gpus:
        return
    mend = "without one, kernels are compiled and verified in the interpreter, and speed is quoted from evidence"
    if "error" not in seen and seen.get("cuda") is None:
        mend += "; this torch is built for the CPU: with a GPU here, install a CUDA or ROCm build"
    yield Check(name="GPU", status="missing", detail="none that torch sees", mend=mend)


def _driver(has_gpu: bool) -> Check:
    if version := driver_version():
        return Check(name="driver", status="ok", detail=f"NVIDIA {version}")
    amd = Path("/sys/module/amdgpu/version")
    if amd.exists():
        return Check(name="driver", status="ok", detail=f"amdgpu {amd.read_text().strip()}")
    if has_gpu:
        return Check(name="driver", status="ok", detail="version unknown: nvidia-smi gives none")
    return Check(
        name="driver",
        status="missing",
        mend="install the vendor's driver if this machine has a GPU",
    )


def _cross_compile(seen: Mapping[str, Any]) -> Check:
    error = seen.get("error") or seen.get("cross_compile")
    if error:
        mend = "reinstall triton: its wheel brings ptxas, which must be executable"
        return Check(
            name="cross-compile", status="broken", detail=str(error), mend=mend, needed=True
        )
    return Check(
        name="cross-compile", status="ok", detail="a kernel compiled for sm_90", needed=True
    )


def _interpreter(seen: Mapping[str, Any]) -> Check:
    error = seen.get("error") or seen.get("interpreter")
    if error:
        mend = "reinstall triton and numpy, which its interpreter computes with"
        return Check(name="interpreter", status="broken", detail=str(error), mend=mend, needed=True)
    return Check(
        name="interpreter", status="ok", detail="a kernel gave the right values", needed=True
    )


# --- the machine ------------------------------------------------------------------------------


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check(name="python", status="ok", detail=f"{version}, {sys.executable}")


def _compiler(has_gpu: bool) -> Check:
    """Triton builds a small C stub at a kernel's first launch, so a GPU needs a compiler and Python's headers."""
    name = "C compiler"
    wanted = os.environ.get("CC")
    found = which(wanted) if wanted else which("cc") or which("gcc") or which("clang")
    if found is None:
        mend = "apt-get install gcc (Triton builds its launcher with it), or set CC"
        return Check(name=name, status="missing", mend=mend, needed=has_gpu)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        mend = f"install the headers of this Python (apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-dev)"
        return Check(
            name=name,
            status="missing",
            detail=f"{found}, but no {header}",
            mend=mend,
            needed=has_gpu,
        )
    return Check(name=name, status="ok", detail=found, needed=has_gpu)


def _counters(has_gpu: bool) -> Check:
    name = "ncu"
    found = find_ncu()
    if found is None:
        mend = (
            "install NVIDIA Nsight Compute; without it `skills profile` gives the analytic roofline"
        )
        return Check(name=name, status="missing", mend=mend)
    version = ncu_version(found)
    detail = f"{found}, version {version}" if version else found
    # the driver's own switch; where it is 1, only root reads counters
    switch = Path("/proc/driver/nvidia/params")
    locked = switch.exists() and "RmProfilingAdminOnly: 1" in switch.read_text()
    if has_gpu and locked and os.geteuid() != 0:
        mend = "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        return Check(name=name, status="broken", detail=f"{detail}, counters locked", mend=mend)
    return Check(name=name, status="ok", detail=detail)


def _data_home(folder: Path) -> Check:
    mend = "make the folder writable, or set KERNEL_SKILLS_HOME to one that is"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        detail = f"{folder}: {error.strerror}"
        return Check(name="data home", status="broken", detail=detail, mend=mend, needed=True)
    return Check(name="data home", status="ok", detail=str(folder), needed=True)


def _sandbox() -> Iterator[Check]:
    for name, detail, mend in sandbox_mechanisms():
        yield Check(
            name=f"sandbox: {name}",
            status="missing" if mend else "ok",
            detail=detail,
            mend=mend,
        )


def _extras() -> Iterator[Check]:
    for extra, modules in EXTRAS.items():
        absent = [module for module in modules if find_spec(module) is None]
        yield Check(
            name=f"extra: {extra}",
            status="missing" if absent else "ok",
            detail=f"no {', '.join(absent)}" if absent else ", ".join(modules),
            mend=f"pip install 'kernel-skills[{extra}]'" if absent else "",
        )
