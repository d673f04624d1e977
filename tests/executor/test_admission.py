"""Null candidates, inputs without influence, and the kinds of values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_skills.executor.admission import describe_problem, refusal
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.models import SourceFile
from kernel_skills.executor.problem import adapter_source
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
