"""The judge rejects every kernel of the first three skills that is wrong in one place; the wrong ones are made by machine.

A sample runs by default. `KERNEL_SKILLS_MUTANTS=N pytest tests/skills/test_mutants.py` takes every N-th; all of them take
half an hour on two cores.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.models import Scalar, Solution, SourceFile, Workload
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.targets import find_target
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import solution_of, task_of

from .conftest import assert_wrong, portable, statuses, verdicts
from .equivalent_mutants import EQUIVALENT, UNSEEN
from .mutants import Mutant, mutants

SKILLS = ("flash-attn", "matmul", "rms-norm")
STEP = int(os.environ.get("KERNEL_SKILLS_MUTANTS", "50"))
CONFIGS: Mapping[str, tuple[str, Mapping[str, Scalar]]] = {
    "flash-attn": ("small-full", {"HEAD_GROUP": 3}),
    "matmul": ("aligned", {"BLOCK_M": 16, "BLOCK_N": 32, "GROUP_M": 2}),
}
"""A definition's workload and tuning parameters that make several groups of tiles, the last one smaller."""


@dataclass(frozen=True)
class Case:
    """A mutant of one file of a skill, and the definitions whose portable variant uses the file."""

    skill: Skill
    path: str
    definitions: tuple[str, ...]
    mutant: Mutant

    @property
    def key(self) -> str:
        return f"{self.skill.manifest.name}/{self.path}: {self.mutant.name}"


def cases() -> list[Case]:
    """All mutants of the portable variants, but those that compute the same."""
    found = []
    for name in SKILLS:
        skill = find_skill(name)
        users: dict[str, list[str]] = {}
        texts: dict[str, str] = {}
        for variant in skill.manifest.variant:
            if variant.id == "portable":
                for source in solution_of(skill, variant).sources:
                    users.setdefault(source.path, []).append(variant.definition)
                    texts[source.path] = source.content
        for path, text in texts.items():
            found += [Case(skill, path, tuple(users[path]), one) for one in mutants(text)]
    return found


def rejected(pool: LocalPool, case: Case) -> bool:
    """Whether a definition's smoke and edge workloads show that the mutant is wrong."""
    for definition in case.definitions:
        wrong = changed(portable(case.skill, definition), case)
        if not verdicts(pool, case.skill, wrong).accepted:
            return True
        if definition in CONFIGS:
            workload, config = CONFIGS[definition]
            if not verdicts(pool, case.skill, wrong, workload, config=config).accepted:
                return True
    return False


def changed(solution: Solution, case: Case) -> Solution:
    """The solution with the mutant's file."""
    file = SourceFile(path=case.path, content=case.mutant.source)
    sources = tuple(file if one.path == case.path else one for one in solution.sources)
    return solution.model_copy(update={"sources": sources})


CASES = cases()
SAMPLE = [case for case in CASES[::STEP] if case.key not in EQUIVALENT | UNSEEN]


def test_what_is_excused_is_still_there() -> None:
    assert EQUIVALENT.keys() | UNSEEN.keys() <= {case.key for case in CASES}


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.key)
def test_a_kernel_that_is_wrong_in_one_place_is_rejected(pool: LocalPool, case: Case) -> None:
    assert rejected(pool, case)


ALWAYS_WRONG = [
    case
    for case in CASES
    if case.path == "kernels/forward.py"
    and case.mutant.function == "_rows_kernel"
    and case.mutant.before in {"x * rstd * weight", "x * rstd", "x * x"}
    and case.mutant.operator in {"dropped-factor", "wrong-sign"}
]
"""Mutants of RMS norm that no shape hides."""


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.sampled_from(ALWAYS_WRONG), st.integers(1, 70), st.integers(2, 600))
def test_no_shape_hides_a_wrong_kernel_nor_spoils_a_right_one(
    pool: LocalPool, case: Case, rows: int, cols: int
) -> None:
    drawn = Workload(
        definition="rms-norm", name="drawn", purpose="edge", axes={"rows": rows, "cols": cols},
        dtypes={"T": "float32"},
    )  # fmt: skip
    task = task_of(case.skill, case.skill.manifest.definition_named("rms-norm"))
    sound = portable(case.skill, "rms-norm")
    for solution, right in ((sound, True), (changed(sound, case), False)):
        request = JudgeRequest(
            task=task, solution=solution, workloads=(drawn,), target=find_target("h100"), stages=("verify",),
        )  # fmt: skip
        judgement = judge(request, pool, None)
        if right:
            assert statuses(judgement) == {"PASSED"}
        else:
            assert_wrong(judgement)
