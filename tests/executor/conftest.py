"""One small operator, `scale-rows`, right in Triton and wrong in every way that a test asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernel_skills.executor.judge import JudgeRequest, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.models import (
    Definition,
    Solution,
    SolutionSpec,
    SourceFile,
    Task,
    Workload,
)
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.targets import find_target

REFERENCE = "def scale(x, *, factor):\n    return x * factor\n"

KERNEL = """\
import torch
import triton
import triton.language as tl


def scale(x, *, factor=2.0):
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    if y.numel():
        block = triton.next_power_of_2(cols)
        scale_kernel[(rows,)](x, y, x.stride(0), x.stride(1), cols, factor, BLOCK=block)
    return y


@triton.jit
def scale_kernel(x_ptr, y_ptr, row_stride, col_stride, cols, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    x = tl.load(x_ptr + row * row_stride + col * col_stride, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * cols + col, (x * factor).to(y_ptr.dtype.element_ty), mask=mask)
"""

JudgeKernel = Callable[..., Judgement]


def changed(old: str, new: str) -> str:
    """Return the kernel with one piece of it replaced."""
    assert KERNEL.count(old) == 1, old
    return KERNEL.replace(old, new)


def definition(**fields: Any) -> Definition:
    return Definition.model_validate(
        {
            "name": "scale-rows",
            "op_type": "scale",
            "dtypes": {"T": ["float32", "bfloat16"]},
            "axes": {"rows": {"type": "var"}, "cols": {"type": "var"}},
            "inputs": {
                "x": {"shape": ["rows", "cols"], "dtype": "T"},
                "factor": {"dtype": "float32", "default": 3.0},
            },
            "outputs": {"y": {"shape": ["rows", "cols"], "dtype": "T"}},
            "reference": "reference.py::scale",
            "flops": "rows * cols",
            **fields,
        }
    )


def workload(name: str = "tiny", rows: int = 3, cols: int = 5, **fields: Any) -> Workload:
    return Workload.model_validate(
        {
            "definition": "scale-rows",
            "name": name,
            "purpose": "smoke",
            "axes": {"rows": rows, "cols": cols},
            **fields,
        }
    )


def solution(content: str = KERNEL, entry: str = "kernel.py::scale") -> Solution:
    return Solution(
        name="candidate",
        definition="scale-rows",
        spec=SolutionSpec(target_hardware=("sm_90",), entry_point=entry),
        sources=(SourceFile(path="kernel.py", content=content),),
    )


def task(contract: Definition | None = None, **files: str) -> Task:
    """Return the Task; `files` are further sources by stem."""
    sources = {"reference": REFERENCE, **files}
    return Task(
        definition=contract or definition(),
        sources=tuple(
            SourceFile(path=f"{name}.py", content=text) for name, text in sources.items()
        ),
    )


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    """One pool for all tests: importing torch in its two processes takes seconds."""
    with LocalPool(jobs=2) as pool:
        pool.warm("device", "interpret")
        yield pool


@pytest.fixture
def judge_kernel(pool: LocalPool) -> JudgeKernel:
    """Judge a kernel's source in the interpreter."""

    def run(
        content: str = KERNEL,
        *workloads: Workload,
        stages: tuple[str, ...] = ("verify",),
        entry: str = "kernel.py::scale",
        contract: Definition | None = None,
        files: dict[str, str] | None = None,
        **fields: Any,
    ) -> Judgement:
        request = JudgeRequest(
            task=task(contract, **(files or {})),
            solution=solution(content, entry),
            workloads=workloads or (workload(),),
            target=find_target("h100"),
            stages=stages,  # type: ignore[arg-type]
            **fields,
        )
        return judge(request, pool, None)

    return run
