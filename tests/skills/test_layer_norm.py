"""The judge accepts the layer norm kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_skills.executor.models import Scalar
from kernel_skills.executor.pool import LocalPool
from kernel_skills.registry.models import Skill

from .conftest import (
    Mutation,
    assert_accepted,
    assert_mutation_is_rejected,
    filled,
    portable,
    statuses,
    verdicts,
)

SKILL = "layer-norm"
FORWARD, BACKWARD, PLAIN = "kernels/forward.py", "kernels/backward.py", "kernels/plain_backward.py"
ALL = ("layer-norm", "layer-norm-plain", "layer-norm-backward", "layer-norm-plain-backward")
VARIANCE = "variance = tl.sum(centred * centred, axis=1, keep_dims=True) / cols"
WIDE_SUM = "    for start in range(0, cols, BLOCK):\n        col = start + lane\n        mask = (col < cols) | WHOLE\n        # kept"

MUTATIONS: Mapping[str, Mutation] = {
    "masked lanes count as deviations": (
        "layer-norm", "odd-width", FORWARD, "tl.where(col_mask, x - mean, 0.0)", "x - mean",
    ),
    "the variance is a difference of squares": (
        "layer-norm", "large-mean", FORWARD, VARIANCE,
        "variance = tl.sum(x * x, axis=1, keep_dims=True) / cols - mean * mean",
    ),
    "the variance of a wide row is a difference of squares": (
        "layer-norm", "large-mean-read-twice", FORWARD,
        "variance = tl.sum(squares + count * away * away, axis=0) / cols",
        "variance = tl.sum(squares + count * mean * mean, axis=0) / cols - row_mean * row_mean",
    ),
    "eps lies outside the root": (
        "layer-norm", "large-eps", FORWARD,
        "rstd = _inverse_root(variance + eps)\n    tl.store(mean_ptr + row, mean,",
        "rstd = 1.0 / (tl.sqrt(variance) + eps)\n    tl.store(mean_ptr + row, mean,",
    ),
    "the variance is unbiased": (
        "layer-norm-plain", "narrow", FORWARD, VARIANCE, VARIANCE.replace("/ cols", "/ (cols - 1)"),
    ),
    "squares are taken in half precision": (
        "layer-norm", "squares-overflow-half", FORWARD, VARIANCE,
        "z = centred.to(tl.float16)\n    variance = tl.sum(z * z, axis=1, keep_dims=True).to(tl.float32) / cols",
    ),
    "the distance between blocks is left out": (
        "layer-norm", "outliers", FORWARD, " + away * away * (before * share)", "",
    ),
    "the last block counts as full": (
        "layer-norm", "read-twice", FORWARD, "share = count / tl.maximum(before + count, 1.0)",
        "share = VECTOR / (before + VECTOR)",
    ),
    "a wide row ends at its last whole block": (
        "layer-norm", "read-twice", FORWARD, WIDE_SUM,
        WIDE_SUM.replace("cols, BLOCK", "cols - BLOCK + 1, BLOCK"),
    ),
    "the stride of a row is its length": (
        "layer-norm", "padded-rows", FORWARD, "x_ptr + row * x_row_stride + col,", "x_ptr + row * cols + col,",
    ),
    "dx forgets the mean of the gradient": (
        "layer-norm-backward", "power-of-two", BACKWARD, "(g - plain[:, None] / cols - xhat", "(g - xhat",
    ),
    "dx forgets the part along the row": (
        "layer-norm-backward", "power-of-two", BACKWARD, " - xhat * (product[:, None] / cols))", ")",
    ),
    "dweight leaves out the last program": (
        "layer-norm-backward", "many-rows", "kernels/reduce.py",
        "mask = (program < programs)[:, None]", "mask = (program < programs - 1)[:, None]",
    ),
    "dbias is summed in bfloat16": (
        "layer-norm-backward", "many-rows", BACKWARD, "dbias += tl.sum(dy, axis=0)",
        "dbias = (dbias + tl.sum(dy, axis=0)).to(tl.bfloat16).to(tl.float32)",
    ),
    "the last strip adds nothing to dweight": (
        "layer-norm-backward", "read-twice", "kernels/split.py", "tl.store(at, dweight, mask=lane_mask)",
        "tl.store(at, dweight, mask=lane_mask & (lane < cols // BLOCK * BLOCK))",
    ),
    "dx without weight forgets the mean": (
        "layer-norm-plain-backward", "read-twice", PLAIN, "(dy.to(tl.float32) - row_plain - xhat", "(dy.to(tl.float32) - xhat",
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title])


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize("definition", ["layer-norm", "layer-norm-backward"])
@pytest.mark.parametrize("config", [{"ROWS": 4, "WARPS": 2}, {"BLOCK": 512, "WARPS": 2}])
def test_the_other_plan_is_right_too(
    pool: LocalPool, skill: Skill, definition: str, config: Mapping[str, Scalar]
) -> None:
    judgement = verdicts(
        pool, skill, portable(skill, definition), "odd-width", "large-mean", config=config
    )
    assert statuses(judgement) == {"PASSED"}


@pytest.mark.parametrize("template_id", ["rows", "rows-plain"])
def test_filled_templates_are_accepted(pool: LocalPool, skill: Skill, template_id: str) -> None:
    solution = filled(skill, template_id, {"rows": 4})
    names = ("odd-width", "narrow", "large-mean")
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
