"""GELU and its gradient, element by element; `tails.py` says how it stays right far out.

The forward moves 2 elements of device memory for each of x, the backward 3. About 30 FLOPs for each: 8 a byte at 4 bytes an
element, and 132 multiprocessors of Hopper have 55 instructions for each element of 4 bytes that passes.
"""

import torch
import triton
import triton.language as tl

from .tails import gelu as gelu_of
from .tails import gelu_slope


def gelu(
    x: torch.Tensor, *, approximate: str, BLOCK: int | None = None, WARPS: int | None = None
) -> torch.Tensor:
    """Return x times the chance that a standard normal number lies below x.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32, rows at any stride; copied first where the
            elements of a row do not lie next to each other.
        approximate: `none` for that chance itself, `tanh` for its usual approximation.
        BLOCK: elements in one program, a power of two.
        WARPS: warps in one program.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`; computed in float32 and rounded once.

    Raises:
        ValueError: x is not two-dimensional, or the form is unknown.
    """
    _check(x, x, approximate)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, x, y, approximate == "tanh", False, BLOCK, WARPS)
    return y


def gelu_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    *,
    approximate: str,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> torch.Tensor:
    """Return the gradient of `gelu` with respect to x.

    Args:
        dy: (rows, cols), gradient of the output; strides as those of x, 0 too.
        x, approximate, BLOCK, WARPS: as in `gelu`.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`.

    Raises:
        ValueError: shapes do not agree, or the form is unknown.
    """
    _check(dy, x, approximate)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(dy, x, dx, approximate == "tanh", True, BLOCK, WARPS)
    return dx


def _check(dy: torch.Tensor, x: torch.Tensor, approximate: str) -> None:
    if x.ndim != 2 or dy.shape != x.shape:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols), or dy is {tuple(dy.shape)}")
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate is {approximate!r}; known: none, tanh")


def _adjacent(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[1] == 1 or x.stride(1) == 1 else x.contiguous()


def _launch(
    dy: torch.Tensor,
    x: torch.Tensor,
    out: torch.Tensor,
    tanh: bool,
    backward: bool,
    block: int | None,
    warps: int | None,
) -> None:
    if not out.numel():
        return
    dy, x = _adjacent(dy), _adjacent(x)
    rows, cols = x.shape
    if dy.is_contiguous() and x.is_contiguous():
        # one long row, so that no block is cut short by the end of a narrow one
        rows, cols = 1, rows * cols
    # 16 bytes of each tensor a thread, twice; 256 threads share what little a program costs
    block = block or max(16, min(256 * 32 // x.element_size(), triton.next_power_of_2(cols)))
    blocks = triton.cdiv(cols, block)
    _kernel[(rows * blocks,)](
        dy, x, out, dy.stride(0), x.stride(0), cols, blocks,
        TANH=tanh, BACKWARD=backward, BLOCK=block, WHOLE=cols % block == 0,
        num_warps=warps or max(1, min(8, block // 256)),
    )  # fmt: skip


@triton.jit
def _kernel(
    dy_ptr, x_ptr, out_ptr, dy_row_stride, x_row_stride, cols, blocks,
    TANH: tl.constexpr,
    BACKWARD: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    # int64, because row * stride and block * BLOCK pass 2**31 on large inputs
    row = (program // blocks).to(tl.int64)
    start = (program % blocks).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    # WHOLE makes the mask constant, and the compiler then drops it
    mask = (start + lane < cols) | WHOLE
    x = tl.load(x_ptr + row * x_row_stride + start + lane, mask=mask, other=0.0).to(tl.float32)
    if BACKWARD:
        dy = tl.load(dy_ptr + row * dy_row_stride + start + lane, mask=mask, other=0.0)
        out = dy.to(tl.float32) * gelu_slope(x, TANH)
    else:
        out = gelu_of(x, TANH)
    out = out.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + row * cols + start + lane, out, mask=mask)
