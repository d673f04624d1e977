"""Gradients of the cross-entropy of a linear layer, CHUNK classes at a time.

For each chunk of the vocabulary: dlogits of all rows from a product that is computed again (2 bytes for each row and class of the chunk),
the chunk's rows of dweight, which are then complete, and its share of dx, added up in float32. 6 rows * vocab * hidden FLOPs, where
a backward that has kept the logits needs 4; memory for CHUNK / vocab of the logits and for a float32 dx.
A chunk of rows in place of classes would need a float32 dweight, vocab / rows times as large.
"""

import torch
import triton
import triton.language as tl

from .tiles import LOG2E, Tuning, adjacent, check, place, product, tile


def linear_cross_entropy_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    *,
    ignore_index: int,
    CHUNK: int | None = None,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `linear_cross_entropy` with respect to x and weight.

    Args:
        dloss: (rows,), gradient of the loss of each row, at any stride, 0 too.
        x, weight, target, ignore_index: as in `linear_cross_entropy`.
        lse: (rows,), as `linear_cross_entropy` returned it.
        CHUNK: classes done at once.
        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS: as in `linear_cross_entropy`, for all three products.

    Returns:
        dx, (rows, hidden), and dweight, (vocab, hidden), contiguous, in the dtype of `x`.

    Raises:
        ValueError: shapes or dtypes do not agree.
    """
    check(x, weight, target)
    (rows, hidden), vocab = x.shape, weight.shape[0]
    if dloss.shape != (rows,) or lse.shape != (rows,):
        raise ValueError(f"dloss is {tuple(dloss.shape)}, lse {tuple(lse.shape)}; {rows} rows")
    x, weight, target, lse = adjacent(x), adjacent(weight), adjacent(target), adjacent(lse)
    dx = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    dweight = torch.empty((vocab, hidden), dtype=x.dtype, device=x.device)
    if not hidden:
        return dx, dweight
    # 8192 classes: dlogits of 8192 rows are 134 MB, as much as the float32 dx
    chunk = min(CHUNK or 8192, vocab)
    dlogits = torch.empty((rows, chunk), dtype=x.dtype, device=x.device)
    total = torch.empty((rows, hidden), dtype=torch.float32, device=x.device)
    tuning = (BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS)
    for start in range(0, vocab, chunk):
        classes = min(chunk, vocab - start)
        part, out = dlogits.narrow(1, 0, classes), dweight.narrow(0, start, classes)
        some = weight.narrow(0, start, classes)
        if rows:
            _launch_dlogits(dloss, x, some, target, lse, part, start, ignore_index, tuning)
        _launch_product(part.t(), x, out, out, False, tuning)
        last = start + chunk >= vocab
        if rows:
            _launch_product(part, some, total, dx if last else total, start > 0, tuning)
    return dx, dweight


def _launch_dlogits(
    dloss: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    dlogits: torch.Tensor,
    first: int,
    ignore_index: int,
    tuning: Tuning,
) -> None:
    """Write the gradient of the logits of the classes from `first` on, whose rows of the weight are given."""
    (rows, hidden), classes = x.shape, weight.shape[0]
    block_m, block_n, block_k, stages, warps = tile(tuning, x, rows, classes, hidden)
    _dlogits_kernel[(triton.cdiv(rows, block_m) * triton.cdiv(classes, block_n),)](
        dloss, x, weight, target, lse, dlogits, first, ignore_index, rows, classes, hidden,
        dloss.stride(0), x.stride(0), weight.stride(0), dlogits.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        PRECISION="ieee", num_warps=warps, num_stages=stages,
    )  # fmt: skip


def _launch_product(
    a: torch.Tensor,
    b: torch.Tensor,
    before: torch.Tensor,
    out: torch.Tensor,
    add: bool,
    tuning: Tuning,
) -> None:
    """Write a b, plus `before` if `add`, to `out`; `before` and `out` may be one tensor."""
    (m, k), n = a.shape, b.shape[1]
    block_m, block_n, block_k, stages, warps = tile(tuning, a, m, n, max(k, 1))
    if add:
        # beside the sums a tile of what they are added to and its addresses: 256 columns spill 296 bytes a thread
        block_n = min(block_n, 128)
    _product_kernel[(triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)](
        a, b, before, out, m, n, k, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        ADD=add, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        PRECISION="ieee", num_warps=warps, num_stages=stages,
    )  # fmt: skip


@triton.jit
def _dlogits_kernel(
    dloss_ptr, x_ptr, weight_ptr, target_ptr, lse_ptr, dlogits_ptr, first, ignore_index,
    rows, classes, hidden, dloss_stride, x_stride, weight_stride, dlogits_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile_row, tile_col = place(rows, classes, BLOCK_M, BLOCK_N)
    row = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    logits = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    logits = product(
        logits, x_ptr, weight_ptr, row, col, rows, classes, hidden, x_stride, 1, 1, weight_stride, BLOCK_K, PRECISION,
    )  # fmt: skip
    inside = row < rows
    target = tl.load(target_ptr + row, mask=inside, other=ignore_index)
    lse = tl.load(lse_ptr + row, mask=inside, other=0.0)
    scale = tl.load(dloss_ptr + row.to(tl.int64) * dloss_stride, mask=inside, other=0.0)
    dlogits = tl.exp2((logits - lse[:, None]) * LOG2E)
    dlogits = tl.where((first + col)[None, :] == target[:, None], dlogits - 1, dlogits)
    dlogits *= scale.to(tl.float32)[:, None]
    # selected, not multiplied by 0: the probability may be infinite or NaN
    dlogits = tl.where((target == ignore_index)[:, None], 0.0, dlogits)
    at = row.to(tl.int64)[:, None] * dlogits_stride + col[None, :]
    mask = inside[:, None] & (col < classes)[None, :]
    tl.store(dlogits_ptr + at, dlogits.to(dlogits_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _product_kernel(
    a_ptr, b_ptr, before_ptr, out_ptr, m, n, k,
    a_row_stride, a_stride, b_stride, b_col_stride,
    ADD: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile_row, tile_col = place(m, n, BLOCK_M, BLOCK_N)
    row = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    at = row.to(tl.int64)[:, None] * n + col[None, :]
    mask = (row < m)[:, None] & (col < n)[None, :]
    out = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    if ADD:
        # where the sum begins, not where it ends, so that no second tile is in registers
        out = tl.load(before_ptr + at, mask=mask, other=0.0)
    out = product(
        out, a_ptr, b_ptr, row, col, m, n, k, a_row_stride, a_stride, b_stride, b_col_stride,
        BLOCK_K, PRECISION,
    )  # fmt: skip
    # computed again, so that no pointers wait through the loop
    at = row.to(tl.int64)[:, None] * n + col[None, :]
    mask = (row < m)[:, None] & (col < n)[None, :]
    tl.store(out_ptr + at, out.to(out_ptr.dtype.element_ty), mask=mask)
