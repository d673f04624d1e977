"""The row program template: what it fills is accepted, in other skills' places too, and it refuses what it must."""

from __future__ import annotations

import ast
from collections.abc import Mapping

import pytest
from jinja2 import StrictUndefined, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from kernel_skills.executor.models import Scalar, Solution, SourceFile
from kernel_skills.executor.pool import LocalPool
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.models import Skill

from .conftest import assert_accepted, assert_mutation_is_rejected, portable, statuses, verdicts

SKILL = "fused-reduction"

ALL = ("l2-normalise", "l2-normalise-backward", "absmax-scale")
FORWARD = "kernels/l2_normalise.py"
NOTHING: Mapping[str, Scalar] = {
    "entry": "filled", "columns": "", "row_inputs": "", "scalars": "", "row_outputs": "", "whole_cols": 1024,
}  # fmt: skip

ELSEWHERE: Mapping[str, tuple[str, str, Mapping[str, Scalar], tuple[str, ...]]] = {
    "softmax": (
        "softmax", "softmax",
        {"elements": "x", "reductions": "m = max(x); s = sum(tl.exp(x - m))", "outputs": "y = tl.exp(x - m) / s"},
        ("odd-width", "narrow", "overflow-without-the-maximum", "read-twice"),
    ),
    "gradient of the softmax": (
        "softmax", "softmax-backward",
        {"elements": "dy y", "reductions": "s = sum(dy * y)", "outputs": "dx = y * (dy - s)"},
        ("odd-width", "narrow", "padded-rows"),
    ),
    "RMS norm": (
        "rms-norm", "rms-norm",
        {"elements": "x", "columns": "weight", "scalars": "eps", "reductions": "m = mean(x * x)",
         "outputs": "y = x * tl.rsqrt(m + eps) * weight"},
        ("odd-width", "narrow", "transposed", "wide"),
    ),
    "layer norm": (
        "layer-norm", "layer-norm-plain",
        {"elements": "x", "scalars": "eps", "reductions": "mu = mean(x); var = mean((x - mu) * (x - mu))",
         "outputs": "y = (x - mu) / tl.sqrt_rn(var + eps)", "row_outputs": "mean = mu; rstd = 1.0 / tl.sqrt_rn(var + eps)"},
        ("odd-width", "narrow", "large-mean", "read-twice"),
    ),
    "gradient of the layer norm": (
        "layer-norm", "layer-norm-plain-backward",
        {"elements": "dy x", "row_inputs": "mean rstd",
         "reductions": "a = mean(dy); b = mean(dy * (x - mean) * rstd)",
         "outputs": "dx = rstd * (dy - a - (x - mean) * rstd * b)"},
        ("odd-width", "narrow", "expanded-gradient"),
    ),
}  # fmt: skip

REFUSED: Mapping[str, tuple[Mapping[str, Scalar], str]] = {
    "an unknown reduction": ({"reductions": "s = prod(x)"}, "'s = prod\\(x\\)' is no reduction"),
    "a reduction without its op": ({"reductions": "s = x"}, "is no reduction"),
    "a quotation mark": ({"outputs": 'y = x + "a"'}, "in the expression"),
    "a second statement": ({"outputs": "y = x\nimport os"}, "in the expression"),
    "an attribute": ({"outputs": "y = x.shape"}, "an attribute of something other than tl"),
    "a name of the kernel": ({"elements": "cols", "outputs": "y = cols"}, "no usable name: 'cols'"),
    "no identifier": ({"scalars": "1eps"}, "no usable name: '1eps'"),
    "a name given twice": ({"outputs": "s = x"}, "a name is given twice"),
    "an open parenthesis": ({"outputs": "y = (x"}, "no expression"),
    "no input": ({"elements": ""}, "no input of"),
    "no output": ({"outputs": ""}, "no output"),
    "an output without a name": ({"outputs": "x"}, "no expression"),
}


def rendered(skill: Skill, parameters: Mapping[str, Scalar]) -> str:
    text = (skill.path / "templates/row_program.py.jinja").read_text()
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.from_string(text).render(parameters)


def in_place_of(owner: Skill, definition: str, source: str) -> Solution:
    """Return a filled template as a solution of another skill's definition."""
    base = portable(owner, definition)
    spec = base.spec.model_copy(update={"entry_point": "kernels/filled.py::filled"})
    sources = (SourceFile(path="kernels/filled.py", content=source),)
    return base.model_copy(update={"sources": sources, "spec": spec})


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_the_template_with_its_defaults(skill: Skill, definition: str) -> None:
    template = next(t for t in skill.manifest.template if t.definition == definition)
    kernel = skill.path / "kernels" / f"{template.entry}.py"
    assert rendered(skill, template.defaults) == kernel.read_text()


@pytest.mark.parametrize("definition", ALL)
def test_the_kernels_are_accepted(pool: LocalPool, skill: Skill, definition: str) -> None:
    assert_accepted(pool, skill, definition)


@pytest.mark.parametrize("title", ELSEWHERE)
def test_the_template_can_stand_in_for_other_operators(
    pool: LocalPool, skill: Skill, title: str
) -> None:
    name, definition, parameters, workloads = ELSEWHERE[title]
    owner = find_skill(name)
    solution = in_place_of(owner, definition, rendered(skill, {**NOTHING, **parameters}))
    assert statuses(verdicts(pool, owner, solution, *workloads)) == {"PASSED"}


@pytest.mark.parametrize("whole_cols", [16, 65536])
def test_both_plans_of_a_filled_template_agree_with_the_reference(
    pool: LocalPool, skill: Skill, whole_cols: int
) -> None:
    name, definition, parameters, _ = ELSEWHERE["layer norm"]
    owner = find_skill(name)
    source = rendered(skill, {**NOTHING, **parameters, "whole_cols": whole_cols})
    solution = in_place_of(owner, definition, source)
    names = ("odd-width", "outliers", "one-column")
    assert statuses(verdicts(pool, owner, solution, *names)) == {"PASSED"}


@pytest.mark.parametrize("title", REFUSED)
def test_the_template_refuses(skill: Skill, title: str) -> None:
    changes, message = REFUSED[title]
    parameters = {"elements": "x", "reductions": "s = sum(x)", "outputs": "y = x - s"}
    with pytest.raises(UndefinedError, match=message):
        rendered(skill, {**NOTHING, **parameters, **changes})


def test_independent_reductions_share_a_pass(skill: Skill) -> None:
    template = next(t for t in skill.manifest.template if t.definition == "l2-normalise-backward")
    together = rendered(skill, template.defaults)
    dependent = rendered(
        skill,
        {**template.defaults, "reductions": "squares = sumsq(x); product = sum(dy * x * squares)"},
    )
    assert together.count("for start in") == 2
    assert dependent.count("for start in") == 3


def test_row_outputs_alone_need_no_last_pass(skill: Skill) -> None:
    parameters = {
        "elements": "x z",
        "reductions": "a = sumsq(x); b = sumsq(z); p = sum(x * z)",
        "outputs": "",
        "row_outputs": "cosine = p * tl.rsqrt(a * b)",
    }
    source = rendered(skill, {**NOTHING, **parameters})
    ast.parse(source)
    assert source.count("for start in") == 1 and "return cosine\n" in source


@pytest.mark.parametrize(
    ("workload", "before", "after"),
    [
        ("odd-width", "tl.sum(tl.where(inside, x * x, 0.0), axis=1, keep_dims=True)",
         "tl.sum(tl.where(inside, x * x, 1.0), axis=1, keep_dims=True)"),
        ("large-eps", "(x / tl.maximum(tl.sqrt_rn(squares), eps)).to(y_ptr.dtype.element_ty), mask=mask)\n\n",
         "(x / (tl.sqrt_rn(squares) + eps)).to(y_ptr.dtype.element_ty), mask=mask)\n\n"),
        ("read-again", "squares_parts += term", "squares_parts = term"),
        ("padded-rows", "x_ptr + row * x_row_stride + col,", "x_ptr + row * cols + col,"),
    ],
)  # fmt: skip
def test_wrong_copies_are_rejected(
    pool: LocalPool, skill: Skill, workload: str, before: str, after: str
) -> None:
    assert_mutation_is_rejected(pool, skill, ("l2-normalise", workload, FORWARD, before, after))
