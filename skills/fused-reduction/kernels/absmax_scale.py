"""y, largest of each row: elementwise, 1 reduction, elementwise.

    absmax = max(tl.abs(x))
    y = x / tl.maximum(absmax, eps)
    largest = absmax

x are read once, 1 written: 2 * rows * cols elements of device memory. Rows wider than
WHOLE_COLS are read 2 times, from the second time on out of a cache.

Filled from the template `row_program` of the skill fused-reduction.
"""
# fmt: off

import torch
import triton
import triton.language as tl

WHOLE_COLS = 2048


def absmax_scale(
    x: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return y, largest.

    Args:
        x: (rows, cols), rows at any stride; copied first where the elements of a row do not
            lie next to each other.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read several times.

    Raises:
        ValueError: shapes do not agree.
    """
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    largest = torch.empty((rows,), dtype=torch.float32, device=x.device)
    if cols > 1 and x.stride(1) != 1:
        x = x.contiguous()
    whole = max(triton.next_power_of_2(cols), 16)
    most_warps = _most_warps(x.device)
    if BLOCK is None:
        BLOCK = whole if whole <= WHOLE_COLS else min(whole // 2, 8192)
    if rows and cols > BLOCK:
        # 8 values of each input a thread
        _passes_kernel[(rows,)](
            x, y, largest, x.stride(0), rows, cols, eps,
            BLOCK=BLOCK, WHOLE=cols % BLOCK == 0, num_warps=WARPS or max(1, min(most_warps, BLOCK // 256)),
        )
    elif rows:
        # 16 values of each input a thread
        if ROWS is None:
            ROWS = max(1, min(1024 // whole, 64))
        _rows_kernel[(triton.cdiv(rows, ROWS),)](
            x, y, largest, x.stride(0), rows, cols, eps,
            ROWS=ROWS, BLOCK=whole, WHOLE=whole == cols, num_warps=WARPS or max(1, min(most_warps, ROWS * whole // 512)),
        )
    return y, largest


def _most_warps(device: torch.device) -> int:
    """Return how many warps have the 1024 threads that a program may have."""
    if device.type == "cpu":  # Triton's interpreter
        return 32
    return 1024 // torch.cuda.get_device_properties(device).warp_size


@triton.jit
def _rows_kernel(
    x_ptr, y_ptr, largest_ptr, x_row_stride, rows, cols, eps,
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
    x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0).to(tl.float32)
    # lanes past the row are no elements of it, whatever an expression makes of the 0 that they hold
    absmax = tl.max(tl.where(inside, tl.abs(x), float("-inf")), axis=1, keep_dims=True)
    tl.store(y_ptr + row * cols + col, (x / tl.maximum(absmax, eps)).to(y_ptr.dtype.element_ty), mask=mask)
    tl.store(largest_ptr + row, absmax, mask=row < rows)


@triton.jit
def _passes_kernel(
    x_ptr, y_ptr, largest_ptr, x_row_stride, rows, cols, eps,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    absmax_parts = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
        term = tl.where(mask, tl.abs(x), float("-inf"))
        absmax_parts = tl.maximum(absmax_parts, term)
    absmax = tl.max(absmax_parts, axis=0)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        tl.store(y_ptr + col, (x / tl.maximum(absmax, eps)).to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
    tl.store(largest_ptr + row, absmax)
