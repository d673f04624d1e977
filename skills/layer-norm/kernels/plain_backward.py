"""Gradient of the layer norm without weight and bias.

    dx = rstd * (dy - mean(dy) - xhat * mean(dy * xhat))          xhat = (x - mean) * rstd

dy and x are read once and dx is written once: 3 * rows * cols elements of device memory, about 9
FLOPs an element. Nothing is summed down the rows, so no program outlives its rows. A program holds
ROWS whole rows in registers; a row too wide for that is read twice, the second time out of a
cache.
"""

import torch
import triton
import triton.language as tl

from .rows import adjacent, most_warps

# 16384 columns are 16 values of dy and 16 of x a thread at 32 warps; twice that spills
WHOLE_COLS = 16384


def layer_norm_plain_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return the gradient of `layer_norm_plain` with respect to `x`.

    Args:
        dy: (rows, cols), gradient of y, in the dtype of `x`.
        x: (rows, cols) in float16, bfloat16 or float32. Rows of both at any stride, 0 too;
            copied first where the elements of a row do not lie next to each other.
        mean: (rows,), contiguous, in float32, as `layer_norm_plain` returned it.
        rstd: (rows,), contiguous, in float32, as `layer_norm_plain` returned it.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice and ROWS
            counts for nothing.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`; computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree.
    """
    _check(dy, x, mean, rstd)
    rows, cols = x.shape
    dx = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    if rows == 0:
        return dx
    dy, x = adjacent(dy), adjacent(x)
    tensors = (dy, x, mean, rstd, dx, dy.stride(0), x.stride(0))
    whole = max(triton.next_power_of_2(cols), 16)
    most = most_warps(x.device)
    block = BLOCK or (whole if whole <= WHOLE_COLS else 8192)
    if block < cols:
        warps = WARPS or max(1, min(most, block // 256))
        _twice_kernel[(rows,)](
            *tensors, cols, BLOCK=block, WHOLE=cols % block == 0, num_warps=warps
        )
        return dx
    tile_rows = ROWS or max(1, min(1024 // whole, 64))
    # 8 values of dy and of x a thread: as many bytes on their way as 16 of one tensor
    warps = WARPS or max(1, min(most, tile_rows * whole // 256))
    _rows_kernel[(triton.cdiv(rows, tile_rows),)](
        *tensors, rows, cols, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols, num_warps=warps
    )
    return dx


def _check(dy: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> None:
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, x is {tuple(x.shape)}")
    for name, vector in (("mean", mean), ("rstd", rstd)):
        if vector.shape != x.shape[:1] or not vector.is_contiguous():
            raise ValueError(f"{name} is {tuple(vector.shape)}, not a contiguous ({x.shape[0]},)")


@triton.jit
def _rows_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dx_ptr, dy_row_stride, x_row_stride, rows, cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    # int64, because row * stride passes 2**31 on large inputs
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    row_mask = (row < rows) | (ROWS == 1)
    # WHOLE makes the mask constant, and the compiler then drops it
    mask = row_mask & ((col < cols) | WHOLE)
    x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
    # 0 adds nothing to either sum, whatever xhat is in a masked lane
    dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0).to(tl.float32)
    mean = tl.load(mean_ptr + row, mask=row_mask, other=0.0)
    rstd = tl.load(rstd_ptr + row, mask=row_mask, other=0.0)
    xhat = (x.to(tl.float32) - mean) * rstd
    # joined, so that both sums cross the warps in one exchange
    plain, product = tl.split(tl.sum(tl.join(dy, dy * xhat), axis=1))
    dx = rstd * (dy - plain[:, None] / cols - xhat * (product[:, None] / cols))
    tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _twice_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, dx_ptr, dy_row_stride, x_row_stride, cols,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_row_stride
    x_ptr += row * x_row_stride
    dx_ptr += row * cols
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    lane = tl.arange(0, BLOCK)
    plain = tl.zeros([BLOCK], tl.float32)
    product = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        # kept for the second pass; where dy is 0, what xhat is counts for nothing
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        dy = dy.to(tl.float32)
        plain += dy
        product += dy * ((x.to(tl.float32) - mean) * rstd)
    row_plain = tl.sum(plain, axis=0) / cols
    row_product = tl.sum(product, axis=0) / cols
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first")
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first")
        xhat = (x.to(tl.float32) - mean) * rstd
        dx = rstd * (dy.to(tl.float32) - row_plain - xhat * row_product)
        tl.store(
            dx_ptr + col, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )
