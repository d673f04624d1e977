"""What the tests of operator skills share: warm workers, wrong copies, filled templates, a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from jinja2 import Environment, StrictUndefined

from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.models import Scalar, Solution, SourceFile
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.targets import find_target
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import solution_of, task_of


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool() as workers:
        workers.warm("device", "interpret")
        yield workers


def portable(skill: Skill, definition: str) -> Solution:
    """Return the portable variant of a definition."""
    variants = skill.manifest.variant
    return solution_of(
        skill, next(v for v in variants if (v.definition, v.id) == (definition, "portable"))
    )


def altered(solution: Solution, path: str, before: str, after: str) -> Solution:
    """Return the solution with a string of one file, which stands there once, replaced."""
    content = next(source.content for source in solution.sources if source.path == path)
    assert content.count(before) == 1, f"{before!r} is not in {path} exactly once"
    changed = SourceFile(path=path, content=content.replace(before, after))
    sources = tuple(changed if s.path == path else s for s in solution.sources)
    return solution.model_copy(update={"sources": sources})


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
) -> Judgement:
    """Lint, and verify on the named workloads in the interpreter.

    Args:
        names: of workloads of the solution's definition; none for all smoke and edge workloads.
        checks: also run the checks of validate.py, in bfloat16.
        config: tuning parameters, the same for each workload.
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
        dtypes=("bfloat16",),
        seed=11,
        config=config or {},
    )
    return judge(request, pool, None)


def found_wrong(judgement: Judgement) -> bool:
    """Whether every workload was rejected for its values or for where it read and wrote.

    Which of the two comes first may depend on what lies beside a tensor.
    """
    return all(
        evaluation.status == "INCORRECT_NUMERICAL"
        or (evaluation.status == "RUNTIME_ERROR" and evaluation.rule == "R-sanitizer")
        for evaluation in (item.evaluation for item in judgement.judged)
    )


def statuses(judgement: Judgement) -> set[str]:
    """Return the statuses of all workloads."""
    return {item.evaluation.status for item in judgement.judged}
