"""Null candidates, inputs without influence, and the kinds of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_skills.executor.admission import describe_problem, refusal
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.models import SourceFile, Task, Workload
from kernel_skills.executor.problem import adapter_source, definition_of
from kernel_skills.executor.problem_adapter import run
from kernel_skills.executor.problem_kinds import KINDS
from kernel_skills.executor.problem_values import vary
from kernel_skills.executor.reference import Reference

from .conftest import task, workload


@pytest.fixture(autouse=True)
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker's folder: references write their sources to the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(body: str, rows: int = 8, cols: int = 16) -> str:
    source = f"import torch\n\ndef scale(x, *, factor):\n    return {body}\n"
    return refusal(Reference(task(reference=source)), workload(rows=rows, cols=cols), 3, "cpu")


@pytest.mark.parametrize(
    "body", ["x * factor", "torch.softmax(x, -1)", "x.cumsum(-1)", "x.abs() + 1"]
)
def test_a_task_that_tells_is_admitted(body: str) -> None:
    assert refused(body) == ""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("x * 0", "an output of zeros passes"),
        ("torch.relu(x - 100)", "an output of zeros passes"),
        ("torch.ones_like(x) * 3", "the mean everywhere passes"),
        ("torch.softmax(x, -1).sum(-1, keepdim=True).expand(x.shape) * 1.0", "the mean everywhere passes"),
        ("x + 0.0", "the input 'x' returned as it is passes"),
        ("torch.arange(x.numel(), dtype=x.dtype).view(x.shape)", "the output of other inputs passes"),
    ],
)  # fmt: skip
def test_a_task_that_nothing_solves_is_refused(body: str, reason: str) -> None:
    assert refused(body) == reason


def test_an_output_without_elements_says_nothing() -> None:
    assert refused("x * factor", rows=0) == ""


def test_a_reference_must_return_what_is_declared() -> None:
    assert "declared (8, 16)" in refused("x.sum()")


# --- problems ---------------------------------------------------------------------------------


def described(problem: str, form: str = "functions") -> dict[str, object]:
    sources = [
        SourceFile(path="problem.py", content=problem),
        SourceFile(path="adapter.py", content=adapter_source(form)),
    ]
    return describe_problem(sources, "adapter.py", "cpu")


def test_a_problem_is_described_by_running_it() -> None:
    found = described(
        "import torch\n\ndef reference(x, alpha, w):\n    return x @ w * alpha, x.argmax(-1)\n\n"
        "def make_inputs(seed):\n    return torch.randn(3, 4), 0.5, torch.randn(4, 5)\n"
    )
    assert found["order"] == ["x", "alpha", "w"]
    assert found["inputs"] == [
        {"name": "x", "shape": [3, 4], "dtype": "float32"},
        {"name": "w", "shape": [4, 5], "dtype": "float32"},
        {"name": "alpha", "value": 0.5},
    ]
    assert [item["dtype"] for item in found["outputs"]] == ["float32", "int64"]  # type: ignore[attr-defined]


def test_values_that_a_reference_cannot_take_are_left_out() -> None:
    found = described(
        "import torch\n\ndef reference(p):\n    assert (p <= 1).all(), 'a probability'\n    return p.log()\n\n"
        "def make_inputs(seed):\n    return (torch.rand(64) * 0.9 + 0.05,)\n"
    )
    assert set(found["impossible"]) == {"scaled", "shifted", "spiked", "redrawn"}  # type: ignore[call-overload]
    assert "a probability" in str(found["impossible"])


def test_float64_runs_through_a_reference_that_names_float32() -> None:
    problem = (
        "import torch\n\ndef reference(x):\n    y = x.to(torch.float32) + torch.full((4,), 1 / 3)\n"
        "    return y.float() / torch.tensor(3.0)\n\ndef make_inputs(seed):\n    return (torch.randn(4),)\n"
    )
    sources = [
        SourceFile(path="problem.py", content=problem),
        SourceFile(path="adapter.py", content=adapter_source("functions")),
    ]
    adapter = SourceTree(sources, Path("problem")).module("adapter.py").adapter
    x = torch.randn(4, dtype=torch.float64)
    assert torch.equal(run(adapter, (x,), {}), (x + 1 / 3) / 3)
    assert torch.get_default_dtype() is torch.float32


# --- kinds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_keeps_shape_and_dtype(kind: str) -> None:
    given: dict[str, Any] = {
        "x": torch.randn(4, 6), "h": torch.randn(7).half(), "i": torch.arange(5), "n": 3,
        "ones": torch.ones(2, 3), "empty": torch.empty(0, 4), "scalar": torch.tensor(2.0),
    }  # fmt: skip
    varied = vary(given, kind, 11, frozenset({"h"}))
    assert list(varied) == list(given)
    for name, value in given.items():
        if isinstance(value, torch.Tensor):
            assert varied[name].shape == value.shape
            assert varied[name].dtype == value.dtype
    assert torch.equal(varied["i"], given["i"])
    assert torch.equal(varied["h"], given["h"])


def test_strided_copies_hold_the_same_values_elsewhere() -> None:
    given = {"x": torch.randn(4, 6), "v": torch.randn(6)}
    varied = vary(given, "strided", 0, frozenset())
    assert torch.equal(varied["x"], given["x"])
    assert varied["x"].stride() == (22, 1)
    assert varied["v"].storage_offset() == 16


def test_redrawn_reaches_parameters_of_one_value() -> None:
    given = {"state.bias": torch.zeros(9), "state.weight": torch.randn(9)}
    varied = vary(given, "redrawn", 0, frozenset(given))
    assert not torch.equal(varied["state.bias"], given["state.bias"])
    assert torch.equal(varied["state.weight"], given["state.weight"])


# --- tasks in the style of public collections -------------------------------------------------

TELLING = {
    "square matmul": ("a @ b", "torch.randn(24, 24), torch.randn(24, 24)", "a, b"),
    "softmax of rows": ("torch.softmax(x, -1)", "torch.randn(8, 48),", "x"),
    "layer norm with a weight": (
        "torch.nn.functional.layer_norm(x, (32,), w, b)",
        "torch.randn(6, 32), torch.rand(32) + 0.5, torch.randn(32)", "x, w, b",
    ),
    "argmax of rows": ("x.argmax(-1)", "torch.randn(32, 16),", "x"),
    "mean squared error": ("((p - t) ** 2).mean()", "torch.randn(64), torch.randn(64)", "p, t"),
    "masked fill": ("x.masked_fill(m, 0.0)", "torch.randn(8, 16), torch.rand(8, 16) < 0.3", "x, m"),
}  # fmt: skip

BLIND = {
    "mean of many normals is nearly zero": (
        "x.half().mean(dim=(0, 1), dtype=torch.float32).half() * 1e-8", "torch.randn(64, 64),", "x",
        "an output of zeros passes",
    ),
    "a loss that is clamped away": (
        "torch.clamp(1 - p * t, min=0)", "torch.full((32,), 4.0) + torch.rand(32), torch.ones(32)", "p, t",
        "an output of zeros passes",
    ),
    "relu of a large negative bias": (
        "torch.relu(x @ w - 1000.0)", "torch.randn(8, 16), torch.randn(16, 8)", "x, w",
        "an output of zeros passes",
    ),
    "softmax over a dimension of one": (
        "torch.softmax(x.sum(-1, keepdim=True), -1)", "torch.randn(16, 24),", "x",
        "the mean everywhere passes",
    ),
    "a row that is subtracted from its own mean": (
        "x.mean(-1, keepdim=True) - x.mean(-1, keepdim=True)", "torch.randn(16, 24),", "x",
        "an output of zeros passes",
    ),
    "a tiny variance on a large offset": (
        "x * 1e-12 + 1000.0", "torch.randn(64, 8),", "x", "the mean everywhere passes",
    ),
    "dropout that drops nothing": (
        "torch.nn.functional.dropout(x, 0.0)", "torch.randn(8, 16),", "x",
        "the input 'x' returned as it is passes",
    ),
    "argmax where one column always wins": (
        "(x + 100.0 * (torch.arange(8) == 3)).argmax(-1)", "torch.randn(16, 8),", "x",
        "one value everywhere passes",
    ),
    "a bias that a normalisation takes away": (
        "torch.nn.functional.layer_norm(x + b, (16,))", "torch.randn(8, 16), torch.randn(8, 1)", "x, b",
        "the input 'b' has no influence on the output",
    ),
}  # fmt: skip


def admitted(reference: str, inputs: str, names: str) -> str:
    """Return why a problem in our own form is refused, or nothing."""
    problem = (
        f"import torch\n\n\ndef reference({names}):\n    return {reference}\n\n\n"
        f"def make_inputs(seed):\n    return ({inputs})\n"
    )
    sources = (
        SourceFile(path="problem.py", content=problem),
        SourceFile(path="adapter.py", content=adapter_source("functions")),
    )
    found = describe_problem(sources, "adapter.py", "cpu")
    definition = definition_of("task", "functions", found)
    drawn = Workload(
        definition="task", name="as-given", purpose="smoke", axes={}, generator="adapter.py::make_inputs_as_given",
    )  # fmt: skip
    return refusal(Reference(Task(definition=definition, sources=sources)), drawn, 5, "cpu")


@pytest.mark.parametrize("task", TELLING)
def test_a_well_posed_task_is_admitted(task: str) -> None:
    assert admitted(*TELLING[task]) == ""


@pytest.mark.parametrize("task", BLIND)
def test_a_task_that_something_trivial_solves_is_refused(task: str) -> None:
    *words, reason = BLIND[task]
    assert admitted(*words) == reason


def test_a_permuted_input_of_any_size_still_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_skills.executor.admission._MOST_PERMUTED", 4)
    assert admitted(*TELLING["square matmul"]) == ""
