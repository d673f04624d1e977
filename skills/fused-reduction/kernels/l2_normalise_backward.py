"""dx of each row: elementwise, 2 reductions, elementwise.

    squares = sumsq(x)
    product = sum(dy * x)
    dx = tl.where(tl.sqrt_rn(squares) > eps, dy - x * (product / squares), dy) / tl.maximum(tl.sqrt_rn(squares), eps)

dy, x are read once, 1 written: 3 * rows * cols elements of device memory. Rows wider than
WHOLE_COLS are read 2 times, from the second time on out of a cache.

Filled from the template `row_program` of the skill fused-reduction.
"""
# fmt: off

import torch
import triton
import triton.language as tl

WHOLE_COLS = 4096


def l2_normalise_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return dx.

    Args:
        dy, x: (rows, cols), rows at any stride; copied first where the elements of a row do not
            lie next to each other.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read several times.

    Raises:
        ValueError: shapes do not agree.
    """
    if dy.ndim != 2 or dy.shape[1] < 1:
        raise ValueError(f"dy is {tuple(dy.shape)}, not (rows, cols) with a column")
    rows, cols = dy.shape
    if x.shape != dy.shape:
        raise ValueError(f"x is {tuple(x.shape)}, dy is {tuple(dy.shape)}")
    dx = torch.empty((rows, cols), dtype=dy.dtype, device=dy.device)
    if cols > 1 and dy.stride(1) != 1:
        dy = dy.contiguous()
    if cols > 1 and x.stride(1) != 1:
        x = x.contiguous()
    whole = max(triton.next_power_of_2(cols), 16)
    most_warps = _most_warps(dy.device)
    if BLOCK is None:
        BLOCK = whole if whole <= WHOLE_COLS else min(whole // 2, 8192)
    if rows and cols > BLOCK:
        # 8 values of each input a thread
        _passes_kernel[(rows,)](
            dy, x, dx, dy.stride(0), x.stride(0), rows, cols, eps,
            BLOCK=BLOCK, WHOLE=cols % BLOCK == 0, num_warps=WARPS or max(1, min(most_warps, BLOCK // 256)),
        )
    elif rows:
        # 8 values of each input a thread
        if ROWS is None:
            ROWS = max(1, min(1024 // whole, 64))
        _rows_kernel[(triton.cdiv(rows, ROWS),)](
            dy, x, dx, dy.stride(0), x.stride(0), rows, cols, eps,
            ROWS=ROWS, BLOCK=whole, WHOLE=whole == cols, num_warps=WARPS or max(1, min(most_warps, ROWS * whole // 256)),
        )
    return dx


def _most_warps(device: torch.device) -> int:
    """Return how many warps have the 1024 threads that a program may have."""
    if device.type == "cpu":  # Triton's interpreter
        return 32
    return 1024 // torch.cuda.get_device_properties(device).warp_size


@triton.jit
def _rows_kernel(
    dy_ptr, x_ptr, dx_ptr, dy_row_stride, x_row_stride, rows, cols, eps,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    col = tl.arange(0, BLOCK)[None, :]
    # WHOLE makes the mask constant, and the compiler then drops it
    inside = (col < cols) | WHOLE
    # int64, because row * stride passes 2**31 on large inputs
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    mask = ((row < rows) | (ROWS == 1)) & inside
    dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0).to(tl.float32)
    # lanes past the row are no elements of it, whatever an expression makes of the 0 that they hold
    squares = tl.sum(tl.where(inside, x * x, 0.0), axis=1, keep_dims=True)
    product = tl.sum(tl.where(inside, dy * x, 0.0), axis=1, keep_dims=True)
    tl.store(dx_ptr + row * cols + col, (tl.where(tl.sqrt_rn(squares) > eps, dy - x * (product / squares), dy) / tl.maximum(tl.sqrt_rn(squares), eps)).to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _passes_kernel(
    dy_ptr, x_ptr, dx_ptr, dy_row_stride, x_row_stride, rows, cols, eps,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    dy_ptr += row * dy_row_stride
    x_ptr += row * x_row_stride
    dx_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    squares_parts = tl.full([BLOCK], 0.0, tl.float32)
    product_parts = tl.full([BLOCK], 0.0, tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        term = tl.where(mask, x * x, 0.0)
        squares_parts += term
        term = tl.where(mask, dy * x, 0.0)
        product_parts += term
    squares = tl.sum(squares_parts, axis=0)
    product = tl.sum(product_parts, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(dx_ptr + col, (tl.where(tl.sqrt_rn(squares) > eps, dy - x * (product / squares), dy) / tl.maximum(tl.sqrt_rn(squares), eps)).to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
