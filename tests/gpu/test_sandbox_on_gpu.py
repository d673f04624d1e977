"""What only a device can show of the sandbox: that the driver works in it, and that faults do not spread."""

from __future__ import annotations

import pytest

from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.environment import Device
from kernel_skills.executor.models import Solution, SolutionSpec, SourceFile
from kernel_skills.executor.pool import LocalPool

from .test_judge_on_gpu import ILLEGAL, RIGHT, run, status

pytestmark = pytest.mark.gpu


def answer_of(pool: LocalPool, device: Device, code: str) -> str:
    """Run code in a candidate worker that has started the driver; return how it failed, or nothing."""
    worker = pool.start("candidate")
    candidate = Solution(
        name="candidate", definition="add",
        spec=SolutionSpec(target_hardware=("any",), entry_point="kernel.py::add"),
        sources=(SourceFile(path="kernel.py", content=code + "\ndef add(): pass\n"),),
    )  # fmt: skip
    message = {
        "op": "load", "device": device.place, "solution": candidate.model_dump(mode="json"),
    }  # fmt: skip
    try:
        answer = worker.request(message, timeout_s=60)
        return str(answer.get("log", ""))
    except ChannelError as error:
        return f"{error}{worker.end_described(0)}"
    finally:
        worker.end(0)


def test_a_worker_computes_in_the_sandbox(pool: LocalPool, device: Device) -> None:
    pool.examine(device.place, device.identity)
    assert pool.sandbox.seccomp


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import torch; torch.ones(1 << 20).pin_memory().cuda()", id="pinned memory"),
        pytest.param("import torch; torch.randn(64, 64, device='cuda') @ torch.randn(64, 64, device='cuda')", id="cuBLAS"),
        pytest.param("import torch; torch.cuda.Stream(); torch.cuda.synchronize()", id="streams"),
        pytest.param("import subprocess; subprocess.run(['nvidia-smi', '-L'], check=True)", id="nvidia-smi"),
    ],
)  # fmt: skip
def test_what_a_kernel_needs_of_the_driver_works(
    pool: LocalPool, device: Device, code: str
) -> None:
    assert answer_of(pool, device, code) == ""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import os; os.listdir(os.path.expanduser('~root'))", id="home"),
        pytest.param("import socket; socket.socket()", id="network"),
        pytest.param("open('/tmp/out', 'w')", id="file"),
    ],
)
def test_the_machine_is_out_of_reach_beside_the_driver(
    pool: LocalPool, device: Device, code: str
) -> None:
    assert "PermissionError" in answer_of(pool, device, code)


def test_an_illegal_address_never_reaches_the_next_candidate(
    pool: LocalPool, device: Device
) -> None:
    for _ in range(5):
        assert status(run(ILLEGAL, pool, device, timeout_s=20)) == "RUNTIME_ERROR"
        assert run(RIGHT, pool, device).accepted
