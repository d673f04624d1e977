"""The environment variables of a process that runs a package's code: those on a list, so that no secret is among them."""

from __future__ import annotations

import os
import re
import site
import sys
from pathlib import Path

_KEPT = re.compile(
    r"PATH|HOME|LD_LIBRARY_PATH|LANG|LANGUAGE|LC_\w+|TZ|TERM|CC|CXX|CPATH|LIBRARY_PATH|C_INCLUDE_PATH|MAX_JOBS|"
    r"PYTHON(PATH|HASHSEED|DONTWRITEBYTECODE|NOUSERSITE|PYCACHEPREFIX|WARNINGS|FAULTHANDLER|UTF8)|"
    r"(CUDA|NVIDIA|TRITON|TORCH|TORCHINDUCTOR|PYTORCH|HIP|HSA|ROCR|ROCM|AMD|OMP|MKL|KMP|GOMP|OPENBLAS|NUMEXPR)_\w+"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(?<![A-Z])KEY|APIKEY", re.IGNORECASE)


def worker_environment() -> dict[str, str]:
    """Return this process's variables that a kernel's result or speed may depend on, and an import path that holds.

    Those that decide what a kernel computes are set; a pool puts a folder of its own for HOME. For a process started with
    `-P`, in whatever folder.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if _KEPT.fullmatch(name) and not _SECRET.search(name)
    }
    if "PYTHONPATH" in env:
        env["PYTHONPATH"] = os.pathsep.join(import_paths())
    # the default changes in Triton 3.10; a record must say the same thing on both sides of it
    env["TRITON_DEFAULT_FP_FUSION"] = "1"
    env.pop("TRITON_INTERPRET", None)
    # memory in expandable segments is handed to another process by a call that the sandbox refuses
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        env.pop(name, None)
    # packages installed for one user are found by HOME, which is another folder there
    env["PYTHONUSERBASE"] = site.getuserbase()
    # torch names its cache after the user, and the worker's may have no name
    env["USER"] = env["LOGNAME"] = "kernel-skills"
    return env


def import_paths() -> list[str]:
    """Return where this process looks for modules: absolute, without the folder of the script that was started.

    A worker changes its folder, and a stray torch.py beside a script would be taken for the real one.
    """
    paths = sys.path if sys.flags.safe_path else sys.path[1:]
    return [path for path in paths if Path(path).is_absolute()]


def private_places(folder: Path, cache: Path) -> dict[str, str]:
    """Return the variables by which torch, Triton and the driver find a place to write.

    Args:
        folder: a worker's own.
        cache: for compiled kernels.
    """
    return {
        "HOME": str(folder),
        "TMPDIR": str(folder / "tmp"),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
        # else the driver writes to ~/.nv and torch's run-time compiler to ~/.cache/torch
        "CUDA_CACHE_PATH": str(cache / "cuda"),
        "PYTORCH_KERNEL_CACHE_PATH": str(cache / "torch"),
    }
