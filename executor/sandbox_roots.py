"""Which files of the machine a worker may see: what Python, torch, Triton, a C compiler and the GPU's driver need.

A rule for a file holds for what a symbolic link leads to, so every path here is resolved.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from shutil import which

_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin",
    # where NVIDIA's, AMD's and Nix's software lies
    "/opt/nvidia", "/opt/cuda", "/opt/rocm", "/opt/amdgpu", "/nix/store", "/run/opengl-driver",
)  # fmt: skip
_CONFIGURATION = (
    # the loader and `ldconfig -p`, which Triton asks where libcuda is
    "ld.so.cache", "ld.so.preload", "ld.so.conf", "ld.so.conf.d", "alternatives",
    # names of users, the time zone, kinds of files; Debian's own sitecustomize
    "passwd", "group", "nsswitch.conf", "localtime", "timezone", "mime.types", "os-release", "python3",
    "python3.11", "python3.12", "python3.13", "python3.14", "OpenCL", "nvidia", "vulkan",
)  # fmt: skip
"""Below /etc. Not /etc itself: as root it holds password hashes and keys of services."""
_TOOLKIT_VARIABLES = (
    "CUDA_HOME", "CUDA_PATH", "ROCM_HOME", "ROCM_PATH", "HIP_PATH", "TRITON_PTXAS_PATH",
)  # fmt: skip
_KERNEL = ("/proc", "/sys")

_PLAIN_NODES = ("null", "zero", "full", "random", "urandom")
_GPU_NODES = (
    "nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps",
    "nvidia-caps-imex-channels", "nvidia-nvswitch*", "kfd", "dri",
)  # fmt: skip
"""As patterns below /dev. Driver 570 also opens uvm-tools and takes a refusal for a fatal error."""


def read_roots(pool: Path, imports: Iterable[str]) -> list[Path]:
    """Return what a worker may read, most of it folders.

    Args:
        pool: the pool's own folder, in which workers are kept apart: nothing above it is allowed whole.
        imports: where Python looks for modules.
    """
    keep_out = [pool.resolve(), *_homes()]
    wanted = [
        *map(Path, (*_SYSTEM, *_KERNEL)),
        *(Path("/etc") / name for name in _CONFIGURATION),
        Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), Path(__file__).parent,
        *(Path(path) for path in imports if path),
        *_toolchain(),
    ]  # fmt: skip
    found: dict[Path, None] = {}
    for path in wanted:
        resolved = path.resolve()
        if resolved.exists() and not any(kept.is_relative_to(resolved) for kept in keep_out):
            found[resolved] = None
    return [p for p in found if not any(q != p and p.is_relative_to(q) for q in found)]


def _homes() -> Iterator[Path]:
    """Yield the folders of the person who runs this: what is below them is allowed by its own name only."""
    # a container may give a user number that no name and no home belongs to
    with contextlib.suppress(RuntimeError):
        yield Path.home().resolve()
    with contextlib.suppress(KeyError):
        yield Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()


def _toolchain() -> Iterator[Path]:
    for variable in _TOOLKIT_VARIABLES:
        if value := os.environ.get(variable):
            # TRITON_PTXAS_PATH names the program, the others its folder
            yield Path(value).parent if Path(value).is_file() else Path(value)
    for path in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        if path:
            yield Path(path)
    # a driver that is mounted into a container may lie anywhere that the loader is told of
    for file in Path("/etc/ld.so.conf.d").glob("*.conf"):
        with contextlib.suppress(OSError):
            for line in file.read_text(errors="replace").splitlines():
                if line.startswith("/"):
                    yield Path(line.strip())
    for compiler in (os.environ.get("CC") or "cc", os.environ.get("CXX") or "c++"):
        if found := which(compiler):
            # bin/ beside lib/ and include/, as in a conda environment
            yield Path(found).resolve().parent.parent


def gpu_nodes() -> list[Path]:
    """Return the device nodes of GPUs; empty on a machine that has none."""
    found = [path for pattern in _GPU_NODES for path in sorted(Path("/dev").glob(pattern))]
    # the folders and the control node exist without a GPU, too
    able = [p for p in found if p.name == "kfd" or p.name.removeprefix("nvidia").isdecimal()]
    return found if able or Path("/dev/nvidiactl").exists() else []


def plain_nodes() -> list[Path]:
    """Return the device nodes that any program may use."""
    return [Path("/dev") / name for name in _PLAIN_NODES]
