from __future__ import annotations

import pytest

from kernel_skills.executor.occupancy import Occupancy, occupancy_of
from kernel_skills.executor.targets import find_target


@pytest.mark.parametrize(
    ("target", "registers", "shared_bytes", "warps", "blocks", "limiter"),
    [
        # 65536 / (64 x 32) = 32 warps, in blocks of 8
        pytest.param("a100", 64, 0, 8, 4, "registers", id="a100 64 registers"),
        # 65 registers are allocated as 72: 28 warps, in blocks of 8
        pytest.param("a100", 65, 0, 8, 3, "registers", id="a100 one register more"),
        pytest.param("h100", 32, 0, 4, 16, "warps", id="h100 32 registers fill it"),
        pytest.param("h100", 255, 0, 8, 1, "registers", id="h100 255 registers"),
        pytest.param("h100", 16, 0, 1, 32, "blocks", id="h100 one-warp blocks"),
        pytest.param("h100", 24, 0, 32, 2, "warps", id="h100 1024 threads"),
        pytest.param("rtx4090", 32, 0, 8, 6, "warps", id="rtx4090 48 warps"),
        # 1 KiB of every block belongs to the system: twice 113 KiB fits 228 KiB, a byte more does not
        pytest.param("h100", 32, 113 * 1024, 4, 2, "shared", id="h100 half the shared memory"),
        pytest.param("h100", 32, 113 * 1024 + 1, 4, 1, "shared", id="h100 a byte more than half"),
        pytest.param("h100", 32, 227 * 1024, 4, 1, "shared", id="h100 all shared memory"),
        # 118 vector registers are allocated as 120: 4 waves on each of 4 SIMDs
        pytest.param("mi300x", 118, 0, 8, 2, "registers", id="mi300x 118 registers"),
        pytest.param("mi300x", 64, 65536, 4, 1, "shared", id="mi300x all shared memory"),
        pytest.param("mi300x", 512, 0, 4, 1, "registers", id="mi300x 512 registers"),
    ],
)
def test_the_tightest_limit_decides(
    target: str, registers: int, shared_bytes: int, warps: int, blocks: int, limiter: str
) -> None:
    chip = find_target(target)
    held = occupancy_of(chip, registers=registers, shared_bytes=shared_bytes, warps_per_block=warps)
    share = blocks * warps / chip.max_warps_per_multiprocessor
    assert held == Occupancy(blocks, blocks * warps, share, limiter)  # type: ignore[arg-type]


def test_unknown_registers_limit_nothing() -> None:
    held = occupancy_of(find_target("h100"), registers=0, shared_bytes=0, warps_per_block=4)
    assert held.share == 1.0
