"""The judge accepts the RMS norm kernels and rejects copies that are wrong in one line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from jinja2 import Environment, StrictUndefined

from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.models import Solution, SourceFile
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.targets import find_target
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import solution_of, task_of

from .conftest import found_wrong

FORWARD, BACKWARD = "kernels/forward.py", "kernels/backward.py"
ROWS_KERNEL_RSTD = "rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)"

Mutation = tuple[str, str, str, str, str]
"""Definition, workload, file, what stands there, what it is replaced with."""

MUTATIONS: Mapping[str, Mutation] = {
    "masked lanes enter the sum": (
        "rms-norm", "odd-width", FORWARD,
        "x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)",
        "x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=1.0)",
    ),
    "eps lies outside the root": (
        "rms-norm", "large-eps", FORWARD, ROWS_KERNEL_RSTD,
        "rstd = 1.0 / (tl.sqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols) + eps)",
    ),
    "the mean is over the block": (
        "rms-norm", "odd-width", FORWARD, ROWS_KERNEL_RSTD,
        "rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / BLOCK + eps)",
    ),
    "squares are taken in half precision": (
        "rms-norm", "squares-overflow-half", FORWARD, ROWS_KERNEL_RSTD,
        "z = x.to(tl.float16)\n    rstd = tl.rsqrt(tl.sum(z * z, axis=1, keep_dims=True) / cols + eps)",
    ),
    "the stride of a row is its length": (
        "rms-norm", "padded-rows", FORWARD,
        "x = tl.load(x_ptr + row * x_row_stride + col,", "x = tl.load(x_ptr + row * cols + col,",
    ),
    "the last tile writes one row only": (
        "rms-norm", "narrow", FORWARD, "mask = ((row < rows) | (ROWS == 1)) & col_mask",
        "mask = ((row < rows - 1) | (ROWS == 1)) & col_mask",
    ),
    "dweight leaves out the last program": (
        "rms-norm-backward", "many-rows", "kernels/reduce.py",
        "mask = (program < programs)[:, None]", "mask = (program < programs - 1)[:, None]",
    ),
    "dweight is summed in bfloat16": (
        "rms-norm-backward", "many-rows", BACKWARD, "dweight += tl.sum(dy * xhat, axis=0)",
        "dweight += tl.sum(dy * xhat, axis=0)\n        dweight = dweight.to(tl.bfloat16).to(tl.float32)",
    ),
    "rows past the last divide by zero": (
        "rms-norm-backward", "tiny-values", BACKWARD,
        "rstd = tl.where((row < rows) | (ROWS == 1), rstd, 0.0)", "",
    ),
    "the mean of the products is left out": (
        "rms-norm-backward", "power-of-two", BACKWARD,
        "dx = rstd * (dy * weight - xhat * (products[:, None] * rstd / cols))",
        "dx = rstd * dy * weight",
    ),
    "the gradient of the sum is left out": (
        "add-rms-norm-backward", "power-of-two", BACKWARD,
        "dx += dsummed.to(tl.float32)", "dx += 0.0",
    ),
    "a wide row ends at its last whole chunk": (
        "rms-norm-backward", "wider-than-registers", "kernels/split.py",
        "for start in range(0, cols, BLOCK):", "for start in range(0, cols - BLOCK + 1, BLOCK):",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool() as workers:
        workers.warm("device", "interpret")
        yield workers


@pytest.fixture(scope="module")
def skill() -> Skill:
    return find_skill("rms-norm")


def portable(skill: Skill, definition: str) -> Solution:
    chosen = next(
        v for v in skill.manifest.variant if v.definition == definition and v.id == "portable"
    )
    return solution_of(skill, chosen)


def altered(solution: Solution, path: str, before: str, after: str) -> Solution:
    """Return the solution with a string of one file, which stands there once, replaced."""
    content = next(source.content for source in solution.sources if source.path == path)
    assert content.count(before) == 1, f"{before!r} is not in {path} exactly once"
    changed = SourceFile(path=path, content=content.replace(before, after))
    sources = tuple(changed if s.path == path else s for s in solution.sources)
    return solution.model_copy(update={"sources": sources})


def run(
    pool: LocalPool, skill: Skill, solution: Solution, *names: str, checks: bool = False
) -> Judgement:
    """Verify on the named workloads in the interpreter, and run the checks of validate.py if asked."""
    definition = skill.manifest.definition_named(solution.definition)
    workloads = tuple(
        w for w in skill.manifest.workload if w.definition == definition.name and w.name in names
    )
    assert len(workloads) == len(names)
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
    )
    return judge(request, pool, None)


@pytest.mark.parametrize("title", MUTATIONS)
def test_wrong_copies_are_rejected(pool: LocalPool, skill: Skill, title: str) -> None:
    definition, workload, path, before, after = MUTATIONS[title]
    solution = altered(portable(skill, definition), path, before, after)
    judgement = run(pool, skill, solution, workload)
    assert found_wrong(judgement), judgement.judged


def test_a_check_finds_the_norm_of_an_unrounded_sum(pool: LocalPool, skill: Skill) -> None:
    rounded = (
        "(x.to(tl.float32) + residual.to(tl.float32)).to(x_ptr.dtype.element_ty)\n        tl.store"
    )
    sum_ = "(x.to(tl.float32) + residual.to(tl.float32))\n        tl.store"
    solution = altered(portable(skill, "add-rms-norm"), FORWARD, rounded, sum_)
    judgement = run(pool, skill, solution, "odd-width", checks=True)
    failed = {check.name for check in judgement.checks if check.outcome == "failed"}
    assert failed == {"check_norm_is_of_the_rounded_sum"}


@pytest.mark.parametrize(
    "definition", ["rms-norm", "add-rms-norm", "rms-norm-backward", "add-rms-norm-backward"]
)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    names = ["power-of-two", "odd-width", "tiny-values", "padded-rows", "wider-than-registers"]
    if definition.endswith("backward"):
        names.append("many-rows")
    judgement = run(pool, skill, portable(skill, definition), *names)
    assert {item.evaluation.status for item in judgement.judged} == {"PASSED"}


@pytest.mark.parametrize("template_id", ["rows", "rows-after-add"])
@pytest.mark.parametrize("rows", [1, 4])
def test_filled_templates_are_accepted(
    pool: LocalPool, skill: Skill, template_id: str, rows: int
) -> None:
    template = next(t for t in skill.manifest.template if t.id == template_id)
    text = (skill.path / template.path).read_text()
    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    filled = environment.from_string(text).render({**template.defaults, "rows": rows})
    base = portable(skill, template.definition)
    spec = base.spec.model_copy(update={"entry_point": f"kernels/filled.py::{template.entry}"})
    source = SourceFile(path="kernels/filled.py", content=filled)
    solution = base.model_copy(update={"sources": (source,), "spec": spec})
    judgement = run(pool, skill, solution, "odd-width", "narrow", "power-of-two")
    assert {item.evaluation.status for item in judgement.judged} == {"PASSED"}
