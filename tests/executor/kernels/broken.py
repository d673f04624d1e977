"""Entries that must not compile, each for a reason of its own."""

import torch
import triton
import triton.language as tl


def wrong_shapes(x: torch.Tensor) -> torch.Tensor:
    wrong_shapes_kernel[(1,)](x, 64)
    return x


def unknown_name(x: torch.Tensor) -> torch.Tensor:
    unknown_name_kernel[(1,)](x, 64)
    return x


def wrong_type(x: torch.Tensor) -> torch.Tensor:
    wrong_type_kernel[(1,)](x, 64)
    return x


def refused(x: torch.Tensor) -> torch.Tensor:
    raise ValueError("x has too few columns")


def tall_grid(x: torch.Tensor) -> torch.Tensor:
    spilling_kernel[(1, 70000)](x, 64)
    return x


def crowded(x: torch.Tensor) -> torch.Tensor:
    spilling_kernel[(1,)](x, 64, num_warps=64)
    return x


def unknown_instruction(x: torch.Tensor) -> torch.Tensor:
    unknown_instruction_kernel[(1,)](x, 4096)
    return x


def reads_data(x: torch.Tensor) -> torch.Tensor:
    return x[: int(x[0, 0].item())]


def spilling(x: torch.Tensor) -> torch.Tensor:
    spilling_kernel[(1,)](x, 128, num_warps=1)
    return x


@triton.jit
def wrong_shapes_kernel(x_ptr, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index) + tl.arange(0, 2 * BLOCK)
    tl.store(x_ptr + index, x)


@triton.jit
def unknown_name_kernel(x_ptr, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    tl.store(x_ptr + index, undefined_value)  # noqa: F821


@triton.jit
def doubled_pointer(x_ptr):
    return x_ptr * 2


@triton.jit
def wrong_type_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(doubled_pointer(x_ptr) + tl.arange(0, BLOCK), 0.0)


@triton.jit
def unknown_instruction_kernel(x_ptr, BLOCK: tl.constexpr):
    index = tl.arange(0, BLOCK)
    x = tl.inline_asm_elementwise("bogus.f32 $0, $1;", "=r,r", [index], tl.int32, True, 1)
    tl.store(x_ptr + index, x.to(tl.float32))


@triton.jit
def spilling_kernel(x_ptr, BLOCK: tl.constexpr):
    row = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row[:, None] * BLOCK + row[None, :])
    # the whole tile is alive in one warp: 512 values a thread
    tl.store(x_ptr + row[:, None] * BLOCK + row[None, :], tl.exp(x - tl.sum(x, 1)[:, None]))
