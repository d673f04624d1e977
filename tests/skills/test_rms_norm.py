"""The judge accepts the RMS norm kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_skills.executor.pool import LocalPool
from kernel_skills.registry.models import Skill

from .conftest import (
    Mutation,
    altered,
    assert_mutation_is_rejected,
    filled,
    portable,
    statuses,
    verdicts,
)

SKILL = "rms-norm"
FORWARD, BACKWARD = "kernels/forward.py", "kernels/backward.py"
ROWS_KERNEL_RSTD = "rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)"

MUTATIONS: Mapping[str, Mutation] = {
    "masked lanes enter the sum": (
        "rms-norm", "odd-width", FORWARD,
        "x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)",
        "x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=1.0)",
    ),
    "eps lies outside the root": (
        "rms-norm", "large-eps", FORWARD, ROWS_KERNEL_RSTD,
        "rstd = 1.0 / (tl.sqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols) + eps)",
    ),
    "the mean is over the block": (
        "rms-norm", "odd-width", FORWARD, ROWS_KERNEL_RSTD,
        "rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / BLOCK + eps)",
    ),
    "squares are taken in half precision": (
        "rms-norm", "squares-overflow-half", FORWARD, ROWS_KERNEL_RSTD,
        "z = x.to(tl.float16)\n    rstd = tl.rsqrt(tl.sum(z * z, axis=1, keep_dims=True) / cols + eps)",
    ),
    "the stride of a row is its length": (
        "rms-norm", "padded-rows", FORWARD,
        "x = tl.load(x_ptr + row * x_row_stride + col,", "x = tl.load(x_ptr + row * cols + col,",
    ),
    "the last tile writes one row only": (
        "rms-norm", "narrow", FORWARD, "mask = ((row < rows) | (ROWS == 1)) & col_mask",
        "mask = ((row < rows - 1) | (ROWS == 1)) & col_mask",
    ),
    "dweight leaves out the last program": (
        "rms-norm-backward", "many-rows", "kernels/reduce.py",
        "mask = (program < programs)[:, None]", "mask = (program < programs - 1)[:, None]",
    ),
    "dweight is summed in bfloat16": (
        "rms-norm-backward", "many-rows", BACKWARD, "dweight += tl.sum(dy * xhat, axis=0)",
        "dweight += tl.sum(dy * xhat, axis=0)\n        dweight = dweight.to(tl.bfloat16).to(tl.float32)",
    ),
    "rows past the last divide by zero": (
        "rms-norm-backward", "tiny-values", BACKWARD,
        "rstd = tl.where((row < rows) | (ROWS == 1), rstd, 0.0)", "",
    ),
    "the mean of the products is left out": (
        "rms-norm-backward", "power-of-two", BACKWARD,
        "dx = rstd * (dy * weight - xhat * (products[:, None] * rstd / cols))",
        "dx = rstd * dy * weight",
    ),
    "the gradient of the sum is left out": (
        "add-rms-norm-backward", "power-of-two", BACKWARD,
        "dx += dsummed.to(tl.float32)", "dx += 0.0",
    ),
    "a wide row ends at its last whole chunk": (
        "rms-norm-backward", "wider-than-registers", "kernels/split.py",
        "for start in range(0, cols, BLOCK):", "for start in range(0, cols - BLOCK + 1, BLOCK):",
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title])


def test_a_check_finds_the_norm_of_an_unrounded_sum(pool: LocalPool, skill: Skill) -> None:
    rounded = (
        "(x.to(tl.float32) + residual.to(tl.float32)).to(x_ptr.dtype.element_ty)\n        tl.store"
    )
    sum_ = "(x.to(tl.float32) + residual.to(tl.float32))\n        tl.store"
    solution = altered(portable(skill, "add-rms-norm"), FORWARD, (rounded, sum_))
    judgement = verdicts(pool, skill, solution, "odd-width", checks=True)
    failed = {check.name for check in judgement.checks if check.outcome == "failed"}
    assert failed == {"check_norm_is_of_the_rounded_sum"}


@pytest.mark.parametrize(
    "definition", ["rms-norm", "add-rms-norm", "rms-norm-backward", "add-rms-norm-backward"]
)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    names = ["power-of-two", "odd-width", "tiny-values", "padded-rows", "wider-than-registers"]
    if definition.endswith("backward"):
        names.append("many-rows")
    judgement = verdicts(pool, skill, portable(skill, definition), *names)
    assert statuses(judgement) == {"PASSED"}


@pytest.mark.parametrize("template_id", ["rows", "rows-after-add"])
@pytest.mark.parametrize("rows", [1, 4])
def test_filled_templates_are_accepted(
    pool: LocalPool, skill: Skill, template_id: str, rows: int
) -> None:
    solution = filled(skill, template_id, {"rows": rows})
    judgement = verdicts(pool, skill, solution, "odd-width", "narrow", "power-of-two")
    assert statuses(judgement) == {"PASSED"}
