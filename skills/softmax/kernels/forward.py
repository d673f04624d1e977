"""Softmax of each row, its logarithm, or the softmax over what a mask keeps.

    y = exp(x - max(x)) / sum(exp(x - max(x)))          or  x - max(x) - log(sum(...))

x is read once and y written once: 2 * rows * cols elements of device memory (and a byte for each
element of the mask), about 5 FLOPs an element, one of them an exponential.

Two plans. A program holds ROWS whole rows in registers. Or it reads one row twice, the second
time out of the first-level cache: each thread keeps the largest element of its share of the row
and the sum of exponentials relative to that, which are joined once a row. The second plan needs
few registers, so that the loads of one program run under the sums of another.
"""

import torch
import triton
import triton.language as tl

from .rows import adjacent, most_warps

# as for the RMS norm, which has the same traffic: 16384 x 4096 is quicker read twice (H200)
WHOLE_COLS = 2048


def softmax(
    x: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return the softmax of each row.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32, rows at any stride; copied first where
            the elements of a row do not lie next to each other.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice and ROWS
            counts for nothing.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`; computed in float32 and rounded once. NaN
        throughout a row that holds NaN or +inf, or nothing but -inf.

    Raises:
        ValueError: x is not (rows, cols) with a column.
    """
    return _launch(x, None, False, ROWS, WARPS, BLOCK)


def log_softmax(
    x: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return the logarithm of the softmax of each row.

    Args:
        x: (rows, cols), as in `softmax`.
        ROWS, WARPS, BLOCK: as in `softmax`.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`.

    Raises:
        ValueError: x is not (rows, cols) with a column.
    """
    return _launch(x, None, True, ROWS, WARPS, BLOCK)


def masked_softmax(
    x: torch.Tensor,
    mask: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> torch.Tensor:
    """Return the softmax of each row over the elements that `mask` keeps, and 0 elsewhere.

    Args:
        x: (rows, cols), as in `softmax`.
        mask: (rows, cols) of bool, true where an element takes part; rows at any stride, 0 too
            (one mask for all rows, expanded).
        ROWS, WARPS, BLOCK: as in `softmax`.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`. A row that keeps nothing, or nothing but
        -inf, is 0 throughout. What the mask leaves out has no influence, NaN included.

    Raises:
        ValueError: shapes do not agree, or the mask is not bool.
    """
    if mask.shape != x.shape or mask.dtype != torch.bool:
        raise ValueError(
            f"mask is {tuple(mask.shape)} {mask.dtype}, not {tuple(x.shape)} torch.bool"
        )
    return _launch(x, mask, False, ROWS, WARPS, BLOCK)


def _launch(
    x: torch.Tensor,
    mask: torch.Tensor | None,
    log: bool,
    tile_rows: int | None,
    warps: int | None,
    block: int | None,
) -> torch.Tensor:
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    if rows == 0:
        return y
    masked = mask is not None
    x = adjacent(x)
    kept = x if mask is None else adjacent(mask)
    strides = (x.stride(0), kept.stride(0))
    whole = max(triton.next_power_of_2(cols), 16)
    most = most_warps(x.device)
    if block is None:
        block = whole if whole <= WHOLE_COLS else min(whole // 2, 8192)
    if block < cols:
        # rows of programs that share a multiprocessor then fill 128 KB of its 256 KB of cache
        warps = warps or max(1, min(most, whole * x.element_size() // 2048))
        _twice_kernel[(rows,)](
            x, kept, y, *strides, cols,
            LOG=log, MASKED=masked, BLOCK=block, VECTOR=16 // x.element_size(),
            WHOLE=cols % block == 0, num_warps=warps,
        )  # fmt: skip
        return y
    if tile_rows is None:
        tile_rows = max(1, min(1024 // whole, 64))
    # 16 values a thread; with the mask they spill on some chips
    warps = warps or max(1, min(most, tile_rows * whole // (256 if masked else 512)))
    _rows_kernel[(triton.cdiv(rows, tile_rows),)](
        x, kept, y, *strides, rows, cols,
        LOG=log, MASKED=masked, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols, num_warps=warps,
    )  # fmt: skip
    return y


@triton.jit
def _rows_kernel(
    x_ptr, mask_ptr, y_ptr, x_row_stride, mask_row_stride, rows, cols,
    LOG: tl.constexpr,
    MASKED: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    # int64, because row * stride passes 2**31 on large inputs
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    # WHOLE makes the mask constant, and the compiler then drops it
    inside = ((row < rows) | (ROWS == 1)) & ((col < cols) | WHOLE)
    # -inf is no maximum, and its exponential adds nothing
    x = tl.load(x_ptr + row * x_row_stride + col, mask=inside, other=float("-inf"))
    x = x.to(tl.float32)  # [ROWS, BLOCK]
    if MASKED:
        keep = tl.load(mask_ptr + row * mask_row_stride + col, mask=inside, other=0) != 0
        x = tl.where(keep, x, float("-inf"))
    top = tl.max(x, axis=1, keep_dims=True)  # [ROWS, 1]
    if MASKED:
        # -inf - -inf is NaN; without the mask that is the answer for a row of -inf
        top = tl.where(top == float("-inf"), 0.0, top)
    x -= top
    e = tl.exp(x)
    total = tl.sum(e, axis=1, keep_dims=True)
    y = x - tl.log(total) if LOG else e * _inverse(total, MASKED)
    if MASKED:
        y = tl.where(keep, y, 0.0)
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _twice_kernel(
    x_ptr, mask_ptr, y_ptr, x_row_stride, mask_row_stride, cols,
    LOG: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    mask_ptr += row * mask_row_stride
    y_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    # the lowest finite number: an infinite one makes NaN of -inf - -inf where a thread has seen
    # nothing else, although the rest of the row is finite
    top = tl.full([BLOCK // VECTOR], -3.4028234663852886e38, tl.float32)
    total = tl.zeros([BLOCK // VECTOR], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        # kept for the second pass
        x, _ = _kept(x_ptr, mask_ptr, col, (col < cols) | WHOLE, MASKED, "evict_last")
        # what one load brings to a thread has one maximum: a rescaling for each eighth element
        x = tl.reshape(x, [BLOCK // VECTOR, VECTOR])
        higher = tl.maximum(top, tl.max(x, axis=1))
        e = tl.exp(x - higher[:, None])
        total = total * tl.exp(top - higher) + tl.sum(e, axis=1)
        top = higher
    row_top = tl.max(top, axis=0)
    row_total = tl.sum(total * tl.exp(top - row_top), axis=0)
    inverse = _inverse(row_total, MASKED)
    log_total = tl.log(row_total)
    for start in range(0, cols, BLOCK):
        col = start + lane
        inside = (col < cols) | WHOLE
        x, keep = _kept(x_ptr, mask_ptr, col, inside, MASKED, "evict_first")
        y = x - row_top - log_total if LOG else tl.exp(x - row_top) * inverse
        if MASKED:
            y = tl.where(keep, y, 0.0)
        tl.store(
            y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=inside, eviction_policy="evict_first"
        )


@triton.jit
def _inverse(total, MASKED: tl.constexpr):
    inverse = 1.0 / total
    if MASKED:
        # nothing kept: 0 * inf would be NaN
        inverse = tl.where(total == 0.0, 0.0, inverse)
    return inverse


@triton.jit
def _kept(x_ptr, mask_ptr, col, inside, MASKED: tl.constexpr, POLICY: tl.constexpr):
    # -inf is no maximum, and its exponential adds nothing
    x = tl.load(x_ptr + col, mask=inside, other=float("-inf"), eviction_policy=POLICY)
    x = x.to(tl.float32)
    keep = inside
    if MASKED:
        keep = tl.load(mask_ptr + col, mask=inside, other=0, eviction_policy=POLICY) != 0
        x = tl.where(keep, x, float("-inf"))
    return x, keep
