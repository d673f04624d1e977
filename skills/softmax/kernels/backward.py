"""Gradient of the softmax of each row, or of its logarithm, from the output that it gave.

    dx = y * (dy - sum(dy * y))          of the logarithm:  dx = dy - exp(y) * sum(dy)

dy and y are read once and dx is written once: 3 * rows * cols elements of device memory, about 4
FLOPs an element. A program holds ROWS whole rows in registers; a row too wide for that is read
twice, the second time out of a cache.
"""

import torch
import triton
import triton.language as tl

from .rows import adjacent, most_warps

# 16384 columns are 16 values of dy and 16 of y a thread at 32 warps; twice that spills
WHOLE_COLS = 16384


def softmax_backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return the gradient of `softmax` with respect to its input.

    Args:
        dy: (rows, cols), gradient of the output, in the dtype of `y`.
        y: (rows, cols) in float16, bfloat16 or float32, the output. Rows of both at any stride;
            copied first where the elements of a row do not lie next to each other.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice and ROWS
            counts for nothing.

    Returns:
        (rows, cols), contiguous, in the dtype of `y`; computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree.
    """
    return _launch(dy, y, False, ROWS, WARPS, BLOCK)


def log_softmax_backward(
    dy: torch.Tensor,
    y: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return the gradient of `log_softmax` with respect to its input.

    Args:
        dy: (rows, cols), gradient of the output; strides as in `softmax_backward`.
        y: (rows, cols), the output.
        ROWS, WARPS, BLOCK: as in `softmax_backward`.

    Returns:
        (rows, cols), contiguous, in the dtype of `y`.

    Raises:
        ValueError: shapes do not agree.
    """
    return _launch(dy, y, True, ROWS, WARPS, BLOCK)


def _launch(
    dy: torch.Tensor,
    y: torch.Tensor,
    log: bool,
    tile_rows: int | None,
    warps: int | None,
    block: int | None,
) -> torch.Tensor:
    if y.ndim != 2 or y.shape[1] < 1:
        raise ValueError(f"y is {tuple(y.shape)}, not (rows, cols) with a column")
    if dy.shape != y.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, y is {tuple(y.shape)}")
    rows, cols = y.shape
    dx = torch.empty((rows, cols), dtype=y.dtype, device=y.device)
    if rows == 0:
        return dx
    dy, y = adjacent(dy), adjacent(y)
    strides = (dy.stride(0), y.stride(0))
    whole = max(triton.next_power_of_2(cols), 16)
    most = most_warps(y.device)
    if block is None:
        block = whole if whole <= WHOLE_COLS else 8192
    if block < cols:
        warps = warps or max(1, min(most, block // 256))
        _twice_kernel[(rows,)](
            dy, y, dx, *strides, cols,
            LOG=log, BLOCK=block, WHOLE=cols % block == 0, num_warps=warps,
        )  # fmt: skip
        return dx
    if tile_rows is None:
        tile_rows = max(1, min(1024 // whole, 64))
    # 8 values of dy and of y a thread: as many bytes on their way as 16 of one tensor
    warps = warps or max(1, min(most, tile_rows * whole // 256))
    _rows_kernel[(triton.cdiv(rows, tile_rows),)](
        dy, y, dx, *strides, rows, cols,
        LOG=log, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols, num_warps=warps,
    )  # fmt: skip
    return dx


@triton.jit
def _rows_kernel(
    dy_ptr, y_ptr, dx_ptr, dy_row_stride, y_row_stride, rows, cols,
    LOG: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    # int64, because row * stride passes 2**31 on large inputs
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    # WHOLE makes the mask constant, and the compiler then drops it
    inside = ((row < rows) | (ROWS == 1)) & ((col < cols) | WHOLE)
    # 0 adds nothing to either sum
    dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + row * y_row_stride + col, mask=inside, other=0.0).to(tl.float32)
    total = tl.sum(dy if LOG else dy * y, axis=1, keep_dims=True)  # [ROWS, 1]
    dx = dy - tl.exp(y) * total if LOG else y * (dy - total)
    tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _twice_kernel(
    dy_ptr, y_ptr, dx_ptr, dy_row_stride, y_row_stride, cols,
    LOG: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_row_stride
    y_ptr += row * y_row_stride
    dx_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        inside = (col < cols) | WHOLE
        # kept for the second pass; 0 adds nothing to either sum
        dy = tl.load(dy_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last")
        dy = dy.to(tl.float32)
        if LOG:
            sums += dy
        else:
            y = tl.load(y_ptr + col, mask=inside, other=0.0, eviction_policy="evict_last")
            sums += dy * y.to(tl.float32)
    total = tl.sum(sums, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + lane
        inside = (col < cols) | WHOLE
        dy = tl.load(dy_ptr + col, mask=inside, other=0.0, eviction_policy="evict_first")
        y = tl.load(y_ptr + col, mask=inside, other=0.0, eviction_policy="evict_first")
        dy = dy.to(tl.float32)
        y = y.to(tl.float32)
        dx = dy - tl.exp(y) * total if LOG else y * (dy - total)
        tl.store(
            dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )
