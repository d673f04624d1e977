"""Which operators of torch a candidate may call beside its kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernel_skills.executor.operator_log import (
    OperatorLog,
    compute_operators,
    moves_data,
    objection_to_operators,
)
from kernel_skills.executor.trace import Failed, Passed

from .conftest import JudgeKernel, changed, workload

X = torch.randn(4, 6)

FREE: dict[str, Callable[[], object]] = {
    "empty": lambda: torch.empty_like(X),
    "zeros": lambda: X.new_zeros(3),
    "a view": lambda: X.view(-1)[2:].unflatten(0, (2, 11)).transpose(0, 1),
    "reshape with a copy": lambda: X.t().reshape(-1),
    "contiguous": lambda: X.t().contiguous(),
    "pieces": lambda: (X.chunk(2), X.unbind(0), X.split(3, 1)),
    "numbers": lambda: torch.tensor([1.0, 2.0]),
    "on meta": lambda: torch.empty(3, device="meta") + 1,
}
COMPUTE: dict[str, Callable[[], object]] = {
    "matmul": lambda: X @ X.t(),
    "in place": lambda: X.clone().add_(1),
    "another dtype": lambda: X.half(),
    "copied to another dtype": lambda: torch.empty(4, 6, dtype=torch.float64).copy_(X),
    "a reduction": lambda: X.sum(),
    "a read": lambda: X[0, 0].item(),
    "joined": lambda: torch.cat([X, X]),
    "random numbers": lambda: torch.rand(3),
    "in a module": lambda: torch.nn.functional.linear(X, X),
    "by its overload": lambda: torch.ops.aten.mm.default(X, X.t()),
}


def logged(call: Callable[[], object]) -> dict[str, int]:
    log = OperatorLog()
    with log:
        call()
    return log.found()


@pytest.mark.parametrize("call", FREE.values(), ids=FREE.keys())
def test_views_allocations_and_copies_are_free(call: Callable[[], object]) -> None:
    assert objection_to_operators(logged(call), "strict") == ""


@pytest.mark.parametrize("call", COMPUTE.values(), ids=COMPUTE.keys())
def test_computing_is_not(call: Callable[[], object]) -> None:
    found = logged(call)
    assert compute_operators(found)
    assert "torch computes" in objection_to_operators(found, "strict")
    assert objection_to_operators(found, "assist") == ""


def test_copies_take_time_and_views_do_not() -> None:
    assert moves_data(logged(FREE["contiguous"]))
    assert moves_data(logged(FREE["zeros"]))
    assert not moves_data(logged(lambda: torch.empty(3).view(1, 3)))


# --- through the judge ------------------------------------------------------------------------

WITH_TORCH = changed("    return y\n", "    return y.add(0.0)\n")


def test_torch_beside_a_kernel_is_cheating_under_strict(judge_kernel: JudgeKernel) -> None:
    outcome = judge_kernel(WITH_TORCH).judged[0].evaluation
    assert isinstance(outcome, Failed)
    assert (outcome.status, outcome.rule) == ("CHEATING", "R-dispatch")
    assert "aten::add (1 times)" in outcome.log


def test_torch_beside_a_kernel_is_recorded_under_assist(judge_kernel: JudgeKernel) -> None:
    outcome = judge_kernel(WITH_TORCH, policy="assist").judged[0].evaluation
    assert isinstance(outcome, Passed)
    assert outcome.torch_operators == {"aten::add": 1}
    assert any("share of device time" in check for check in outcome.checks_not_run)


def test_what_the_interpreter_copies_is_not_the_candidates(judge_kernel: JudgeKernel) -> None:
    outcome = judge_kernel(policy="assist").judged[0].evaluation
    assert isinstance(outcome, Passed) and outcome.torch_operators == {}


STATE = {
    "torch.set_default_dtype(torch.float64)": "default dtype",
    "torch.manual_seed(0)": "random numbers",
    "torch.set_num_threads(3)": "torch's threads",
    "import time; time.perf_counter = time.time": "time.perf_counter",
    "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()": "threads left",
    "import subprocess; subprocess.Popen(['sleep', '9'])": "processes left",
    "import os; os.environ['X'] = 'y'": "environment",
    "import sys; sys.setprofile(lambda *a: None)": "profile hooks",
    "torch.Tensor.clone = torch.Tensor.contiguous": "torch.Tensor.clone",
}


@pytest.mark.parametrize(("statement", "words"), STATE.items(), ids=STATE.values())
def test_what_a_call_changes_in_its_process_is_cheating(
    judge_kernel: JudgeKernel, statement: str, words: str
) -> None:
    content = changed("    rows, cols = x.shape\n", f"    {statement}\n    rows, cols = x.shape\n")
    outcome = judge_kernel(content).judged[0].evaluation
    assert isinstance(outcome, Failed), outcome
    assert (outcome.status, outcome.rule) == ("CHEATING", "R-state"), outcome.log
    assert words in outcome.log


def test_what_an_import_changes_is_cheating_too(judge_kernel: JudgeKernel) -> None:
    content = "import builtins\nbuiltins.sorted = list\n" + WITH_TORCH
    outcome = judge_kernel(content).judged[0].evaluation
    assert isinstance(outcome, Failed)
    assert outcome.rule == "R-state" and "builtins.sorted" in outcome.log


def test_a_kernel_that_works_in_grad_mode_only_is_found(judge_kernel: JudgeKernel) -> None:
    content = changed("if y.numel():", "if y.numel() and torch.is_grad_enabled():")
    outcome = judge_kernel(content, workload()).judged[0].evaluation
    assert isinstance(outcome, Failed) and outcome.rule == "R-determinism"
