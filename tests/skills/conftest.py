"""What the tests of operator skills share: warm workers, wrong copies, filled templates, a verdict.

A test module that asks for `skill` names it in `SKILL`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from jinja2 import Environment, StrictUndefined

from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.models import Scalar, Solution, SourceFile
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.targets import find_target
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import solution_of, task_of


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool() as workers:
        workers.warm("device", "interpret")
        yield workers


@pytest.fixture(scope="module")
def skill(request: pytest.FixtureRequest) -> Skill:
    return find_skill(request.module.SKILL)


Mutation = tuple[str, str, str, str, str]
"""Definition, workload, file, what stands there, what it is replaced with."""


def portable(skill: Skill, definition: str) -> Solution:
    """Return the portable variant of a definition."""
    return variant(skill, definition, "portable")


def variant(skill: Skill, definition: str, name: str) -> Solution:
    """Return a variant of a definition."""
    variants = skill.manifest.variant
    return solution_of(
        skill, next(v for v in variants if (v.definition, v.id) == (definition, name))
    )


def altered(solution: Solution, path: str, *changes: tuple[str, str]) -> Solution:
    """Return the solution with strings of one file, each of which stands there once, replaced."""
    source = next(source for source in solution.sources if source.path == path)
    changed = replaced(source, *changes)
    sources = tuple(changed if s is source else s for s in solution.sources)
    return solution.model_copy(update={"sources": sources})


def replaced(source: SourceFile, *changes: tuple[str, str]) -> SourceFile:
    """Return a file with strings, each of which stands there once, replaced."""
    content = source.content
    for before, after in changes:
        assert content.count(before) == 1, f"{before!r} is not in {source.path} exactly once"
        content = content.replace(before, after)
    return SourceFile(path=source.path, content=content)


def filled(skill: Skill, template_id: str, parameters: Mapping[str, Scalar]) -> Solution:
    """Return a template, its defaults overridden, as a solution of its definition."""
    template = next(t for t in skill.manifest.template if t.id == template_id)
    text = (skill.path / template.path).read_text()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    content = environment.from_string(text).render({**template.defaults, **parameters})
    base = portable(skill, template.definition)
    spec = base.spec.model_copy(update={"entry_point": f"kernels/filled.py::{template.entry}"})
    source = SourceFile(path="kernels/filled.py", content=content)
    return base.model_copy(update={"sources": (source,), "spec": spec})


def verdicts(
    pool: LocalPool,
    skill: Skill,
    solution: Solution,
    *names: str,
    checks: bool = False,
    config: Mapping[str, Scalar] | None = None,
    dtype: str = "bfloat16",
) -> Judgement:
    """Lint, and verify on the named workloads in the interpreter.

    Args:
        names: of workloads of the solution's definition; none for all smoke and edge workloads.
        checks: also run the checks of validate.py.
        config: tuning parameters, the same for each workload.
        dtype: of the checks.
    """
    definition = skill.manifest.definition_named(solution.definition)
    workloads = tuple(
        w
        for w in skill.manifest.workload
        if w.definition == definition.name and (w.name in names if names else w.purpose != "bench")
    )
    assert len(workloads) == len(names) or not names
    task = task_of(skill, definition)
    if not checks:
        sources = tuple(source for source in task.sources if source.path != "validate.py")
        task = task.model_copy(update={"sources": sources})
    request = JudgeRequest(
        task=task,
        solution=solution,
        workloads=workloads,
        target=find_target("h100"),
        stages=("lint", "verify"),
        dtypes=(dtype,),
        seed=11,
        config=config or {},
    )
    return judge(request, pool, None)


def statuses(judgement: Judgement) -> set[str]:
    """Return the statuses of all workloads."""
    return {item.evaluation.status for item in judgement.judged}


def assert_wrong(judgement: Judgement, *, leaves_its_tensors: bool = False) -> None:
    """Check that every workload is rejected for its values.

    Args:
        leaves_its_tensors: the kernel reads or writes where it must not, so that the sanitizer may come first; it does
            unless another tensor of the launch lies there.
    """
    for evaluation in (item.evaluation for item in judgement.judged):
        outside = evaluation.status == "RUNTIME_ERROR" and evaluation.rule == "R-sanitizer"
        by_values = evaluation.status == "INCORRECT_NUMERICAL"
        assert by_values or (leaves_its_tensors and outside), evaluation


def assert_mutation_is_rejected(
    pool: LocalPool, skill: Skill, mutation: Mutation, *, leaves_its_tensors: bool = False
) -> None:
    """Check that the portable variant, wrong in one place, is rejected; see `assert_wrong`."""
    definition, workload, path, before, after = mutation
    solution = altered(portable(skill, definition), path, (before, after))
    judgement = verdicts(pool, skill, solution, workload)
    assert_wrong(judgement, leaves_its_tensors=leaves_its_tensors)


def assert_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    """Check that the portable variant passes every smoke and edge workload and every check."""
    judgement = verdicts(pool, skill, portable(skill, definition), checks=True)
    assert statuses(judgement) == {"PASSED"}
    assert {check.outcome for check in judgement.checks} == {"passed"}
