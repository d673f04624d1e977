"""The judge accepts the gated activations and rejects copies that are wrong in one line."""

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

SKILL = "swiglu"
SWIGLU, ACTIVATIONS = "kernels/swiglu.py", "kernels/activations.py"
ALL = ("swiglu", "swiglu-backward", "swiglu-packed", "swiglu-packed-backward")

MUTATIONS: Mapping[str, Mutation] = {
    "the halves are exchanged": (
        "swiglu-packed", "power-of-two", SWIGLU,
        "return x.narrow(1, 0, cols), x.narrow(1, cols, cols)", "return x.narrow(1, cols, cols), x.narrow(1, 0, cols)",
    ),
    "up is read with the stride of gate": (
        "swiglu", "transposed", SWIGLU, "(_adjacent(x) for x in inputs)", "(x for x in inputs)",
    ),
    "the output of a half is contiguous": (
        "swiglu-packed-backward", "power-of-two", SWIGLU, "out_at = row * out_row_stride + col", "out_at = row * cols + col",
    ),
    "the slope of silu is its chance": (
        "swiglu-backward", "odd-width", ACTIVATIONS, "return x * q, q * (1 + x * rest)", "return x * q, q",
    ),
    "the exponential overflows": (
        "swiglu-backward", "large-gate", ACTIVATIONS, "power = tl.exp2(-tl.abs(x) * LOG2E)", "power = tl.exp2(-x * LOG2E)",
    ),
    "the cube overflows": (
        "swiglu-backward", "large-gate-gelu-tanh", ACTIVATIONS, "FARTHEST = tl.constexpr(15.0)",
        "FARTHEST = tl.constexpr(3e38)",
    ),
    "gelu is computed by its tanh form": (
        "swiglu", "gelu", ACTIVATIONS, 'if NAME == "gelu":\n        power, ratio = _tail(a)\n        tail = a * power * ratio\n    else:\n        tail = a / (1',
        'if NAME == "none":\n        power, ratio = _tail(a)\n        tail = a * power * ratio\n    else:\n        tail = a / (1',
    ),
    "the activation is rounded before the product": (
        "swiglu", "odd-width", SWIGLU, "out = activate(gate, NAME) * up", "out = activate(gate, NAME).to(tl.float16).to(tl.float32) * up",
    ),
    "the last block is left out": (
        "swiglu", "odd-width", SWIGLU, "mask = (col < cols) | WHOLE", "mask = (col < cols - 1) | WHOLE",
    ),
}  # fmt: skip
LEAVING = {"the output of a half is contiguous"}
"""Those that read or write beyond their tensors."""


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title], leaves_its_tensors=title in LEAVING)


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize(
    ("template_id", "names"),
    [
        ("gated-silu", ("odd-width", "large-gate")),
        ("gated-gelu-tanh", ("gelu-tanh", "large-gate-gelu-tanh")),
    ],
)
def test_filled_templates_are_accepted(
    pool: LocalPool, skill: Skill, template_id: str, names: tuple[str, ...]
) -> None:
    solution = filled(skill, template_id, {"block": 512, "warps": 4})
    assert statuses(verdicts(pool, skill, solution, *names)) == {"PASSED"}
