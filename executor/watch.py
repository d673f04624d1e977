"""Holds workers to their limits from outside. Runs in the warm process that forked them, between its other duties.

A worker is the subreaper of what it starts, so all that it started lies below it in the process tree for as long as it
lives; what lies below this process and belongs to no worker is left over from one that ended, and is killed.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from kernel_skills.executor.process_tree import (
    children_of,
    descendants,
    kill_all,
    proportional_bytes,
    removed_files,
    resident_bytes,
)
from kernel_skills.executor.sandbox import Limits

INTERVAL_S = 0.05
_FILES_EVERY = 5
"""Folders are looked through at every fifth look: their size costs more to find than a process's."""
_KILL_SECONDS = 10.0
_KILL_ROUND_S = 0.001
_MIB = 1 << 20
_LONGEST_PATH = 3000
"""The kernel takes 4095 bytes; what lies deeper could not be counted."""


@dataclass
class _Watched:
    limits: Limits
    folders: tuple[Path, ...]
    log: Path
    started: float = field(default_factory=time.monotonic)
    looks: int = 0


class Watch:
    """The workers of one warm process, and why some of them were ended."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._why: dict[int, str] = {}
        self._next = 0.0

    def add(self, pid: int, limits: Limits, folders: Iterable[Path], log: Path) -> None:
        """Begin to watch a worker.

        Args:
            folders: those that it may write to.
            log: the file that it prints to.
        """
        self._watched[pid] = _Watched(limits, tuple(folders), log)

    def forget(self, pid: int) -> str:
        """Stop to watch a worker, which was reaped; return the limit that it broke, in words, or nothing."""
        watched = self._watched.pop(pid, None)
        if watched is not None:
            _shorten(watched)
        return self._why.pop(pid, "")

    @property
    def pids(self) -> set[int]:
        """The workers."""
        return set(self._watched)

    @property
    def idle(self) -> bool:
        """There is nobody to watch."""
        return not self._watched

    def look(self) -> None:
        """Look at every worker, unless the last look was a moment ago."""
        if time.monotonic() < self._next:
            return
        kill_others(self.pids)
        for pid, watched in self._watched.items():
            if pid not in self._why and (why := _excess(pid, watched)):
                self._why[pid] = why
                kill_all([pid])
                kill_others(self.pids)
        # counted from now: looking itself may take long beside many processes
        self._next = time.monotonic() + INTERVAL_S


def _excess(pid: int, watched: _Watched) -> str:
    """Return which limit a worker breaks, in words, or nothing."""
    limits = watched.limits
    watched.looks += 1
    _shorten(watched)
    pids = [pid, *descendants(pid)]
    if len(pids) > limits.processes:
        return f"{len(pids)} processes, more than the {limits.processes} it may have"
    if limits.wall_s is not None and time.monotonic() - watched.started > limits.wall_s:
        return f"it ran for more than {limits.wall_s:g} s"
    # the cheap figure is never below the true one
    if sum(map(resident_bytes, pids)) > limits.memory_bytes:
        used = sum(map(proportional_bytes, pids))
        if used > limits.memory_bytes:
            return f"{used // _MIB} MiB of memory, more than the {limits.memory_bytes // _MIB} it may use"
    if watched.looks % _FILES_EVERY == 0:
        return _file_excess(pids, watched)
    return ""


def _file_excess(pids: list[int], watched: _Watched) -> str:
    limits = watched.limits
    size, count = 0, 0
    folders = [str(folder) for folder in watched.folders]
    while folders:
        folder = folders.pop()
        if len(folder) > _LONGEST_PATH:
            return "folders within folders, deeper than can be looked into"
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                count += 1
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                if count > limits.files:
                    return f"more than the {limits.files} files it may have"
    removed: dict[tuple[int, int], int] = {}
    for pid in pids:
        removed.update(removed_files(pid))
    size += sum(removed.values())
    if size > limits.disk_bytes:
        return f"{size // _MIB} MiB in files, more than the {limits.disk_bytes // _MIB} it may use"
    return ""


def _shorten(watched: _Watched) -> None:
    """Keep the beginning of what a worker printed; what it goes on to print is dropped again and again."""
    with contextlib.suppress(OSError):
        if watched.log.stat().st_size > watched.limits.log_bytes:
            os.truncate(watched.log, watched.limits.log_bytes)


def kill_others(workers: set[int]) -> int:
    """Kill and reap everything below this process but the workers and what is below them; return how many.

    What forks while it is looked for is found in the next round: it ends below this process, the subreaper.
    """
    killed: set[int] = set()
    deadline = time.monotonic() + _KILL_SECONDS
    while time.monotonic() < deadline:
        left = [pid for pid in children_of(os.getpid()) if pid not in workers]
        if not left:
            break
        for pid in left:
            below = [pid, *descendants(pid)]
            kill_all(below)
            killed.update(below)
        for pid in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_KILL_ROUND_S)
    return len(killed)
