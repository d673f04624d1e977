"""The judge accepts the flash-attn kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

import pytest

from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.models import Solution, Task, Workload
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.targets import find_target
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import task_of

from .conftest import altered, assert_wrong, filled, portable, replaced, statuses

SKILL = "flash-attn"
KERNEL = "kernels/portable.py"


def task(skill: Skill, *replacements: tuple[str, str]) -> Task:
    """Return the package's task, its reference changed."""
    whole = task_of(skill, skill.manifest.definition_named("flash-attn"))
    sources = tuple(replaced(s, *replacements) for s in whole.sources if s.path == "reference.py")
    return whole.model_copy(update={"sources": sources})


def named(skill: Skill, *names: str) -> tuple[Workload, ...]:
    return tuple(w for w in skill.manifest.workload if w.name in names)


def run(
    pool: LocalPool, task: Task, solution: Solution, workloads: tuple[Workload, ...]
) -> Judgement:
    assert workloads
    request = JudgeRequest(
        task=task,
        solution=solution,
        workloads=workloads,
        target=find_target("h100"),
        stages=("lint", "verify"),
        seed=7,
    )
    return judge(request, pool, None)


MUTATIONS = {
    "the last tile of the diagonal is left out": (
        "more-keys-than-queries",
        "seen = tl.maximum(tl.minimum(row0 + BLOCK_M, q_len) + shift, 0)",
        "seen = tl.maximum(tl.minimum(row0 + BLOCK_M, q_len) + shift - BLOCK_N, 0)",
    ),
    "one tile too many runs without a mask": (
        "more-keys-than-queries",
        "whole = tl.maximum(tl.minimum(kv_len, row0 + 1 + shift), 0) // BLOCK_N * BLOCK_N",
        "whole = tl.maximum(tl.minimum(kv_len, row0 + BLOCK_N + shift), 0) // BLOCK_N * BLOCK_N",
    ),
    "causal aligns to the top left": (
        "more-keys-than-queries",
        "shift = kv_len - q_len\n",
        "shift = 0\n",
    ),
    "the diagonal is off by one key": (
        "small-causal",
        "tl.maximum(rows + 1 + shift, 0)",
        "tl.maximum(rows + shift, 0)",
    ),
    "the final rescale is missing": ("odd-lengths", "out = acc / safe[:, None]", "out = acc"),
    "the running rescale is missing": ("odd-lengths", "acc = acc * alpha[:, None]\n", "\n"),
    "a row without keys is NaN": (
        "more-queries-than-keys",
        'shift = tl.where(m_new == float("-inf"), 0.0, m_new)',
        "shift = m_new",
    ),
    "padded keys take part": (
        "odd-lengths",
        "cols[None, :] < limit[:, None]",
        "cols[None, :] >= 0",
    ),
    "lse is in base 2": ("odd-lengths", "* 0.6931471805599453", "* 1.0"),
    "query heads take turns at the key heads": (
        "group-of-three",
        "kv_head = (head // share)",
        "kv_head = (head % (q_heads // share))",
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_kernel_that_is_wrong_in_one_line_is_rejected(
    mutation: str, pool: LocalPool, skill: Skill
) -> None:
    workload, before, after = MUTATIONS[mutation]
    solution = altered(portable(skill, "flash-attn"), KERNEL, (before, after))
    judgement = run(pool, task(skill), solution, named(skill, workload))
    assert len(judgement.judged) == 1
    assert_wrong(judgement)


def test_the_portable_kernel_is_right_where_the_mutations_are_wrong(
    pool: LocalPool, skill: Skill
) -> None:
    workloads = named(skill, *{workload for workload, _, _ in MUTATIONS.values()})
    judgement = run(pool, task(skill), portable(skill, "flash-attn"), workloads)
    assert statuses(judgement) == {"PASSED"}, judgement


def test_the_template_with_its_defaults_is_right(pool: LocalPool, skill: Skill) -> None:
    workloads = named(skill, "more-queries-than-keys", "head-dim-8")
    judgement = run(pool, task(skill), filled(skill, "attention", {}), workloads)
    assert judgement.accepted, judgement


def test_the_template_caps_scores(pool: LocalPool, skill: Skill) -> None:
    capped = task(
        skill,
        (
            "(q @ k.transpose(1, 2)).to(wide) * scale",
            "20.0 * torch.tanh((q @ k.transpose(1, 2)).to(wide) * scale / 20.0)",
        ),
    )
    solution = filled(
        skill, "attention", {"score_modifier": "softcap", "softcap": 20.0, "block_m": 64}
    )
    judgement = run(pool, capped, solution, named(skill, "large-scores", "odd-lengths"))
    assert judgement.accepted, judgement


def test_the_template_slides_a_window(pool: LocalPool, skill: Skill) -> None:
    windowed = task(
        skill,
        (
            "key > row + (kv_len - q_len) if causal else None",
            "(key > row + kv_len - q_len) | (key <= row + kv_len - q_len - 128)",
        ),
    )
    solution = filled(
        skill, "attention", {"score_modifier": "window", "window": 128, "block_m": 64}
    )
    long = named(skill, "small-causal")[0].model_copy(
        update={
            "purpose": "edge",
            "axes": {
                "batch": 1, "q_heads": 1, "kv_heads": 1, "q_len": 180, "kv_len": 300, "head_dim": 32,
            },
        }
    )  # fmt: skip
    judgement = run(pool, windowed, solution, (long,))
    assert judgement.accepted, judgement
