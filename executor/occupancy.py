"""How many blocks of a kernel a multiprocessor holds at once, and what stops it holding more.

Allocation sizes: CUDA occupancy calculator (compute capability 8.0 and later) and LLVM's AMDGPU subtarget (gfx9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernel_skills.executor.targets import Target

Limiter = Literal["registers", "shared", "warps", "blocks"]

# every CUDA block takes 1 KiB of shared memory for the system, sm_80 and later
_CUDA_RESERVED_SHARED_BYTES = 1024
_PARTITIONS = 4
"""Schedulers (CUDA) or SIMDs (AMD) of a multiprocessor; each has its own quarter of the registers."""


@dataclass(frozen=True)
class Occupancy:
    """What one multiprocessor holds at once."""

    blocks: int
    warps: int
    share: float
    """Resident warps over the most that the multiprocessor holds."""
    limited_by: Limiter


def occupancy_of(
    target: Target, *, registers: int, shared_bytes: int, warps_per_block: int
) -> Occupancy:
    """Return what a multiprocessor of `target` holds of a kernel.

    Args:
        registers: per thread; 0 where unknown, and then they limit nothing.
        shared_bytes: static plus dynamic, per block.
        warps_per_block: warps of `target.warp_size` threads, producers of a specialised kernel included.
    """
    # of equally tight limits the chip's come first: where they bind, saving registers gains nothing
    blocks: dict[Limiter, int] = {
        "warps": target.max_warps_per_multiprocessor // warps_per_block,
        "blocks": target.max_blocks_per_multiprocessor,
        "registers": _warps_by_registers(target, registers) // warps_per_block,
        "shared": _blocks_by_shared(target, shared_bytes),
    }
    limiter = min(blocks, key=lambda name: blocks[name])
    resident = blocks[limiter] * warps_per_block
    return Occupancy(
        blocks[limiter], resident, resident / target.max_warps_per_multiprocessor, limiter
    )


def _warps_by_registers(target: Target, registers: int) -> int:
    if registers == 0:
        return target.max_warps_per_multiprocessor
    # CUDA hands out 256 registers at a time to a warp, AMD 8 vector registers of 64 lanes
    unit = 256 if target.backend == "cuda" else 8 * target.warp_size
    per_warp = _round_up(registers * target.warp_size, unit)
    partition = target.registers_per_multiprocessor // _PARTITIONS
    return partition // per_warp * _PARTITIONS


def _blocks_by_shared(target: Target, shared_bytes: int) -> int:
    if target.backend == "cuda":
        taken = _round_up(shared_bytes, 128) + _CUDA_RESERVED_SHARED_BYTES
    else:
        taken = _round_up(shared_bytes, 1280 if target.arch == "gfx950" else 512)
    if taken == 0:
        return target.max_blocks_per_multiprocessor
    return target.shared_bytes_per_multiprocessor // taken


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
