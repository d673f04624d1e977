"""The processes below one, read from /proc: nothing here asks the processes themselves."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_LISTS_CHILDREN = Path("/proc/thread-self/children").exists()
"""Kernels with CONFIG_PROC_CHILDREN, so most; without, every process has to be looked at."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def descendants(pid: int) -> list[int]:
    """Return every living or unreaped process below `pid`, nearest first."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        below = children_of(waiting.pop())
        found += below
        waiting += below
    return found


def children_of(pid: int) -> list[int]:
    """Return a process's children; whichever of its threads forked."""
    if not _LISTS_CHILDREN:
        return _found_by_parent(pid)
    children: list[int] = []
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return children
    for thread in threads:
        # the thread may have ended meanwhile
        with contextlib.suppress(OSError), thread.joinpath("children").open() as file:
            children += map(int, file.read().split())
    return children


def _found_by_parent(pid: int) -> list[int]:
    """Return the processes whose parent is `pid`, by looking at all."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # the name in brackets may hold anything, brackets too
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid:
                found.append(int(folder.name))
    return found


def kill_all(pids: list[int]) -> None:
    """Send SIGKILL to each that is still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def resident_bytes(pid: int) -> int:
    """Return the resident set of a process, 0 where it is gone. Cheap; counts what is shared in full."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size, 0 where it cannot be read. Walks the page tables: some milliseconds per GB."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_bytes()
    except OSError:
        return 0
    for line in text.splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def removed_files(pid: int) -> dict[tuple[int, int], int]:
    """Return (device, inode) -> bytes of the files that a process holds open and no folder names, memory files too."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                status = entry.stat()
                if status.st_nlink == 0 and status.st_blocks:
                    found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found
