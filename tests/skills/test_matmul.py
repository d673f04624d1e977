"""The judge accepts the matmul kernels and rejects copies that are wrong in one line."""

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

from .conftest import found_wrong

PORTABLE, HOPPER = "kernels/portable.py", "kernels/hopper.py"
IN_HALVES: Mapping[str, Scalar] = {
    "BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 64, "STAGES": 3, "WARPS": 4, "SUBTILES": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool() as workers:
        workers.warm("device", "interpret")
        yield workers


@pytest.fixture(scope="module")
def skill() -> Skill:
    return find_skill("matmul")


def changed(
    skill: Skill, definition: str, variant: str, path: str = "", *changes: tuple[str, str]
) -> Solution:
    """Return a variant with strings of one file replaced, each where it stands once."""
    chosen = next(
        v for v in skill.manifest.variant if v.id == variant and v.definition == definition
    )
    solution = solution_of(skill, chosen)
    sources = tuple(replaced(s, *changes) if s.path == path else s for s in solution.sources)
    return solution.model_copy(update={"sources": sources})


def replaced(source: SourceFile, *changes: tuple[str, str]) -> SourceFile:
    content = source.content
    for before, after in changes:
        assert content.count(before) == 1, f"{before!r} is not in {source.path} exactly once"
        content = content.replace(before, after)
    return SourceFile(path=source.path, content=content)


def run(
    pool: LocalPool,
    skill: Skill,
    solution: Solution,
    names: tuple[str, ...],
    config: Mapping[str, Scalar] = {},
    checks: bool = False,
) -> Judgement:
    """Verify on the named workloads in the interpreter, and run the checks of validate.py if asked."""
    definition = skill.manifest.definition_named(solution.definition)
    workloads = tuple(
        w for w in skill.manifest.workload if w.definition == definition.name and w.name in names
    )
    assert len(workloads) == len(names)
    task = task_of(skill, definition)
    if not checks:
        task = task.model_copy(
            update={"sources": tuple(s for s in task.sources if s.path != "validate.py")}
        )
    request = JudgeRequest(
        task=task,
        solution=solution,
        workloads=workloads,
        target=find_target("h100"),
        stages=("lint", "verify"),
        config=config,
        seed=11,
    )
    return judge(request, pool, None)


SLICE = "acc = tl.dot(a, b, acc, input_precision=PRECISION)"
MUTATIONS: Mapping[str, tuple[str, tuple[tuple[str, str], ...]]] = {
    "the tail of k is not masked": (
        "padded-rows",
        (
            ("mask=depth[None, :] < k - offset", "mask=depth[None, :] <= k - offset"),
            ("mask=depth[:, None] < k - offset", "mask=depth[:, None] <= k - offset"),
        ),
    ),
    "the last slice of k is left out": (
        "odd",
        (("range(0, k, BLOCK_K)", "range(0, k - BLOCK_K + 1, BLOCK_K)"),),
    ),
    "tiles of a group that is cut at the edge are skipped": (
        "aligned",
        (("group_rows = min(tiles_m - first_m, GROUP_M)", "group_rows = GROUP_M"),),
    ),
    "the row of a tile is off by one": (
        "transposed-a",
        (("a_rows = (row % m)", "a_rows = ((row + 1) % m)"),),
    ),
    "sums are kept in float16": (
        "long-sum",
        (
            (
                SLICE,
                "acc = (acc + tl.dot(a, b, input_precision=PRECISION)).to(tl.float16).to(tl.float32)",
            ),
        ),
    ),
    "operands are rounded as for the matrix units": (
        "full-precision",
        (
            (
                SLICE,
                "acc = tl.dot(a.to(tl.float16), b.to(tl.float16), acc, input_precision=PRECISION)",
            ),
        ),
    ),
    "an empty sum is not written": (
        "nothing-to-sum",
        (("if 0 in out.shape:", "if 0 in out.shape or k == 0:"),),
    ),
}


@pytest.mark.parametrize("title", MUTATIONS)
def test_a_product_that_is_subtly_wrong_is_rejected(
    pool: LocalPool, skill: Skill, title: str
) -> None:
    workload, changes = MUTATIONS[title]
    solution = changed(skill, "matmul", "portable", PORTABLE, *changes)
    judgement = run(pool, skill, solution, (workload,))
    assert found_wrong(judgement), f"{title}: {judgement.judged[0].evaluation.status}"


def test_tiles_written_in_halves_are_right(pool: LocalPool, skill: Skill) -> None:
    judgement = run(pool, skill, changed(skill, "matmul", "hopper"), ("transposed-b",), IN_HALVES)
    assert judgement.accepted, judgement


def test_a_second_half_written_over_the_first_is_rejected(pool: LocalPool, skill: Skill) -> None:
    solution = changed(skill, "matmul", "hopper", HOPPER, ("            col += HALF_N\n", ""))
    judgement = run(pool, skill, solution, ("transposed-b",), IN_HALVES)
    assert found_wrong(judgement), judgement.judged[0].evaluation.status


def test_a_wrong_activation_is_rejected(pool: LocalPool, skill: Skill) -> None:
    change = ("x / (1.0 + tl.exp(-x))", "x / (1.0 + tl.exp2(-x))")
    judgement = run(
        pool, skill, changed(skill, "linear", "portable", PORTABLE, change), ("odd-silu",)
    )
    assert found_wrong(judgement), judgement.judged[0].evaluation.status


def test_an_approximate_gelu_and_a_swallowed_nan_fail_the_checks(
    pool: LocalPool, skill: Skill
) -> None:
    """The tanh form of GELU differs from that by erf by 5e-4: float32 shows it, 16 bits do not."""
    solution = changed(
        skill,
        "linear",
        "portable",
        PORTABLE,
        ("tl.erf(x * 0.7071067811865476)",
         "(2.0 / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x))) - 1.0)"),
        ("x = tl.where(x < 0, 0.0, x)", "x = tl.where(x > 0, x, 0.0)"),
    )  # fmt: skip
    judgement = run(pool, skill, solution, ("odd-silu",), checks=True)
    failed = {check.name for check in judgement.checks if check.outcome == "failed"}
    assert failed == {"check_bias_alone_is_activated", "check_activations_keep_not_a_number"}


def test_the_filled_template_is_right(pool: LocalPool, skill: Skill) -> None:
    template = skill.manifest.template[0]
    text = (skill.path / template.path).read_text(encoding="utf-8")
    small = {**template.defaults, "block_m": 16, "block_n": 64, "block_k": 32}
    content = Environment(undefined=StrictUndefined).from_string(text).render(small)
    solution = changed(skill, "linear", "portable")
    solution = solution.model_copy(
        update={
            "sources": (SourceFile(path="kernels/filled.py", content=content),),
            "spec": solution.spec.model_copy(
                update={"entry_point": f"kernels/filled.py::{template.entry}"}
            ),
        }
    )
    judgement = run(pool, skill, solution, ("relu", "plain-padded"))
    assert judgement.accepted, judgement
