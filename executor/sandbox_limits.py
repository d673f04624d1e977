"""How much a worker may use, by its role. Generous: a limit that an honest kernel meets is a wrong verdict."""

from __future__ import annotations

import os
from typing import Literal

from kernel_skills.executor.sandbox import Limits

Role = Literal["task", "candidate", "compile", "probe"]

_GIB = 1 << 30
_LEAST_BYTES = 4 * _GIB
_CANDIDATE_BYTES = 16 * _GIB
"""A process with torch, Triton and a CUDA context holds about 3 GiB of the machine's memory."""
_LIVES_S = 3600.0

ADDRESS_BYTES = 64 * _GIB
FILE_BYTES = 1 * _GIB


def limits_of(role: Role) -> Limits:
    """Return the limits of a worker on this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if role == "task":
        # the reference in float64, and torch.compile's own processes: one per core, up to 32
        return Limits(
            memory_bytes=max(_LEAST_BYTES, memory * 3 // 4), processes=512,
            disk_bytes=16 * _GIB, files=200_000,
        )  # fmt: skip
    return Limits(
        memory_bytes=max(_LEAST_BYTES, min(_CANDIDATE_BYTES, memory // 2)), processes=64,
        disk_bytes=2 * _GIB, files=20_000, wall_s=_LIVES_S,
    )  # fmt: skip
