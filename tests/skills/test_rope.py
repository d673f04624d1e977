"""The judge accepts the rotary embedding and rejects copies that are wrong in one line."""

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
    portable,
    statuses,
    verdicts,
)

SKILL = "rope"
ROPE = "kernels/rope.py"
ALL = ("rope", "rope-backward", "rope-at-positions", "rope-at-positions-backward")

MUTATIONS: Mapping[str, Mutation] = {
    "the rotation has the wrong sense": (
        "rope", "odd", ROPE, "if BACKWARD:\n        sin = -sin", "if not BACKWARD:\n        sin = -sin",
    ),
    "neighbours are paired as halves": (
        "rope", "interleaved", ROPE, 'INTERLEAVED=pairing == "interleaved"', "INTERLEAVED=False",
    ),
    "the second element keeps its own sign": (
        "rope", "power-of-two", ROPE, "(b * cos + a * sin)", "(b * cos - a * sin)",
    ),
    "the first overwrites the second": (
        "rope", "odd", ROPE, "mask = (head < heads)[:, None] & (lane < half)\n        tl.store(out_ptr + lane, first, mask=mask)",
        "mask = (head < heads)[:, None] & (lane < half)\n        tl.store(out_ptr + half + lane, first, mask=mask)",
    ),
    "what does not turn is not written": (
        "rope", "partial", ROPE, "tl.store(q_out_ptr + q_head[:, None] * dim + rest, q_rest, mask=q_mask)",
        "tl.store(q_out_ptr + q_head[:, None] * dim + rest, q_rest, mask=q_mask & (rest < 0))",
    ),
    "the last head is left out": (
        "rope", "many-heads", ROPE, "q_a, q_b = _pairs(q_ptr, q_head, q_heads,", "q_a, q_b = _pairs(q_ptr, q_head, q_heads - 1,",
    ),
    "keys are read with the strides of queries": (
        "rope", "padded-heads", ROPE, "k_head, kv_heads, k_head_stride, half,", "k_head, kv_heads, dim, half,",
    ),
    "the tables are read with the length of their rows": (
        "rope", "padded-heads", ROPE, "cos_ptr + at * cos_stride + lane", "cos_ptr + at * half + lane",
    ),
    "the rotation is rounded before it is done": (
        "rope", "odd", ROPE, "a, b = a.to(tl.float32), b.to(tl.float32)", "a, b = a.to(tl.float16).to(tl.float32), b.to(tl.float32)",
    ),
    "tokens of all sequences count on": (
        "rope", "power-of-two", ROPE, "at = token\n", "at = token + sequence\n",
    ),
    "positions are those of the first sequence": (
        "rope-at-positions", "power-of-two", ROPE, "listed_at = sequence * position_batch_stride + token", "listed_at = token",
    ),
    "the gradient turns on": (
        "rope-backward", "power-of-two", ROPE, "return _rotate(dq, dk, cos, sin, None, pairing, True,", "return _rotate(dq, dk, cos, sin, None, pairing, False,",
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    assert_mutation_is_rejected(pool, skill, MUTATIONS[title])


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize("groups", [2, 4])
def test_programs_that_share_a_token(pool: LocalPool, skill: Skill, groups: int) -> None:
    names = ("power-of-two", "odd", "interleaved", "partial", "more-keys-than-queries")
    config = {"GROUPS": groups, "WARPS": 2}
    judgement = verdicts(pool, skill, portable(skill, "rope"), *names, config=config)
    assert statuses(judgement) == {"PASSED"}


@pytest.mark.parametrize(
    ("template_id", "names"),
    [
        ("heads", ("power-of-two", "odd", "transposed")),
        ("heads-interleaved", ("interleaved", "one-pair")),
    ],
)
def test_filled_templates_are_accepted(
    pool: LocalPool, skill: Skill, template_id: str, names: tuple[str, ...]
) -> None:
    assert statuses(verdicts(pool, skill, filled(skill, template_id, {}), *names)) == {"PASSED"}
