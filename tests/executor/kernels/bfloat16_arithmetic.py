"""Run bfloat16 arithmetic in Triton's repaired interpreter and print what differs from PyTorch, as JSON.

A process of its own, since TRITON_INTERPRET is read when Triton is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from kernel_skills.executor.interpreter import repair_interpreter

SIZE = 64
SPECIAL = (0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 3.3895e38, 1e-40, 0.1)


@triton.jit
def binary_kernel(a_ptr, b_ptr, y_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b = tl.load(a_ptr + i), tl.load(b_ptr + i)
    if OP == "add":
        y = a + b
    elif OP == "sub":
        y = a - b
    elif OP == "mul":
        y = a * b
    elif OP == "div":
        y = a / b
    elif OP == "neg":
        y = -a
    elif OP == "abs":
        y = tl.abs(a)
    elif OP == "maximum":
        y = tl.maximum(a, b)
    elif OP == "where":
        y = tl.where(a > b, a, b * 2)
    elif OP == "less":
        y = (a < b).to(tl.bfloat16)
    elif OP == "exp":
        y = tl.exp(a.to(tl.float32)).to(tl.bfloat16)
    elif OP == "to_float16":
        y = a.to(tl.float16).to(tl.bfloat16)
    elif OP == "to_int":
        y = a.to(tl.int32).to(tl.bfloat16)
    tl.store(y_ptr + i, y)


@triton.jit
def reduce_kernel(x_ptr, y_ptr, OP: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + i[None, :])
    if OP == "sum":
        y = tl.sum(x, axis=1)
    elif OP == "max":
        y = tl.max(x, axis=1)
    elif OP == "min":
        y = tl.min(x, axis=1)
    elif OP == "cumsum":
        y = tl.sum(tl.where(i[None, :] == N - 1, tl.cumsum(x, axis=1), 0.0), axis=1)
    elif OP == "argmax":
        y = tl.argmax(x, axis=1)
    elif OP == "scalar":
        y = tl.sum(tl.sum(x, axis=1), axis=0) + tl.zeros((N,), tl.float32)
    tl.store(y_ptr + i, y.to(tl.float32))


@triton.jit
def dot_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(y_ptr + at, tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at)))


@triton.jit
def narrow_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    mask = i < n
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask).to(tl.bfloat16), mask=mask)


ELEMENTWISE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: (a.float() / b.float()).bfloat16(),
    "neg": lambda a, b: -a,
    "abs": lambda a, b: a.abs(),
    "maximum": lambda a, b: torch.maximum(a, b),
    "where": lambda a, b: torch.where(a > b, a, b * 2),
    "less": lambda a, b: (a < b).bfloat16(),
    "exp": lambda a, b: torch.exp(a.float()).bfloat16(),
    "to_float16": lambda a, b: a.half().bfloat16(),
    "to_int": lambda a, b: a.int().bfloat16(),
}


def ties() -> torch.Tensor:
    """Return float32 values half-way between two bfloat16 ones, and their neighbours on either side."""
    middle = torch.randint(0x3F00, 0x4100, (256,), dtype=torch.int32) * 65536 + 0x8000
    bits = torch.cat([middle, middle + 1, middle - 1])
    # the last: a NaN whose payload lies in the bits that are dropped
    special = torch.tensor([0x7F800000, -0x00800000, 0x7F7FFFFF, 0x7F800001, 1], dtype=torch.int32)
    return torch.cat([bits, special]).view(torch.float32)


def main() -> None:
    repair_interpreter()
    torch.manual_seed(0)
    wrong: list[str] = []

    def expect(name: str, out: torch.Tensor, reference: torch.Tensor, **bounds: Any) -> None:
        try:
            torch.testing.assert_close(
                out, reference, equal_nan=True, **(bounds or {"rtol": 0, "atol": 0})
            )
        except AssertionError as error:
            wrong.append(f"{name}: {error}")

    a, b = (torch.randn(SIZE).bfloat16() for _ in range(2))
    for name, reference in ELEMENTWISE.items():
        y = torch.empty_like(a)
        binary_kernel[(1,)](a, b, y, OP=name, N=SIZE)
        # one unit in the last place, where two libraries' exponentials may round apart
        bounds = {"rtol": 2**-7, "atol": 0.0} if name == "exp" else {}
        expect(name, y, reference(a, b), **bounds)

    special = torch.tensor(SPECIAL).bfloat16()
    first, second = torch.meshgrid(special, special, indexing="ij")
    grid = torch.zeros(2, 128, dtype=torch.bfloat16)
    grid[0, :100], grid[1, :100] = first.flatten(), second.flatten()
    for name in ("add", "sub", "mul", "where", "less"):
        y = torch.empty(128, dtype=torch.bfloat16)
        binary_kernel[(1,)](grid[0], grid[1], y, OP=name, N=128)
        expect(f"{name} of special values", y, ELEMENTWISE[name](grid[0], grid[1]))

    x, y = torch.randn(SIZE, SIZE).bfloat16(), torch.empty(SIZE)
    wide = x.float()
    reductions = {
        "sum": wide.sum(1).bfloat16().float(),
        "max": wide.amax(1),
        "min": wide.amin(1),
        "cumsum": wide.sum(1).bfloat16().float(),
        "argmax": wide.argmax(1).float(),
        "scalar": wide.sum(1).bfloat16().float().sum().bfloat16().float().expand(SIZE),
    }
    for name, reduced in reductions.items():
        reduce_kernel[(1,)](x, y, OP=name, N=SIZE)
        # one unit in the last place of bfloat16: a sum near a tie may round either way
        expect(name, y, reduced, rtol=2**-7, atol=1e-3)

    left, right = (torch.randn(SIZE, SIZE).bfloat16() for _ in range(2))
    out = torch.empty(SIZE, SIZE)
    dot_kernel[(1,)](left, right, out, N=SIZE)
    expect("dot", out, left.float() @ right.float(), rtol=1e-5, atol=1e-4)

    values = ties()
    narrowed = torch.empty(len(values), dtype=torch.bfloat16)
    narrow_kernel[(1,)](values, narrowed, len(values), BLOCK=1024)
    expect("rounding", narrowed, values.bfloat16())

    print(json.dumps({"wrong": wrong}))


if __name__ == "__main__":
    main()
