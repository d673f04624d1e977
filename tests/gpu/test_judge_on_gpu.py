"""What only a device can show: faults of a candidate cost the pool nothing, and measuring works."""

from __future__ import annotations

import pytest

from kernel_skills.executor.environment import Device
from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.judgement import Judgement
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
from kernel_skills.executor.trace import Passed

pytestmark = pytest.mark.gpu

VECTOR = TensorSpec(shape=("n",), dtype="float32")
DEFINITION = Definition(
    name="add",
    op_type="elementwise",
    axes={"n": VarAxis()},
    inputs={"x": VECTOR, "y": VECTOR},
    outputs={"out": VECTOR},
    reference="reference.py::add",
    flops="n",
)
REFERENCE = SourceFile(path="reference.py", content="def add(x, y):\n    return x + y\n")
HEAD = """
import torch
import triton
import triton.language as tl


def add(x, y):
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
    return out


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
"""
STORE = "    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=mask) + tl.load(y_ptr + i, mask=mask), mask=mask)\n"
RIGHT = HEAD + STORE
ILLEGAL = HEAD + "    tl.store(out_ptr + (i << 40), tl.load(x_ptr + i, mask=mask), mask=mask)\n"
ENDLESS = (
    HEAD + "    while tl.load(x_ptr + tl.min(i, 0), volatile=True) < 1e30:\n        pass\n" + STORE
)
GREEDY = RIGHT.replace("torch.empty_like(x)\n", "torch.empty(1 << 50, device=x.device)\n")
HALF = HEAD.replace("triton.cdiv(n, 1024)", "triton.cdiv(n, 2048)") + STORE

SMOKE = Workload(definition="add", name="odd", purpose="smoke", axes={"n": 1025})
BENCH = Workload(definition="add", name="large", purpose="bench", axes={"n": 1 << 26})
SMALL = Workload(definition="add", name="small", purpose="bench", axes={"n": 1 << 20})


def run(
    source: str, pool: LocalPool, device: Device, *workloads: Workload, timeout_s: float = 60
) -> Judgement:
    solution = Solution(
        name="candidate",
        definition="add",
        spec=SolutionSpec(target_hardware=("any",), entry_point="kernel.py::add"),
        sources=(SourceFile(path="kernel.py", content=source),),
    )
    request = JudgeRequest(
        task=Task(definition=DEFINITION, sources=(REFERENCE,)),
        solution=solution,
        workloads=workloads or (SMOKE,),
        target=device.target,
        timeout_s=timeout_s,
    )
    return judge(request, pool, device)


def status(judgement: Judgement) -> str:
    return judgement.judged[0].evaluation.status


def test_a_right_kernel_is_verified_on_the_device(pool: LocalPool, device: Device) -> None:
    judgement = run(RIGHT, pool, device)
    assert judgement.accepted
    outcome = judgement.judged[0].evaluation
    assert isinstance(outcome, Passed) and outcome.level == "verified-gpu"
    assert outcome.environment.arch == device.arch


@pytest.mark.parametrize(
    ("source", "expected"),
    [(ILLEGAL, "RUNTIME_ERROR"), (ENDLESS, "TIMEOUT"), (GREEDY, "RUNTIME_ERROR"), (HALF, "INCORRECT_NUMERICAL")],
    ids=["illegal address", "endless kernel", "out of memory", "half of the output never written"],
)  # fmt: skip
def test_a_fault_is_typed_and_the_next_result_is_right(
    source: str, expected: str, pool: LocalPool, device: Device
) -> None:
    assert status(run(source, pool, device, timeout_s=8)) == expected
    assert run(RIGHT, pool, device).accepted


def test_a_large_kernel_is_timed_by_events_beside_its_baselines(
    pool: LocalPool, device: Device
) -> None:
    outcome = run(RIGHT, pool, device, BENCH).judged[0].evaluation
    assert isinstance(outcome, Passed) and outcome.performance is not None
    measured = outcome.performance
    assert measured.method == "events" and measured.timing.samples >= 30
    assert {b.name for b in measured.baselines if b.ratio} == {"eager", "compile", "copy"}
    assert 50 < measured.percent_of_ceiling < 105
    assert outcome.environment.device_state is not None


def test_a_small_kernel_is_timed_by_graph_replay(pool: LocalPool, device: Device) -> None:
    outcome = run(RIGHT, pool, device, SMALL).judged[0].evaluation
    assert isinstance(outcome, Passed) and outcome.performance is not None
    assert outcome.performance.method == "graph"
    assert outcome.performance.latency_ms < 0.05
