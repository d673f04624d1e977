"""The judge accepts the softmax kernels and rejects copies that are wrong in one line."""

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

SKILL = "softmax"
FORWARD, BACKWARD = "kernels/forward.py", "kernels/backward.py"
ALL = ("softmax", "log-softmax", "masked-softmax", "softmax-backward", "log-softmax-backward")

MUTATIONS: Mapping[str, Mutation] = {
    "lanes past the row take part": (
        "softmax", "odd-width", FORWARD,
        'mask=inside, other=float("-inf"))\n    x = x.to(tl.float32)  # [ROWS', 'mask=inside, other=0.0)\n    x = x.to(tl.float32)  # [ROWS',
    ),
    "the maximum is not subtracted": (
        "softmax", "overflow-without-the-maximum", FORWARD, "    x -= top\n", "",
    ),
    "the maximum starts at zero": (
        "softmax", "far-below-zero", FORWARD, "-3.4028234663852886e38, tl.float32", "0.0, tl.float32",
    ),
    "the maximum starts at minus infinity": (
        "softmax", "minus-infinity", FORWARD, "-3.4028234663852886e38", 'float("-inf")',
    ),
    "the earlier sum is not rescaled": (
        "softmax", "read-twice", FORWARD, "total * tl.exp(top - higher) + tl.sum", "total + tl.sum",
    ),
    "the sums of the threads are not rescaled": (
        "softmax", "outliers", FORWARD, "tl.sum(total * tl.exp(top - row_top), axis=0)",
        "tl.sum(total, axis=0)",
    ),
    "a wide row ends at its last whole block": (
        "softmax", "read-twice", FORWARD,
        "for start in range(0, cols, BLOCK):\n        col = start + lane\n        # kept",
        "for start in range(0, cols - BLOCK + 1, BLOCK):\n        col = start + lane\n        # kept",
    ),
    "the exponentials are summed in half precision": (
        "softmax", "odd-width", FORWARD, "total = tl.sum(e, axis=1, keep_dims=True)",
        "total = tl.sum(e.to(tl.float16), axis=1, keep_dims=True).to(tl.float32)",
    ),
    "the stride of a row is its length": (
        "softmax", "padded-rows", FORWARD, "x_ptr + row * x_row_stride + col,", "x_ptr + row * cols + col,",
    ),
    "the logarithm is of the rounded softmax": (
        "log-softmax", "overflow-without-the-maximum", FORWARD, "x - tl.log(total) if LOG", "tl.log(e / total) if LOG",
    ),
    "a row that keeps only minus infinity is 0/0": (
        "masked-softmax", "minus-infinity", FORWARD, "tl.where(total == 0.0, 0.0, inverse)", "inverse",
    ),
    "the mask is read with the stride of x": (
        "masked-softmax", "one-mask-for-all-rows", FORWARD, "mask_ptr + row * mask_row_stride + col",
        "mask_ptr + row * x_row_stride + col",
    ),
    "the gradient forgets its sum": (
        "softmax-backward", "power-of-two", BACKWARD, "total = tl.sum(dy if LOG else dy * y, axis=1, keep_dims=True)",
        "total = 0.0 * tl.sum(dy if LOG else dy * y, axis=1, keep_dims=True)",
    ),
    "the gradient of the logarithm takes y for a probability": (
        "log-softmax-backward", "power-of-two", BACKWARD,
        "dx = dy - tl.exp(y) * total if LOG else y * (dy - total)\n    tl.store",
        "dx = dy - y * total if LOG else y * (dy - total)\n    tl.store",
    ),
}  # fmt: skip
LEAVING = {"the mask is read with the stride of x"}
"""Those that read or write beyond their tensors."""


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title], leaves_its_tensors=title in LEAVING)


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize("definition", ["masked-softmax", "softmax-backward"])
@pytest.mark.parametrize("config", [{"ROWS": 4, "WARPS": 2}, {"BLOCK": 1024, "WARPS": 4}])
def test_the_other_plan_is_right_too(
    pool: LocalPool, skill: Skill, definition: str, config: Mapping[str, Scalar]
) -> None:
    judgement = verdicts(
        pool, skill, portable(skill, definition), "odd-width", "read-twice", config=config
    )
    assert statuses(judgement) == {"PASSED"}


@pytest.mark.parametrize("template_id", ["rows", "rows-log"])
def test_filled_templates_are_accepted(pool: LocalPool, skill: Skill, template_id: str) -> None:
    solution = filled(skill, template_id, {"rows": 4})
    names = ("odd-width", "narrow", "minus-infinity")
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
