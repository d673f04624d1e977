"""The strong sandbox: the warm process and all its workers inside bubblewrap.

They see no network, no process of the machine, only the folders that they read, and of the devices only the GPU's. A
warm process starts once per run, so that the separation of candidate from candidate is that of `embedded`, inside.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from shutil import which

from kernel_skills.executor.sandbox_roots import gpu_nodes
from kernel_skills.executor.seccomp import filter_program

_TRY_SECONDS = 10
_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Symbolic links into /usr on most systems, and folders on the others."""
_PROPERTY_OF_KERNEL = ("/proc", "/dev")
_DAEMON = Path("/run/nvidia-persistenced")


@lru_cache(maxsize=1)
def why_not_strong() -> str:
    """Return why bubblewrap cannot be used here, with the mend; nothing where it can."""
    if which("bwrap") is None:
        return "bubblewrap is not installed: apt-get install bubblewrap"
    line = ["bwrap", *_namespaces(), "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=_TRY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run: {error}"
    if done.returncode:
        words = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return (
            f"bwrap cannot start a process ({words[-1]}): allow user namespaces, "
            "sysctl user.max_user_namespaces=15000 (Ubuntu also: kernel.apparmor_restrict_unprivileged_userns=0)"
        )
    return ""


def command(read: Iterable[Path], pool: Path, gpu: bool, filter_fd: int) -> list[str]:
    """Return the words to put before a command line.

    Args:
        read: files and folders that it may read.
        pool: the folder that it may write to.
        gpu: give it the GPU's nodes.
        filter_fd: where bubblewrap reads the system-call filter from, inherited by it.
    """
    return [
        "bwrap", *_namespaces(), "--die-with-parent", "--proc", "/proc", "--dev", "/dev",
        *_nodes(gpu), "--tmpfs", "/tmp", *_read_only(read), "--bind", str(pool), str(pool),
        "--remount-ro", "/", "--chdir", str(pool), "--seccomp", str(filter_fd), "--",
    ]  # fmt: skip


def filter_file() -> int:
    """Return a descriptor that the filter can be read from, once."""
    fd = os.memfd_create("filter", 0)
    # no service of the machine listens where the workers are, and each adds a filter of its own
    os.write(fd, filter_program(platform.machine(), connects=True))
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _namespaces() -> list[str]:
    """Return the options that take namespaces and rights away.

    As root bubblewrap keeps every capability, and with them a way out: the read-only root can be mounted writable.
    """
    own = [] if os.geteuid() == 0 else ["--unshare-user"]
    return [
        *own, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try",
        "--cap-drop", "ALL",
    ]  # fmt: skip


def _nodes(gpu: bool) -> Iterator[str]:
    for node in gpu_nodes() if gpu else ():
        # not --bind: the mount would refuse to open devices
        yield from ("--dev-bind-try", str(node), str(node))


def _read_only(read: Iterable[Path]) -> Iterator[str]:
    for name in _LINKS:
        if (link := Path(name)).is_symlink():
            yield from ("--symlink", str(link.readlink()), name)
    for path in (*read, _DAEMON):
        if str(path) not in _PROPERTY_OF_KERNEL:
            yield from ("--ro-bind-try", str(path), str(path))
