"""Who touched what in one launch: the memory of its tensors, and accesses of two programs that nothing orders.

The interpreter runs one program after the other, so every access has a time, and a program is the span between two
starts. Two accesses of one place by two programs, one of them a plain store, are a race unless an atomic orders them:
one program releases what another acquires later, directly or by way of a third.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]
Access = Literal["read", "write", "atomic", "volatile"]

_NEVER = 0


@dataclass(frozen=True)
class Conflict:
    """Two accesses of one place by two programs that nothing orders."""

    address: int
    earlier: Access
    earlier_program: int
    """In the order in which programs ran, from 0."""
    later: Access


@dataclass
class Memory:
    """The storage of one or several tensors of a launch, and for each grain of it when it was last touched, and how.

    A grain is the smallest element with which the storage has been touched.
    """

    name: str
    start: int
    size: int
    """In bytes."""
    grain: int
    times: dict[Access, Ints] = field(default_factory=dict)
    """Of the first read, the last write and the last atomic; `_NEVER` where there was none."""

    @property
    def end(self) -> int:
        return self.start + self.size

    def holds(self, addresses: Ints, width: int) -> npt.NDArray[np.bool_]:
        """Tell which elements of `width` bytes lie inside as a whole."""
        inside: npt.NDArray[np.bool_] = (addresses >= np.uint64(self.start)) & (
            addresses + np.uint64(width) <= np.uint64(self.end)
        )
        return inside

    def grains_of(self, addresses: Ints, width: int) -> Ints:
        """Return the index of every grain that elements of `width` bytes cover."""
        if width < self.grain:
            self._refine(width)
        first = ((addresses - np.uint64(self.start)) // np.uint64(self.grain)).astype(np.int64)
        # an element that is not aligned to grains reaches into one more
        last = (addresses + np.uint64(width - 1) - np.uint64(self.start)) // np.uint64(self.grain)
        count = int((last.astype(np.int64) - first).max()) + 1
        return first if count == 1 else (first[:, None] + np.arange(count)).ravel()

    def touched(self, access: Access) -> Ints:
        """Return the times of one kind of access, to read and to change."""
        if access not in self.times:
            # untouched pages of zeros cost nothing
            self.times[access] = np.zeros(self.size // self.grain + 2, dtype=np.int32)
        return self.times[access]

    def _refine(self, grain: int) -> None:
        self.times = {
            access: np.repeat(times, self.grain // grain) for access, times in self.times.items()
        }
        self.grain = grain


class Programs:
    """When each program of a launch started, and what it released and acquired."""

    def __init__(self) -> None:
        self.now = _NEVER
        self._starts: list[int] = []
        self._released: dict[int, list[tuple[int, int]]] = {}
        """Address of a flag -> times and programs."""
        self._acquired: list[list[tuple[int, int]]] = []
        """For each program, times and addresses."""
        self._known: tuple[tuple[int, int], Ints] | None = None

    @property
    def started(self) -> int:
        """Time at which the current program started: what is older is another's."""
        return self._starts[-1]

    def start(self) -> None:
        self.tick()
        self._starts.append(self.now)
        self._acquired.append([])

    def tick(self) -> None:
        self.now += 1

    def acquire(self, flag: int) -> None:
        self._acquired[-1].append((self.now, flag))

    def release(self, flag: int) -> None:
        self._released.setdefault(flag, []).append((self.now, len(self._starts) - 1))

    def of(self, times: Ints) -> Ints:
        """Return the program that ran at each time, in the order in which they ran, from 0."""
        return np.searchsorted(np.asarray(self._starts), times, side="right") - 1

    def ordered(self, times: Ints) -> npt.NDArray[np.bool_]:
        """Tell which of these times of other programs come before the present by more than the accident of order."""
        before: npt.NDArray[np.bool_] = times <= self._ordered_until()[self.of(times)]
        return before

    def _ordered_until(self) -> Ints:
        """Return for each program the last time of it that is ordered before the present."""
        state = (len(self._starts), len(self._acquired[-1]))
        if self._known is None or self._known[0] != state:
            self._known = (state, self._search())
        return self._known[1]

    def _search(self) -> Ints:
        until = np.zeros(len(self._starts), dtype=np.int64)
        seen: dict[int, int] = {}
        waiting = [(len(self._starts) - 1, self.now)]
        while waiting:
            program, before = waiting.pop()
            for when, flag in self._acquired[program]:
                if when > before:
                    continue
                releases = self._released.get(flag, [])
                # each release is followed once, else a lock of n programs costs n cubed
                first, last = seen.get(flag, 0), bisect.bisect_left(releases, (when, -1))
                seen[flag] = max(first, last)
                for released, source in releases[first:last]:
                    if released > until[source]:
                        until[source] = released
                        waiting.append((source, released))
        return until


_AGAINST: dict[Access, tuple[Access, ...]] = {
    "read": ("write", "atomic"),
    "write": ("write", "read", "atomic"),
    "atomic": ("write", "read"),
    # what waits for another program's atomic
    "volatile": ("write",),
}
"""What another program's access must not have been."""


def find_conflict(
    memory: Memory,
    programs: Programs,
    addresses: Ints,
    width: int,
    access: Access,
    changes: Callable[[], npt.NDArray[np.bool_]] | None = None,
) -> Conflict | None:
    """Note an access, and return another program's of the same place that nothing orders before it.

    Args:
        width: bytes of an element.
        changes: for a write, which elements of it change what lies there: two programs may store the same.
    """
    grains = memory.grains_of(addresses, width)
    found = _found(memory, programs, grains, access, changes)
    if access == "read":
        times = memory.touched(access)
        # programs follow each other: where the first reader is this one, it is the only one
        times[grains[times[grains] == _NEVER]] = programs.now
    elif access != "volatile":
        memory.touched(access)[grains] = programs.now
    return found


def _found(
    memory: Memory,
    programs: Programs,
    grains: Ints,
    access: Access,
    changes: Callable[[], npt.NDArray[np.bool_]] | None,
) -> Conflict | None:
    for earlier in _AGAINST[access]:
        if earlier not in memory.times:
            continue
        times = memory.times[earlier][grains]
        others = (times != _NEVER) & (times < programs.started)
        if earlier == "write" and changes is not None and others.any():
            changed = changes()
            others &= np.repeat(changed, len(grains) // len(changed))
        if not others.any():
            continue
        where = np.flatnonzero(others)
        where = where[~programs.ordered(times[where])]
        if len(where):
            address = memory.start + int(grains[where[0]]) * memory.grain
            return Conflict(address, earlier, int(programs.of(times[where[0]])), access)
    return None
