"""The judge accepts the fused linear cross-entropy and rejects copies that are wrong in one line."""

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
    portable,
    statuses,
    verdicts,
)

SKILL = "linear-cross-entropy"
TILES, FORWARD, BACKWARD = "kernels/tiles.py", "kernels/forward.py", "kernels/backward.py"
LOSS, GRADIENT = "linear-cross-entropy", "linear-cross-entropy-backward"

MUTATIONS: Mapping[str, Mutation] = {
    "classes past the last are zeros": (
        LOSS, "odd", FORWARD, "tl.where((col < vocab)[None, :], logits, -INF)", "tl.where((col < vocab)[None, :], logits, 0.0)",
    ),
    "tiles are merged without rescaling": (
        LOSS, "large-logits", FORWARD, "sums * tl.exp2((largest - origin[None, :]) * LOG2E)", "sums",
    ),
    "the last tile is not merged": (
        LOSS, "odd", FORWARD, "mask = (part < tiles)[:, None]", "mask = (part < tiles - 1)[:, None]",
    ),
    "the inner dimension ends at its last whole block": (
        LOSS, "odd", TILES, "for start in range(0, k, BLOCK_K):", "for start in range(0, k - BLOCK_K + 1, BLOCK_K):",
    ),
    "an ignored row has a loss": (
        LOSS, "some-ignored", FORWARD, "loss = tl.where(target == ignore_index, 0.0, lse - picked)", "loss = lse - picked",
    ),
    "tiles of the last band are done twice": (
        LOSS, "odd", TILES, "height = tl.minimum(rows - band * 8, 8)", "height = 8",
    ),
    "targets count from the chunk": (
        GRADIENT, "two-chunks", BACKWARD, "(first + col)[None, :] == target[:, None]", "col[None, :] == target[:, None]",
    ),
    "dx is that of the last chunk": (
        GRADIENT, "two-chunks", BACKWARD, "dx if last else total, start > 0, tuning", "dx if last else total, False, tuning",
    ),
    "ignored rows have gradients": (
        GRADIENT, "some-ignored", BACKWARD, "tl.where((target == ignore_index)[:, None], 0.0, dlogits)", "dlogits + 0.0",
    ),
    "the gradient of the loss is left out": (
        GRADIENT, "odd", BACKWARD, "dlogits *= scale.to(tl.float32)[:, None]", "dlogits *= 1.0",
    ),
    "the gradient of the loss is read as if it had all rows": (
        GRADIENT, "expanded-gradient", BACKWARD, "tl.load(dloss_ptr + row.to(tl.int64) * dloss_stride, mask=inside, other=0.0)",
        "tl.load(dloss_ptr + row.to(tl.int64) * dloss_stride, mask=row < 1, other=0.0)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title])


@pytest.mark.parametrize("definition", [LOSS, GRADIENT])
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize(
    "config", [{"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 16}, {"BLOCK_M": 128, "BLOCK_N": 64}]
)
def test_any_tile_is_right(pool: LocalPool, skill: Skill, config: Mapping[str, Scalar]) -> None:
    for definition in (LOSS, GRADIENT):
        solution = portable(skill, definition)
        judgement = verdicts(pool, skill, solution, "odd", "padded-rows", config=config)
        assert statuses(judgement) == {"PASSED"}


def test_chunks_of_any_size_are_right(pool: LocalPool, skill: Skill) -> None:
    solution = portable(skill, GRADIENT)
    judgement = verdicts(pool, skill, solution, "odd", "transposed", config={"CHUNK": 50})
    assert statuses(judgement) == {"PASSED"}
