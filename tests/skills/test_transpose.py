"""The judge accepts the permutations and rejects copies that are wrong in one line."""

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

SKILL = "transpose"
PERMUTE = "kernels/permute.py"
ALL = ("transpose", "batched-transpose", "swap-middle", "reverse-axes")

MUTATIONS: Mapping[str, Mutation] = {
    "the tile is not turned": (
        "transpose", "power-of-two", PERMUTE,
        "to = col[:, None] * y_col_stride + row[None, :] * y_row_stride", "to = col[:, None] * y_row_stride + row[None, :] * y_col_stride",
    ),
    "the last tile of rows is left out": (
        "transpose", "odd", PERMUTE, "tl.store(y_ptr + to, tl.trans(x), mask=turned_mask)",
        "tl.store(y_ptr + to, tl.trans(x), mask=turned_mask & (row < 32)[None, :])",
    ),
    "a row's stride is its length": (
        "transpose", "padded-rows", PERMUTE, "row[:, None] * x_row_stride +", "row[:, None] * cols +",
    ),
    "dimensions merge that are no neighbours": (
        "batched-transpose", "power-of-two", PERMUTE, "if merged and merged[-1][1] == x_stride * length:", "if merged:",
    ),
    "the batch is not counted": (
        "batched-transpose", "power-of-two", PERMUTE, "third = (outer % outer_2)", "third = (outer * 0)",
    ),
    "outer dimensions are counted in the wrong order": (
        "reverse-axes", "odd", PERMUTE, "second = (outer // outer_2 % outer_1)", "second = (outer % outer_1)",
    ),
    "heads are written as far apart as they were": (
        "swap-middle", "power-of-two", PERMUTE, "second * y_stride_1 + third * y_stride_2", "second * y_stride_1 + third * x_stride_2",
    ),
}  # fmt: skip
LEAVING = {"dimensions merge that are no neighbours", "heads are written as far apart as they were"}
"""Those that read or write beyond their tensors."""


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    # what is not written stays NaN
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title], leaves_its_tensors=title in LEAVING)


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize(
    "config", [{"ROWS": 16, "COLS": 32, "WARPS": 4, "GROUP": 3}, {"ROWS": 8, "COLS": 8, "GROUP": 2}]
)
def test_any_tile_in_any_order_is_right(
    pool: LocalPool, skill: Skill, config: Mapping[str, Scalar]
) -> None:
    for definition in ALL:
        solution = portable(skill, definition)
        assert statuses(verdicts(pool, skill, solution, "odd", config=config)) == {"PASSED"}


@pytest.mark.parametrize("rows", [32, 64])
def test_the_filled_template_is_accepted(pool: LocalPool, skill: Skill, rows: int) -> None:
    solution = filled(skill, "tile", {"rows": rows, "cols": 32, "warps": 4})
    names = ("power-of-two", "odd", "narrow", "padded-rows", "expanded")
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
