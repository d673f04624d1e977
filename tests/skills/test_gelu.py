"""The judge accepts the GELU kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kernel_skills.executor.pool import LocalPool
from kernel_skills.registry.models import Skill

from .conftest import (
    Mutation,
    assert_accepted,
    assert_mutation_is_rejected,
    filled,
    statuses,
    verdicts,
)

SKILL = "gelu"
GELU, TAILS = "kernels/gelu.py", "kernels/tails.py"

MUTATIONS: Mapping[str, Mutation] = {
    "an infinity meets a zero": (
        "gelu", "infinite", TAILS, "FARTHEST = tl.constexpr(15.0)", 'FARTHEST = tl.constexpr(float("inf"))',
    ),
    "the tail is cut where it still counts": (
        "gelu", "odd-width", TAILS, "FARTHEST = tl.constexpr(15.0)", "FARTHEST = tl.constexpr(2.0)",
    ),
    "one coefficient has a wrong digit": (
        "gelu", "odd-width", TAILS, "0.11519762128591537", "0.11529762128591537",
    ),
    "the tanh form is computed for both": (
        "gelu", "odd-width", GELU, '_launch(x, x, y, approximate == "tanh",', "_launch(x, x, y, True,",
    ),
    "the error function is computed for both": (
        "gelu", "tanh-float", GELU, '_launch(x, x, y, approximate == "tanh",', "_launch(x, x, y, False,",
    ),
    "the cubic term has no slope": (
        "gelu-backward", "tanh-float", TAILS, "(2 * SLOPE + 6 * SLOPE * CUBIC * a * a)", "(2 * SLOPE)",
    ),
    "the slope is that of the other side": (
        "gelu-backward", "odd-width", TAILS, "tl.where(x > 0, 1 - slope, slope)", "tl.where(x > 0, slope, 1 - slope)",
    ),
    "the stride of a row is its length": (
        "gelu", "padded-rows", GELU, "x_ptr + row * x_row_stride", "x_ptr + row * cols",
    ),
    "the gradient is read as if it had all rows": (
        "gelu-backward", "expanded-gradient", GELU, "dy_ptr + row * dy_row_stride", "dy_ptr + row * cols",
    ),
    "the last block is left out": (
        "gelu", "odd-width", GELU, "mask = (start + lane < cols) | WHOLE", "mask = (start + lane < cols - 1) | WHOLE",
    ),
}  # fmt: skip
LEAVING = {"the gradient is read as if it had all rows"}
"""Those that read or write beyond their tensors."""


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title], leaves_its_tensors=title in LEAVING)


@pytest.mark.parametrize("definition", ["gelu", "gelu-backward"])
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize(
    ("template_id", "names"),
    [
        ("elementwise", ("odd-width", "far-out", "infinite")),
        ("elementwise-tanh", ("tanh-float", "largest")),
    ],
)
def test_filled_templates_are_accepted(
    pool: LocalPool, skill: Skill, template_id: str, names: tuple[str, ...]
) -> None:
    solution = filled(skill, template_id, {"block": 512, "warps": 4})
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
