"""Layer norm of each row, with or without weight and bias, and the statistics for its backward.

    y = (x - mean) * rstd [* weight + bias]          rstd = 1 / sqrt(mean((x - mean)^2) + eps)

x is read once and y written once: 2 * rows * cols elements of device memory, about 8 FLOPs for
each. The variance is of centred elements in both plans: mean(x^2) - mean^2 cancels to nothing
where the mean is far above the deviation.

Two plans. A program holds ROWS whole rows in registers and sums them twice. Or it reads one row
twice, the second time out of the first-level cache; in the first pass each thread centres what
one load brought by its own mean, and joins mean and squares with those it had, as Chan, Golub and
LeVeque do. The second plan needs few registers, so that the loads of one program run under the
sums of another.
"""

import torch
import triton
import triton.language as tl

from .rows import most_warps

# as for the RMS norm, which has the same traffic: 16384 x 4096 is quicker read twice (H200)
WHOLE_COLS = 2048

Normalised = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> Normalised:
    """Return each row of `x` with mean 0 and variance 1, times `weight`, plus `bias`.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32, rows at any stride; copied first where
            the elements of a row do not lie next to each other.
        weight: (cols,), contiguous, any floating dtype.
        bias: (cols,), contiguous, any floating dtype.
        eps: added to the variance.
        ROWS: rows in one program, a power of two.
        WARPS: warps in one program.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice and ROWS
            counts for nothing.

    Returns:
        y, (rows, cols), contiguous, in the dtype of `x`, computed in float32 and rounded once;
        mean and rstd, (rows,), in float32.

    Raises:
        ValueError: shapes do not agree.
    """
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector.shape != x.shape[1:] or not vector.is_contiguous():
            raise ValueError(
                f"{name} is {tuple(vector.shape)}, not a contiguous {tuple(x.shape[1:])}"
            )
    return _launch(x, weight, bias, eps, ROWS, WARPS, BLOCK)


def layer_norm_plain(
    x: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    BLOCK: int | None = None,
) -> Normalised:
    """Return each row of `x` with mean 0 and variance 1.

    Args:
        x: (rows, cols), as in `layer_norm`.
        eps: added to the variance.
        ROWS, WARPS, BLOCK: as in `layer_norm`.

    Returns:
        y, mean and rstd, as in `layer_norm`.

    Raises:
        ValueError: x is not (rows, cols) with a column.
    """
    return _launch(x, None, None, eps, ROWS, WARPS, BLOCK)


def _launch(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    tile_rows: int | None,
    warps: int | None,
    block: int | None,
) -> Normalised:
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    rows, cols = x.shape
    y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    mean = torch.empty((rows,), dtype=torch.float32, device=x.device)
    rstd = torch.empty((rows,), dtype=torch.float32, device=x.device)
    if rows == 0:
        return y, mean, rstd
    if cols > 1 and x.stride(1) != 1:
        x = x.contiguous()
    affine = weight is not None and bias is not None
    tensors = (x, weight if affine else x, bias if affine else x, y, mean, rstd)
    whole = max(triton.next_power_of_2(cols), 16)
    most = most_warps(x.device)
    if block is None:
        block = whole if whole <= WHOLE_COLS else min(whole // 2, 8192)
    if block < cols:
        # rows of programs that share a multiprocessor then fill 128 KB of its 256 KB of cache
        warps = warps or max(1, min(most, whole * x.element_size() // 2048))
        _twice_kernel[(rows,)](
            *tensors, x.stride(0), cols, eps,
            AFFINE=affine, BLOCK=block, VECTOR=16 // x.element_size(),
            WHOLE=cols % block == 0, num_warps=warps,
        )  # fmt: skip
        return y, mean, rstd
    if tile_rows is None:
        tile_rows = max(1, min(1024 // whole, 64))
    warps = warps or max(1, min(most, tile_rows * whole // 512))
    _rows_kernel[(triton.cdiv(rows, tile_rows),)](
        *tensors, x.stride(0), rows, cols, eps,
        AFFINE=affine, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols, num_warps=warps,
    )  # fmt: skip
    return y, mean, rstd


@triton.jit
def _rows_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, x_row_stride, rows, cols, eps,
    AFFINE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    col = tl.arange(0, BLOCK)[None, :]
    # WHOLE makes the mask constant, and the compiler then drops it
    col_mask = (col < cols) | WHOLE
    # int64, because row * stride passes 2**31 on large inputs
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    row_mask = (row < rows) | (ROWS == 1)
    mask = row_mask & col_mask
    x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
    x = x.to(tl.float32)
    mean = _quotient(tl.sum(x, axis=1, keep_dims=True), cols)  # [ROWS, 1]
    # a lane past the row holds 0, and 0 - mean is no deviation
    centred = tl.where(col_mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / cols
    rstd = _inverse_root(variance + eps)
    tl.store(mean_ptr + row, mean, mask=row_mask)
    tl.store(rstd_ptr + row, rstd, mask=row_mask)
    y = centred * rstd
    if AFFINE:
        weight = tl.load(weight_ptr + col, mask=col_mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + col, mask=col_mask, other=0.0).to(tl.float32)
        y = y * weight + bias
    tl.store(y_ptr + row * cols + col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _twice_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, x_row_stride, cols, eps,
    AFFINE: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    y_ptr += row * cols
    lane = tl.arange(0, BLOCK)
    # of what one load brings to a thread, VECTOR elements
    vector = tl.arange(0, BLOCK // VECTOR)
    mean = tl.zeros([BLOCK // VECTOR], tl.float32)
    squares = tl.zeros([BLOCK // VECTOR], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        # kept for the second pass
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.reshape(x.to(tl.float32), [BLOCK // VECTOR, VECTOR])
        mean, squares = _joined(mean, squares, x, start, cols, vector, BLOCK, VECTOR, WHOLE)
    count = cols // BLOCK * VECTOR
    if not WHOLE:
        count += _elements(cols // BLOCK * BLOCK, cols, vector, VECTOR)
    count = count.to(tl.float32)
    row_mean = _quotient(tl.sum(mean * count, axis=0), cols)
    away = mean - row_mean
    variance = tl.sum(squares + count * away * away, axis=0) / cols
    rstd = _inverse_root(variance + eps)
    tl.store(mean_ptr + row, row_mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = (col < cols) | WHOLE
        x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy="evict_first")
        y = (x.to(tl.float32) - row_mean) * rstd
        if AFFINE:
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
            bias = tl.load(bias_ptr + col, mask=mask, other=0.0, eviction_policy="evict_last")
            y = y * weight.to(tl.float32) + bias.to(tl.float32)
        tl.store(
            y_ptr + col, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first"
        )


@triton.jit
def _joined(
    mean, squares, x, start, cols, vector,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Return mean and centred squares of each vector after those of x, [vectors, VECTOR]."""
    # every block before this one was full
    before = start // BLOCK * VECTOR * 1.0
    if WHOLE:
        new_mean = tl.sum(x, axis=1) / VECTOR
        centred = x - new_mean[:, None]
        share = VECTOR / (before + VECTOR)
    else:
        count = _elements(start, cols, vector, VECTOR)
        inside = tl.arange(0, VECTOR)[None, :] < count[:, None]
        count = count.to(tl.float32)
        new_mean = _quotient(tl.sum(x, axis=1), tl.maximum(count, 1.0))
        centred = tl.where(inside, x - new_mean[:, None], 0.0)
        share = count / tl.maximum(before + count, 1.0)
    away = new_mean - mean
    squares += tl.sum(centred * centred, axis=1) + away * away * (before * share)
    return mean + away * share, squares


@triton.jit
def _elements(start, cols, vector, VECTOR: tl.constexpr):
    """Return how many of the VECTOR elements of each vector of a block lie within the row."""
    return tl.minimum(tl.maximum(cols - start - vector * VECTOR, 0), VECTOR)


@triton.jit
def _quotient(total, count):
    # rounded to nearest: a quotient of two units in the last place less, and a constant row deviates
    return tl.div_rn(total, count * 1.0)


@triton.jit
def _inverse_root(x):
    # rounded to nearest: the backward takes rstd from here, and one a row costs nothing
    return tl.div_rn(1.0, tl.sqrt_rn(x))
