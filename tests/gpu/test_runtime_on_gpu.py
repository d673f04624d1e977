"""What the runtime finds on a device alone: work beside the clock, torch beside the kernels, calls that do nothing."""

from __future__ import annotations

import pytest

from kernel_skills.executor.environment import Device
from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.lint import Policy
from kernel_skills.executor.models import (
    Definition,
    Solution,
    SolutionSpec,
    SourceFile,
    Task,
    TensorSpec,
    VarAxis,
    Workload,
)
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.trace import Evaluation, Failed, IncorrectNumerical, Passed

pytestmark = pytest.mark.gpu

VECTOR = TensorSpec(shape=("n",), dtype="float32")
DEFINITION = Definition(
    name="add", op_type="elementwise", axes={"n": VarAxis()}, inputs={"x": VECTOR, "y": VECTOR},
    outputs={"out": VECTOR}, reference="reference.py::add", flops="n", standard_baselines=("eager",),
)  # fmt: skip
REFERENCE = SourceFile(path="reference.py", content="def add(x, y):\n    return x + y\n")
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=mask) + tl.load(y_ptr + i, mask=mask), mask=mask)


def launch(x, y, out):
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


"""
RIGHT = "def add(x, y):\n    x, y = x.contiguous(), y.contiguous()\n    return launch(x, y, torch.empty_like(x))\n"
BESIDE = """
STREAM = []


def add(x, y):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    if not STREAM:
        STREAM.append(torch.cuda.Stream())
    torch.cuda.current_stream().synchronize() if len(STREAM) < 2 else None
    STREAM.append(None)
    with torch.cuda.stream(STREAM[0]):
        launch(x, y, out)
    return out
"""
TIRED = """
CALLS = []


def add(x, y):
    x, y = x.contiguous(), y.contiguous()
    CALLS.append(1)
    out = torch.empty_like(x)
    return launch(x, y, out) if len(CALLS) < 40 else out
"""
TORCH = "def add(x, y):\n    out = launch(x.contiguous(), y.contiguous(), torch.empty(x.shape, device=x.device))\n    return out + (x.sin() - x.sin())\n"
HIDDEN = """
def add(x, y):
    x, y = x.contiguous(), y.contiguous()
    with torch._C._DisableTorchDispatch():
        z = x.sin().sin().cos().sin()
    return launch(x, y, torch.empty_like(x))
"""

SMOKE = Workload(definition="add", name="odd", purpose="smoke", axes={"n": 1025})
LARGE = Workload(definition="add", name="large", purpose="bench", axes={"n": 1 << 26})
TINY = Workload(definition="add", name="tiny", purpose="bench", axes={"n": 1 << 12})


def judged(
    entry: str, pool: LocalPool, device: Device, *workloads: Workload, policy: Policy = "strict"
) -> list[Evaluation]:
    """Verify and measure a candidate that was not linted."""
    solution = Solution(
        name="candidate", definition="add",
        spec=SolutionSpec(target_hardware=("any",), entry_point="kernel.py::add"),
        sources=(SourceFile(path="kernel.py", content=KERNEL + entry),),
    )  # fmt: skip
    request = JudgeRequest(
        task=Task(definition=DEFINITION, sources=(REFERENCE,)), solution=solution,
        workloads=workloads, target=device.target, policy=policy, stages=("verify", "bench"),
    )  # fmt: skip
    return [item.evaluation for item in judge(request, pool, device).judged]


@pytest.mark.parametrize("workload", [LARGE, TINY], ids=["events", "graph"])
def test_the_two_clocks_agree_on_an_honest_kernel(
    workload: Workload, pool: LocalPool, device: Device
) -> None:
    for _ in range(3):
        (outcome,) = judged(RIGHT, pool, device, workload)
        assert isinstance(outcome, Passed), outcome.log
        assert outcome.performance is not None and outcome.torch_operators == {}


def test_work_on_another_stream_is_found(pool: LocalPool, device: Device) -> None:
    (outcome,) = judged(BESIDE, pool, device, LARGE)
    # its memory is reused by the next call while it still writes there, so its values are wrong, too
    assert isinstance(outcome, Failed | IncorrectNumerical), outcome
    assert outcome.rule in ("R-timer-ext", "R-roofline", "R-fresh"), outcome.log


def test_a_kernel_that_stops_working_once_it_is_timed_is_found(
    pool: LocalPool, device: Device
) -> None:
    (outcome,) = judged(TIRED, pool, device, LARGE)
    assert isinstance(outcome, Failed | IncorrectNumerical)
    assert outcome.rule in ("R-fresh", "R-roofline", "R-timer-ext", "R-share"), outcome.log


def test_torch_beside_the_kernel_is_rejected_under_strict_and_measured_under_assist(
    pool: LocalPool, device: Device
) -> None:
    (refused,) = judged(TORCH, pool, device, SMOKE)
    assert isinstance(refused, Failed) and refused.rule == "R-dispatch"
    _, measured = judged(TORCH, pool, device, SMOKE, LARGE, policy="assist")
    assert isinstance(measured, Passed), measured.log
    assert measured.torch_share is not None and measured.torch_share > 0.4
    assert set(measured.torch_operators) == {"aten::sin", "aten::sub", "aten::add"}


def test_torch_that_the_log_does_not_see_is_found_by_its_device_time(
    pool: LocalPool, device: Device
) -> None:
    (outcome,) = judged(HIDDEN, pool, device, LARGE)
    assert isinstance(outcome, Failed) and outcome.rule == "R-share", outcome.log
