"""PyTorch's own samples as the test of a kernel: contracts, coverage, refusals, and what may not pass."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_skills.executor.call_tree import NotPassable, decode, encode
from kernel_skills.executor.errors import NotFound, Unsatisfiable
from kernel_skills.executor.opinfo import (
    OpInfoVerdict,
    declared_dtypes,
    judge_samples,
    require_samples,
)
from kernel_skills.executor.problem_batch import Judges, JudgesOptions
from kernel_skills.executor.targets import find_target

pytest.importorskip("expecttest")
OPTIONS = JudgesOptions(timeout_s=60)

HEAD = """\
import torch
import triton
import triton.language as tl

DTYPES = ("float32",)


"""

GELU = (
    HEAD
    + """\
@triton.jit
def gelu_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    out = 0.5 * v * (1 + tl.erf(v * 0.7071067811865476))
    tl.store(y + at, out.to(y.dtype.element_ty), mask=at < n)


def candidate(input, *, approximate="none"):
    if approximate != "none":
        raise ValueError("only the exact form")
    x = input.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        gelu_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""
)

ADD = (
    HEAD
    + """\
@triton.jit
def add_kernel(x, y, z, n, alpha, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n) + alpha * tl.load(y + at, mask=at < n)
    tl.store(z + at, v, mask=at < n)


def add(input, other, *, alpha=1):
    shape = torch.broadcast_shapes(input.shape, other.shape)
    x, y = input.expand(shape).contiguous(), other.expand(shape).contiguous()
    z = torch.empty(shape, dtype=x.dtype, device=x.device)
    if z.numel():
        add_kernel[(triton.cdiv(z.numel(), 64),)](x, y, z, z.numel(), alpha, BLOCK=64)
    return z
"""
)


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with Judges(find_target("h100"), OPTIONS) as made:
        yield made


@pytest.fixture
def judged(judges: Judges, tmp_path: Path) -> Any:
    def run(op: str, source: str, *dtypes: str) -> OpInfoVerdict:
        (tmp_path / "own.py").write_text(source)
        return judge_samples(judges, op, tmp_path / "own.py", dtypes, OPTIONS)

    return run


def test_what_is_outside_the_contract_is_counted_apart(judged: Any) -> None:
    verdict = judged("nn.functional.gelu", GELU)
    (coverage,) = verdict.coverage
    assert verdict.accepted, verdict.log
    assert (coverage.dtype, coverage.failed, coverage.not_run) == ("float32", 0, 0)
    assert coverage.passed == coverage.refused == coverage.samples // 2
    assert verdict.refusals == {"ValueError: only the exact form": coverage.refused}
    assert verdict.level == "verified-cpu"
    assert [kernel.arch for kernel in verdict.figures.kernels] == ["sm_90"]
    assert verdict.figures.comparisons == coverage.passed
    assert "speed: samples are too small to measure" in verdict.checks_not_run


def test_broadcast_0d_strided_and_keyword_samples_are_run(judged: Any) -> None:
    verdict = judged("torch.add", ADD)
    assert verdict.accepted, verdict.log
    assert verdict.coverage[0].passed == verdict.coverage[0].samples
    definitions = [item.workload for item in verdict.workloads]
    calls = [str(workload.inputs["call"].value) for workload in definitions]
    assert any("alpha" in call for call in calls)
    assert {workload.name.split("-")[2] for workload in definitions} == {"given", "strided"}


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        ("1 + tl.erf", "1.001 + tl.erf", "INCORRECT_NUMERICAL"),
        ("input.contiguous()", "input", "INCORRECT_NUMERICAL"),
        ('raise ValueError("only the exact form")', 'raise TypeError("no")', "RUNTIME_ERROR"),
    ],
)
def test_a_wrong_kernel_is_rejected(judged: Any, old: str, new: str, outcome: str) -> None:
    assert GELU.count(old) == 1
    verdict = judged("F.gelu", GELU.replace(old, new))
    assert (verdict.verdict, verdict.outcome) == ("rejected", outcome)


def test_refusing_everything_passes_nothing(judged: Any) -> None:
    verdict = judged("F.gelu", GELU.replace('approximate != "none"', "True"))
    assert (verdict.verdict, verdict.outcome) == ("rejected", "RUNTIME_ERROR")
    assert verdict.log.startswith("float32: no sample that proves anything passes")
    assert verdict.coverage[0].refused == verdict.coverage[0].samples


def test_each_dtype_must_pass_somewhere(judged: Any) -> None:
    source = GELU.replace(
        "    x = input", '    if input.dtype == torch.float16:\n        raise ValueError("no half")\n    x = input'
    )  # fmt: skip
    verdict = judged("F.gelu", source, "float32", "float16")
    assert not verdict.accepted
    assert verdict.log.startswith("float16: ")
    assert [one.telling > 0 for one in verdict.coverage] == [True, False]


def test_lint_comes_first(judged: Any) -> None:
    verdict = judged(
        "F.gelu", "import torch\n\n\ndef candidate(x):\n    return torch.nn.functional.gelu(x)\n"
    )
    assert verdict.outcome == "LINT_REJECTED"
    assert verdict.findings


@pytest.mark.parametrize(
    ("op", "dtypes", "text"),
    [
        ("nn.functional.gelo", (), "did you mean nn.functional.gelu"),
        ("softmax", ("int32",), "no dtype of softmax named 'int32'"),
    ],
)
def test_unknown_names_get_close_ones(judged: Any, op: str, dtypes: tuple[str, ...], text: str) -> None:  # fmt: skip
    with pytest.raises(NotFound, match=text):
        judged(op, GELU, *dtypes)


def test_an_operator_that_draws_numbers_is_refused(judged: Any) -> None:
    verdict = judged("nn.functional.dropout", GELU)
    assert verdict.outcome == "TASK_REFUSED"
    assert "draws random numbers" in verdict.log


def test_a_missing_package_is_named_with_the_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Unsatisfiable, match=r"pip install 'kernel-skills\[opinfo\]'"):
        require_samples()


@pytest.mark.parametrize(
    ("text", "dtypes"),
    [
        ('DTYPES = ("float16", "bfloat16")', ("float16", "bfloat16")),
        ("DTYPES = [torch.float32]", ("float32",)),
        ("OTHER = 1", ()),
        ("def f(:", ()),
    ],
)
def test_dtypes_are_declared_in_the_file(text: str, dtypes: tuple[str, ...]) -> None:
    assert declared_dtypes(text) == dtypes


# --- calls as JSON ----------------------------------------------------------------------------


def test_a_call_comes_back_as_it_was() -> None:
    x, y = torch.randn(3), torch.ones(2, dtype=torch.int32)
    arguments = (x, [y, (1, None)], slice(0, None, 2), ..., float("inf"), "sum", True)
    keywords = {"dtype": torch.float16, "memory_format": torch.channels_last, "other": {"x": x}}
    tensors, text = encode(arguments, keywords)
    assert list(tensors) == ["x0", "x1", "x2"]
    back, named = decode(text, tensors)
    assert back[0] is x and back[1][0] is y and named["other"]["x"] is x
    assert back[1][1] == (1, None)
    assert back[2:] == [slice(0, None, 2), ..., float("inf"), "sum", True]
    assert (named["dtype"], named["memory_format"]) == (torch.float16, torch.channels_last)


@pytest.mark.parametrize(
    "value", [1j, len, torch.Generator(), torch.eye(2).to_sparse(), torch.ones(1) * 1j]
)
def test_what_has_no_form_is_not_passed(value: Any) -> None:
    with pytest.raises(NotPassable):
        encode((value,), {})
