"""The sandbox of a worker: what a package's code can reach once it runs. docs/sandbox.md says what it holds and what not.

`embedded` is set up by the worker itself, between its fork and the first line of foreign code: limits, another user
where we are root, no new privileges, landlock, seccomp. `strong` starts the warm process that workers are forked from
inside bubblewrap, too (`bubblewrap.py`). Limits on memory, processes and files are watched from outside (`watch.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import struct
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from kernel_skills.executor.landlock import (
    SCOPES_ABI,
    TCP_ABI,
    landlock_abi,
    restrict,
    set_no_new_privileges,
)
from kernel_skills.executor.models import Record
from kernel_skills.executor.sandbox_roots import gpu_nodes, plain_nodes
from kernel_skills.executor.seccomp import has_seccomp_filter, install_filter
from kernel_skills.executor.trace import Sandbox

SandboxChoice = Literal["auto", "embedded", "strong"]

_WORKER_UID = 64_817
"""Below 65536, so that a container's usual range of users has it; above what systems hand out."""
_OPEN_FILES = 4096
"""CUDA opens some hundred on a machine with eight GPUs."""
_SPARE_THREADS = 2048
"""Beside those that run on the whole machine when a worker starts: torch starts one thread per core."""
_PR_SET_DUMPABLE = 4
_CAPABILITY_VERSION_3 = 0x20080522
_CAP_DAC_READ_SEARCH = 1 << 2


class Limits(Record):
    """What one worker may use, all that it starts included."""

    memory_bytes: int
    """Proportional set size: shared pages count once."""
    processes: int
    disk_bytes: int
    """In the folders it may write to, and in files that it holds open and has removed."""
    files: int
    log_bytes: int = 1 << 20
    """Of what it prints; the rest is dropped."""
    wall_s: float | None = None
    """From its start; a backstop, since every request has a time of its own."""


class Confinement(Record):
    """What a worker does to itself before foreign code runs."""

    read: tuple[Path, ...]
    """Files and folders that it may read."""
    write: tuple[Path, ...]
    """Folders where it may do anything."""
    gpu: bool
    """May use the GPU's nodes."""
    uid: int
    """The user that it becomes; the one that it is where this process cannot change it."""
    landlock_abi: int
    """0: without landlock."""
    seccomp: bool
    limits: Limits
    address_bytes: int | None = None
    """Cap on its address space; None with a GPU, whose driver reserves far more than it uses."""
    file_bytes: int | None = None
    """Cap on each file; None with a GPU, whose driver may size shared files as it likes."""


def worker_uid(readable: Iterable[Path], folder: Path, may_change: bool) -> int:
    """Return the user that workers become: another one where we are root and it can read what it needs, else our own.

    Args:
        readable: files and folders that the worker reads.
        folder: of all pools; everyone must be able to pass through what is above it.
    """
    if os.getuid() != 0 or not may_change or not _may_change_user():
        return os.getuid()
    needed = [*readable, folder.parent]
    open_to_all = all(_open_to_all(path) for path in needed) and all(
        map(_usable_by_all, gpu_nodes())
    )
    return _WORKER_UID if open_to_all else 0


def _may_change_user() -> bool:
    """Whether this root has CAP_SETUID and CAP_CHOWN, and the user's number exists in its namespace."""
    chown, setgid, setuid = 1 << 0, 1 << 6, 1 << 7
    wanted = chown | setgid | setuid
    try:
        first, _, length = map(int, Path("/proc/self/uid_map").read_text().split()[:3])
        held = int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16)
    except (OSError, ValueError, IndexError):
        return False
    return held & wanted == wanted and first == 0 and length > _WORKER_UID


def _open_to_all(path: Path) -> bool:
    """Whether any user can read a folder: it, what is above it, and Python's and torch's first files in it."""
    with contextlib.suppress(OSError):
        folders = [path, *path.parents] if path.is_dir() else list(path.parents)
        return all(folder.stat().st_mode & 0o001 for folder in folders) and bool(
            path.stat().st_mode & 0o004
        )
    return True


def _usable_by_all(node: Path) -> bool:
    """Whether any user can use a node; the folders of capabilities are not needed to compute."""
    with contextlib.suppress(OSError):
        return (
            node.is_dir() or node.name == "nvidia-modeset" or node.stat().st_mode & 0o006 == 0o006
        )
    return False


def describe(level: Literal["embedded", "strong"], uid: int, gpu: bool) -> Sandbox:
    """Return what a run's record says of its sandbox.

    Args:
        gpu: this machine has one, and workers may use it.
    """
    abi, filters = landlock_abi(), has_seccomp_filter()
    lost = []
    if abi == 0:
        lost.append("landlock: files and signals are held by the rights of the user alone")
    elif abi < TCP_ABI and not filters:
        lost.append(f"landlock ABI {abi}: TCP is not held")
    if 0 < abi < SCOPES_ABI:
        lost.append(f"landlock ABI {abi}: signals to other processes of the same user are not held")
    if not filters:
        lost.append("seccomp: no filter over system calls")
    if gpu and level == "embedded":
        lost.append(
            "GPU: Unix sockets of the machine that the workers' user may connect to, and what they write to /dev/shm"
        )
    if uid == 0:
        lost.append("root: the kernel does not hold the number of processes, a watch does")
    return Sandbox(level=level, landlock_abi=abi, seccomp=filters, uid=uid, lost=tuple(lost))


# --- in the worker ----------------------------------------------------------------------------


def confine(confinement: Confinement, fds: Sequence[int]) -> None:
    """Give up, for good, everything that a worker does not need.

    Args:
        fds: descriptors to keep beside 0, 1 and 2; every other one is closed.

    Raises:
        OSError: something that this machine has was refused: the worker must not go on.
    """
    _close_all_but(fds)
    _prefer_as_victim()
    _limit(confinement)
    if confinement.uid != os.getuid():
        _become(confinement.uid, confinement.write)
    elif confinement.uid == 0:
        _drop_capabilities(keep=_CAP_DAC_READ_SEARCH if confinement.landlock_abi else 0)
    set_no_new_privileges()
    if confinement.landlock_abi and _landlock(confinement) != confinement.landlock_abi:
        raise OSError("landlock is not what was announced")
    if confinement.seccomp and not install_filter(connects=confinement.gpu):
        raise OSError("seccomp is not what was announced")
    # one that was found before may not be writable any more
    tempfile.tempdir = None


def _landlock(confinement: Confinement) -> int:
    # torch counts the users of memory that it exports over CUDA IPC in a file of /dev/shm
    shared = [Path("/dev/shm")] if confinement.gpu else []
    if confinement.gpu:
        # since 570 the driver names its threads in /proc/self/task/*/comm, and a refusal is error 304;
        # held open, because a rule is for an inode, and /proc makes another when nobody holds this one
        shared.append(Path("/proc/self/task"))
        os.open(shared[-1], os.O_PATH)
    nodes = [*plain_nodes(), *(gpu_nodes() if confinement.gpu else ())]
    return restrict(
        confinement.read, [*confinement.write, *nodes, *shared], [Path("/dev")],
        # the driver hands its descriptors from process to process over one
        abstract_sockets=confinement.gpu,
    )  # fmt: skip


def _close_all_but(fds: Sequence[int]) -> None:
    kept = {0, 1, 2, *fds}
    for fd in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if fd not in kept:
            # the listing's own descriptor is closed already
            with contextlib.suppress(OSError):
                os.close(fd)


def _prefer_as_victim() -> None:
    """Have the kernel end a worker, not the judge, where memory runs out before the watch sees it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def _limit(confinement: Confinement) -> None:
    running = int(Path("/proc/loadavg").read_text().split()[3].split("/")[1])
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_NPROC: running + _SPARE_THREADS,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    if confinement.file_bytes is not None:
        wanted[resource.RLIMIT_FSIZE] = confinement.file_bytes
    if confinement.address_bytes is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        wanted[resource.RLIMIT_AS] = pages * resource.getpagesize() + confinement.address_bytes
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def _become(uid: int, folders: Sequence[Path]) -> None:
    """Take another user's rights, with the worker's own folders."""
    for folder in folders:
        os.chown(folder, uid, uid)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # else /proc/self belongs to root, and the driver cannot read its own maps
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _drop_capabilities(keep: int) -> None:
    """Give root's special rights up; reading other users' files stays, within what landlock allows."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)
    if libc.capget(header, held):
        raise OSError(ctypes.get_errno(), "capget")
    permitted = struct.unpack("=6I", held.raw)[1] & keep
    if libc.capset(header, struct.pack("=6I", permitted, permitted, 0, 0, 0, 0)):
        raise OSError(ctypes.get_errno(), "capset")
