"""Cross-entropy of a linear layer's outputs, which are never stored.

One kernel computes tiles of x weight^T, and leaves of each tile two numbers a row: its maximum, and the sum of the exponentials
less that maximum; a row's own class is picked out of the tile that holds it. A second kernel merges the tiles. 2 rows * vocab *
hidden FLOPs; beside the operands 8 bytes for each row and each BLOCK_N classes pass through device memory, where the logits
would be 2 BLOCK_N and more.
"""

import torch
import triton
import triton.language as tl

from .tiles import INF, LOG2E, adjacent, check, place, product, tile


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cross-entropy of each row of x weight^T, and the logarithm of its sum of exponentials.

    Args:
        x: (rows, hidden) in float16, bfloat16 or float32, rows at any stride.
        weight: (vocab, hidden), as x.
        target: (rows,), integers. Outside of [0, vocab) and not `ignore_index`: the loss is NaN.
        ignore_index: rows with this target have loss 0.
        BLOCK_M, BLOCK_N, BLOCK_K: rows, classes and inner elements of a tile, powers of two.
        STAGES: inner blocks under way.
        WARPS: warps in one program.

    Returns:
        loss and lse, (rows,) in float32. The logits are not rounded in between.

    Raises:
        ValueError: shapes or dtypes do not agree.
    """
    check(x, weight, target)
    x, weight, target = adjacent(x), adjacent(weight), adjacent(target)
    (rows, hidden), vocab = x.shape, weight.shape[0]
    tuning = (BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS)
    block_m, block_n, block_k, stages, warps = tile(tuning, x, rows, vocab, hidden)
    tiles = triton.cdiv(vocab, block_n)
    loss = torch.empty((rows,), dtype=torch.float32, device=x.device)
    lse = torch.empty((rows,), dtype=torch.float32, device=x.device)
    if not rows:
        return loss, lse
    picked = torch.empty((rows,), dtype=torch.float32, device=x.device)
    largest = torch.empty((tiles, rows), dtype=torch.float32, device=x.device)
    total = torch.empty((tiles, rows), dtype=torch.float32, device=x.device)
    _tile_kernel[(triton.cdiv(rows, block_m) * tiles,)](
        x, weight, target, picked, largest, total, rows, vocab, hidden, x.stride(0), weight.stride(0),
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k,
        PRECISION="ieee", num_warps=warps, num_stages=stages,
    )  # fmt: skip
    _merge_kernel[(triton.cdiv(rows, 32),)](
        target, picked, largest, total, loss, lse, rows, vocab, tiles, ignore_index,
        ROWS=32, TILES=32, num_warps=4,
    )  # fmt: skip
    return loss, lse


@triton.jit
def _tile_kernel(
    x_ptr, weight_ptr, target_ptr, picked_ptr, largest_ptr, total_ptr,
    rows, vocab, hidden, x_stride, weight_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    tile_row, tile_col = place(rows, vocab, BLOCK_M, BLOCK_N)
    row = tile_row * BLOCK_M + tl.arange(0, BLOCK_M)
    col = tile_col * BLOCK_N + tl.arange(0, BLOCK_N)
    logits = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    logits = product(
        logits, x_ptr, weight_ptr, row, col, rows, vocab, hidden, x_stride, 1, 1, weight_stride, BLOCK_K, PRECISION,
    )  # fmt: skip
    logits = tl.where((col < vocab)[None, :], logits, -INF)
    inside = row < rows
    target = tl.load(target_ptr + row, mask=inside, other=-1)
    # 64-bit targets: a class of 2**32 must not be class 0
    own = (target - tile_col.to(tl.int64) * BLOCK_N).to(tl.int32)
    here = (
        (target >= tile_col * BLOCK_N) & (target < tile_col * BLOCK_N + BLOCK_N) & (target < vocab)
    )
    own = tl.where(here, own, -1)
    chosen = tl.arange(0, BLOCK_N)[None, :] == own[:, None]
    picked = tl.max(tl.where(chosen, logits, -INF), axis=1)
    tl.store(picked_ptr + row, picked, mask=inside & here)
    largest = tl.max(logits, axis=1)
    # inf - inf is NaN; 0 keeps exp(-inf) at 0 and exp(inf) at inf
    origin = tl.where(tl.abs(largest) == INF, 0.0, largest)
    total = tl.sum(tl.exp2((logits - origin[:, None]) * LOG2E), axis=1)
    at = tile_col.to(tl.int64) * rows + row
    tl.store(largest_ptr + at, largest, mask=inside)
    tl.store(total_ptr + at, total, mask=inside)


@triton.jit
def _merge_kernel(
    target_ptr, picked_ptr, largest_ptr, total_ptr, loss_ptr, lse_ptr,
    rows, vocab, tiles, ignore_index,
    ROWS: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    top = tl.full([ROWS], -INF, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for start in range(0, tiles, TILES):
        part = start + tl.arange(0, TILES)
        at = part.to(tl.int64)[:, None] * rows + row[None, :]
        mask = (part < tiles)[:, None] & inside[None, :]
        largest = tl.load(largest_ptr + at, mask=mask, other=-INF)
        sums = tl.load(total_ptr + at, mask=mask, other=0.0)
        grown = tl.maximum(top, tl.max(largest, axis=0))
        origin = tl.where(tl.abs(grown) == INF, 0.0, grown)
        added = tl.sum(sums * tl.exp2((largest - origin[None, :]) * LOG2E), axis=0)
        total = total * tl.exp2((top - origin) * LOG2E) + added
        top = grown
    lse = tl.where(tl.abs(top) == INF, 0.0, top) + tl.log(total)
    target = tl.load(target_ptr + row, mask=inside, other=ignore_index)
    known = (target >= 0) & (target < vocab)
    picked = tl.load(picked_ptr + row, mask=inside & known, other=float("nan"))
    loss = tl.where(target == ignore_index, 0.0, lse - picked)
    tl.store(loss_ptr + row, loss, mask=inside)
    tl.store(lse_ptr + row, lse, mask=inside)
