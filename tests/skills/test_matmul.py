"""The judge accepts the matmul kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_skills.executor.models import Scalar
from kernel_skills.executor.pool import LocalPool
from kernel_skills.registry.models import Skill

from .conftest import altered, assert_wrong, filled, portable, variant, verdicts

SKILL = "matmul"
PORTABLE, HOPPER = "kernels/portable.py", "kernels/hopper.py"
IN_HALVES: Mapping[str, Scalar] = {
    "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "STAGES": 3, "WARPS": 4, "SUBTILES": 2,
}  # fmt: skip
SLICE = "acc = tl.dot(a, b, acc, input_precision=PRECISION)"
MUTATIONS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "the tail of k is not masked": (
        "padded-rows",
        (
            ("mask=depth[None, :] < k - offset", "mask=depth[None, :] <= k - offset"),
            ("mask=depth[:, None] < k - offset", "mask=depth[:, None] <= k - offset"),
        ),
    ),
    "the last slice of k is left out": (
        "odd",
        (("range(0, k, BLOCK_K)", "range(0, k - BLOCK_K + 1, BLOCK_K)"),),
    ),
    "tiles of a group that is cut at the edge are skipped": (
        "aligned",
        (("group_rows = min(tiles_m - first_m, GROUP_M)", "group_rows = GROUP_M"),),
    ),
    "the row of a tile is off by one": (
        "transposed-a",
        (("a_rows = (row % m)", "a_rows = ((row + 1) % m)"),),
    ),
    "sums are kept in float16": (
        "long-sum",
        (
            (
                SLICE,
                "acc = (acc + tl.dot(a, b, input_precision=PRECISION)).to(tl.float16).to(tl.float32)",
            ),
        ),
    ),
    "operands are rounded as for the matrix units": (
        "full-precision",
        (
            (
                SLICE,
                "acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc, input_precision=PRECISION)",
            ),
        ),
    ),
    "an empty sum is not written": (
        "nothing-to-sum",
        (("if 0 in out.shape:", "if 0 in out.shape or k == 0:"),),
    ),
}
LEAVING = {"the tail of k is not masked"}
"""Those that read or write beyond their tensors."""


@pytest.mark.parametrize("title", MUTATIONS)
def test_a_product_that_is_subtly_wrong_is_rejected(
    pool: LocalPool, skill: Skill, title: str
) -> None:
    workload, changes = MUTATIONS[title]
    solution = altered(portable(skill, "matmul"), PORTABLE, *changes)
    judgement = verdicts(pool, skill, solution, workload)
    assert_wrong(judgement, leaves_its_tensors=title in LEAVING)


def test_tiles_written_in_halves_are_right(pool: LocalPool, skill: Skill) -> None:
    solution = variant(skill, "matmul", "hopper")
    judgement = verdicts(pool, skill, solution, "transposed-b", config=IN_HALVES)
    assert judgement.accepted, judgement


def test_a_second_half_written_over_the_first_is_rejected(pool: LocalPool, skill: Skill) -> None:
    change = ("            col += HALF_N\n", "")
    solution = altered(variant(skill, "matmul", "hopper"), HOPPER, change)
    assert_wrong(verdicts(pool, skill, solution, "transposed-b", config=IN_HALVES))


def test_a_wrong_activation_is_rejected(pool: LocalPool, skill: Skill) -> None:
    change = ("x / (1.0 + tl.exp(-x))", "x / (1.0 + tl.exp2(-x))")
    solution = altered(portable(skill, "linear"), PORTABLE, change)
    assert_wrong(verdicts(pool, skill, solution, "odd-silu"))


def test_an_approximate_gelu_and_a_swallowed_nan_fail_the_checks(
    pool: LocalPool, skill: Skill
) -> None:
    """The tanh form of GELU differs from that by erf by 5e-4: float32 shows it, 16 bits do not."""
    solution = altered(
        portable(skill, "linear"),
        PORTABLE,
        ("tl.erf(x * 0.7071067811865476)",
         "(2.0 / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))) - 1.0)"),
        ("x = tl.where(x < 0, 0.0, x)", "x = tl.where(x > 0, x, 0.0)"),
    )  # fmt: skip
    judgement = verdicts(pool, skill, solution, "odd-silu", checks=True, dtype="float32")
    failed = {check.name for check in judgement.checks if check.outcome == "failed"}
    assert failed == {"check_bias_alone_is_activated", "check_activations_keep_not_a_number"}


def test_the_filled_template_is_right(pool: LocalPool, skill: Skill) -> None:
    small = {"block_m": 16, "block_n": 64, "block_k": 32}
    solution = filled(skill, skill.manifest.template[0].id, small)
    judgement = verdicts(pool, skill, solution, "relu", "plain-padded")
    assert judgement.accepted, judgement
