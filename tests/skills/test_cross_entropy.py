"""The judge accepts the cross-entropy kernels and rejects copies that are wrong in one line."""

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

SKILL = "cross-entropy"
LANES, FORWARD = "kernels/lanes.py", "kernels/forward.py"
BACKWARD, TRAINING = "kernels/backward.py", "kernels/training.py"
ALL = ("cross-entropy", "cross-entropy-backward", "cross-entropy-with-gradient")

MUTATIONS: Mapping[str, Mutation] = {
    "padding takes part in the sum": (
        "cross-entropy", "padded-vocabulary", LANES, "mask = whole + col < vocab",
        "mask = whole + col < vocab + 9000",
    ),
    "masked lanes are zeros": (
        "cross-entropy", "odd-width", LANES, "mask=mask, other=-INF", "mask=mask, other=0.0",
    ),
    "a lane's sum is not rescaled": (
        "cross-entropy", "several-blocks", LANES,
        "total * tl.exp2((largest - origin) * LOG2E) + added", "total + added",
    ),
    "the lanes' sums are not rescaled": (
        "cross-entropy", "large-logits", LANES,
        "tl.sum(total * tl.exp2((largest - origin) * LOG2E), axis=0)", "tl.sum(total, axis=0)",
    ),
    "a row ends at its last whole block": (
        "cross-entropy", "several-blocks", LANES, "if whole < vocab:", "if vocab < 0:",
    ),
    "an ignored row has a loss": (
        "cross-entropy", "ignored-class", FORWARD, "if target == ignore_index:", "if target == -5:",
    ),
    "smoothing divides by the columns": (
        "cross-entropy", "smoothed-padded-vocabulary", LANES,
        "smoothing * (plain / vocab)", "smoothing * (plain / 320)",
    ),
    "the target keeps its whole weight": (
        "cross-entropy", "smoothed", LANES, "lse - (1 - smoothing) * picked", "lse - picked",
    ),
    "the z-loss is not squared": (
        "cross-entropy", "z-loss", LANES, "z_loss * lse * lse", "z_loss * lse",
    ),
    "the z-loss has no gradient": (
        "cross-entropy-backward", "z-loss", LANES, "dx *= 1 + 2 * z_loss * lse", "dx *= 1.0",
    ),
    "the gradient of the target is a probability": (
        "cross-entropy-backward", "power-of-two", LANES,
        "tl.where(col == target, dx - (1 - smoothing), dx)", "tl.where(col == target, dx, dx)",
    ),
    "the gradient of padding is written": (
        "cross-entropy-backward", "padded-vocabulary", BACKWARD,
        "dx = tl.where(mask, dx, 0.0)", "dx = tl.where(mask, dx, 1.0)",
    ),
    "the gradient of the loss is read at stride one": (
        "cross-entropy-backward", "padded-rows", BACKWARD, "logits_ptr + row * row_stride", "logits_ptr + row * cols",
    ),
    "ignored rows count": (
        "cross-entropy-with-gradient", "some-ignored", TRAINING,
        "count += (target != ignore_index).to(tl.int32)", "count += (row < rows).to(tl.int32)",
    ),
    "the mean of no row is 0/0": (
        "cross-entropy-with-gradient", "all-ignored", TRAINING,
        "tl.maximum(tl.sum(count, axis=0), 1)", "tl.sum(count, axis=0)",
    ),
    "the sum is a mean": (
        "cross-entropy-with-gradient", "summed", TRAINING, 'MEAN=reduction == "mean"', "MEAN=True",
    ),
    "the first block has no gradient": (
        "cross-entropy-with-gradient", "several-blocks", TRAINING,
        "for start in range(0, cols, BLOCK):\n        write_block", "for start in range(0, last, BLOCK):\n        write_block",
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title])


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    judgement = verdicts(pool, skill, portable(skill, definition), checks=True)
    # the workloads of the ring are too large for the interpreter
    assert statuses(judgement) <= {"PASSED", "SKIPPED"}
    assert {check.outcome for check in judgement.checks} == {"passed"}


def test_an_ignored_row_of_nan_is_not_multiplied_by_zero(pool: LocalPool, skill: Skill) -> None:
    solution = altered(
        portable(skill, "cross-entropy-backward"), BACKWARD,
        ("if target == ignore_index:", "scale = tl.where(target == ignore_index, 0.0, scale)\n    if target == -5:"),
    )  # fmt: skip
    judgement = verdicts(pool, skill, solution, "power-of-two", checks=True)
    failed = {check.name for check in judgement.checks if check.outcome == "failed"}
    assert failed == {"check_ignored_rows_and_padding_are_zero"}


@pytest.mark.parametrize("block", [64, 1024])
def test_any_block_is_right(pool: LocalPool, skill: Skill, block: int) -> None:
    config = {"BLOCK": block, "WARPS": 4}
    for definition in ALL:
        names = ("odd-width", "smoothed-padded-vocabulary", "power-of-two", "one-class")
        judgement = verdicts(pool, skill, portable(skill, definition), *names, config=config)
        assert statuses(judgement) == {"PASSED"}


def test_the_filled_template_is_accepted(pool: LocalPool, skill: Skill) -> None:
    names = (
        "odd-width",
        "some-ignored",
        "smoothed-padded-vocabulary",
        "z-loss",
        "padded-vocabulary",
    )
    solution = filled(skill, "rows", {"block": 1024, "warps": 4})
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
