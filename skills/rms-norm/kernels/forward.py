"""RMS norm of each row, alone or fused with the residual addition before it.

    y = x * rsqrt(mean(x^2) + eps) * weight

x is read once and y written once: 2 * rows * cols elements of device memory, and about 4
FLOPs for each. With the residual, x and residual are read, the sum and y are written: 4 *
rows * cols elements in place of the 5 that an addition and a norm move.

Two plans. A program holds ROWS whole rows in registers; or it reads one row twice, the second
time out of the first-level cache. The second needs few registers, so more programs share a
multiprocessor, and the loads of one run under the sums of another: it wins from 4096 columns.
With the residual there is twice as much to read for each sum, and whole rows win up to where
they spill.
"""

import torch
import triton
import triton.language as tl

# 16384 x 4096: 67.6 us read twice, 68.6 us whole; 4096 x 32768: 129.6 and 145.5 us (H200)
WHOLE_COLS = 2048
# 32768 columns are 32 values a thread at 32 warps; twice that spills
WHOLE_COLS_ADD = 32768


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return each row of `x` divided by its root mean square, times `weight`.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32, rows at any stride; copied first where
            the elements of a row do not lie next to each other.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice and ROWS
            counts for nothing.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`; computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree.
    """
    _check(x, weight)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    x = _adjacent(x)
    _launch((x, x, weight, y, y), eps, False, ROWS, WARPS, BLOCK)
    return y


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMS norm of `x + residual`, and that sum.

    The norm is taken of the sum as it was rounded to the dtype of `x`, so that the pair equals
    an addition followed by `rms_norm`.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32; strides as in `rms_norm`.
        residual: like `x` in shape and dtype; strides as in `rms_norm`.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        ROWS, WARPS, BLOCK: as in `rms_norm`.

    Returns:
        y and summed, both (rows, cols), contiguous, in the dtype of `x`.

    Raises:
        ValueError: shapes or dtypes do not agree.
    """
    _check(x, weight)
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError(
            f"residual is {tuple(residual.shape)} {residual.dtype}, x is {tuple(x.shape)} {x.dtype}"
        )
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    summed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch((_adjacent(x), _adjacent(residual), weight, y, summed), eps, True, ROWS, WARPS, BLOCK)
    return y, summed


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    if weight.shape != (x.shape[1],) or not weight.is_contiguous():
        raise ValueError(f"weight is {tuple(weight.shape)}, not a contiguous ({x.shape[1]},)")


def _adjacent(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[1] == 1 or x.stride(1) == 1 else x.contiguous()


def _most_warps(device: torch.device) -> int:
    """Return how many warps have the 1024 threads that a program may have."""
    if device.type == "cpu":  # Triton's interpreter
        return 32
    return 1024 // torch.cuda.get_device_properties(device).warp_size


def _launch(
    tensors: tuple[torch.Tensor, ...],
    eps: float,
    add: bool,
    tile_rows: int | None,
    warps: int | None,
    block: int | None,
) -> None:
    x, residual, _, _, _ = tensors
    rows, cols = x.shape
    if rows == 0:
        return
    whole = max(triton.next_power_of_2(cols), 16)
    most_warps = _most_warps(x.device)
    strides = (x.stride(0), residual.stride(0))
    if block is None:
        # read twice, 8192 columns at once: 130 us in place of 138 us with 16384 at 4096 x 32768 (H200)
        block = whole if whole <= (WHOLE_COLS_ADD if add else WHOLE_COLS) else min(whole // 2, 8192)
    if block < cols:
        # rows of programs that share a multiprocessor then fill 128 KB of its 256 KB of cache
        warps = warps or max(1, min(most_warps, whole * x.element_size() // 2048))
        _twice_kernel[(rows,)](
            *tensors, *strides, cols, eps,
            ADD=add, BLOCK=block, WHOLE=cols % block == 0, num_warps=warps,
        )  # fmt: skip
        return
    if tile_rows is None:
        tile_rows = max(1, min(1024 // whole, 64))
    if warps is None:
        warps = max(1, min(most_warps, tile_rows * whole // (256 if add else 512)))
    _rows_kernel[(triton.cdiv(rows, tile_rows),)](
        *tensors, *strides, rows, cols, eps,
        ADD=add, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols, num_warps=warps,
    )  # fmt: skip


@triton.jit
def _rows_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, summed_ptr,
    x_row_stride, residual_row_stride, rows, cols, eps,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    # WHOLE makes the mask constant, and the compiler then drops it
    col_mask = (col < cols) | WHOLE
    # int64, because row * stride passes 2**31 on large inputs
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    mask = ((row < rows) | (ROWS == 1)) & col_mask
    # 0 adds nothing to the sum of squares
    x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
    if ADD:
        residual_at = residual_ptr + row * residual_row_stride + col
        residual = tl.load(residual_at, mask=mask, other=0.0)
        # rounded here, because the norm is of the sum that the caller gets
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x_ptr.dtype.element_ty)
        tl.store(summed_ptr + row * cols + col, x, mask=mask)
    weight = tl.load(weight_ptr + col, mask=col_mask, other=0.0).to(tl.float32)
    x = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
    y = (x * rstd * weight).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + row * cols + col, y, mask=mask)


@triton.jit
def _twice_kernel(
    x_ptr, residual_ptr, weight_ptr, y_ptr, summed_ptr,
    x_row_stride, residual_row_stride, cols, eps,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    residual_ptr += row * residual_row_stride
    y_ptr += row * cols
    summed_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        # kept for the second pass: without the three policies 135.3 us in place of 130.1 us at
        # 4096 x 32768 (H200)
        x = _summed(x_ptr, residual_ptr, col, mask, ADD, "evict_last")
        if ADD:
            tl.store(summed_ptr + col, x, mask=mask)
        x = x.to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        # added again rather than read back: a store is not ordered before another thread's load
        x = _summed(x_ptr, residual_ptr, col, mask, ADD, "evict_first").to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        y = (x * rstd * weight.to(tl.float32)).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + col, y, mask=mask, eviction_policy="evict_first")


@triton.jit
def _summed(x_ptr, residual_ptr, col, mask, ADD: tl.constexpr, POLICY: tl.constexpr):
    # 0 adds nothing to the sum of squares
    x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy=POLICY)
    if ADD:
        residual = tl.load(residual_ptr + col, mask=mask, other=0.0, eviction_policy=POLICY)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x_ptr.dtype.element_ty)
    return x
