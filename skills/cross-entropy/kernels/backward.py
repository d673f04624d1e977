"""Gradient of the cross-entropy of each row, from the logits and the saved lse.

    dlogits = dloss ((1 + 2 z lse) exp(x - lse) - s / vocab - (1 - s) [target])

Every element is on its own: rows * cols elements read and as many written, about 6 FLOPs for each.
"""

import torch
import triton
import triton.language as tl

from .lanes import adjacent, check, gradient, most_warps


def cross_entropy_backward(
    dloss: torch.Tensor,
    logits: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> torch.Tensor:
    """Return the gradient of `cross_entropy` with respect to the logits.

    Args:
        dloss: (rows,), gradient of the loss of each row, at any stride, 0 too.
        logits, target, ignore_index, label_smoothing, z_loss, vocab: as in `cross_entropy`.
        lse: (rows,), as `cross_entropy` returned it.
        BLOCK: columns of one program, a power of two.
        WARPS: warps in one program.

    Returns:
        (rows, cols), contiguous, in the dtype of `logits`; 0 in ignored rows and past `vocab`.

    Raises:
        ValueError: shapes do not agree.
    """
    check(logits, target, vocab)
    rows, cols = logits.shape
    for name, given in (("dloss", dloss), ("lse", lse)):
        if given.shape != (rows,):
            raise ValueError(f"{name} is {tuple(given.shape)}, logits are {tuple(logits.shape)}")
    logits, target, lse = adjacent(logits), adjacent(target), adjacent(lse)
    dlogits = torch.empty((rows, cols), dtype=logits.dtype, device=logits.device)
    block = BLOCK or max(16, min(4096, triton.next_power_of_2(cols)))
    # 16 elements a thread
    warps = WARPS or max(1, min(most_warps(logits.device), block // 512))
    blocks = triton.cdiv(cols, block)
    if rows:
        # one dimension: the second may have 65535 programs at most
        _backward_kernel[(rows * blocks,)](
            dloss, logits, target, lse, dlogits, dloss.stride(0), logits.stride(0), cols, vocab, blocks,
            ignore_index, label_smoothing, z_loss,
            BLOCK=block, SMOOTH=label_smoothing > 0, SQUARE=z_loss > 0, num_warps=warps,
        )  # fmt: skip
    return dlogits


@triton.jit
def _backward_kernel(
    dloss_ptr, logits_ptr, target_ptr, lse_ptr, dlogits_ptr,
    dloss_stride, row_stride, cols, vocab, blocks, ignore_index, smoothing, z_loss,
    BLOCK: tl.constexpr,
    SMOOTH: tl.constexpr,
    SQUARE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    # int64, because row * stride passes 2**31 on large inputs
    row = (program // blocks).to(tl.int64)
    start = program % blocks * BLOCK
    target = tl.load(target_ptr + row)
    scale = tl.load(dloss_ptr + row * dloss_stride).to(tl.float32)
    lse = tl.load(lse_ptr + row)
    write_block(
        logits_ptr + row * row_stride, dlogits_ptr + row * cols, start, target, lse, scale,
        cols, vocab, ignore_index, smoothing, z_loss, BLOCK, SMOOTH, SQUARE,
    )  # fmt: skip


@triton.jit
def write_block(
    row_ptr, out_ptr, start, target, lse, scale, cols, vocab, ignore_index, smoothing, z_loss,
    BLOCK: tl.constexpr,
    SMOOTH: tl.constexpr,
    SQUARE: tl.constexpr,
):  # fmt: skip
    """Write the gradient of BLOCK columns from `start` on."""
    col = start + tl.arange(0, BLOCK)
    if target == ignore_index:
        # written, not multiplied by 0: an ignored row may hold NaN
        zeros = tl.zeros([BLOCK], out_ptr.dtype.element_ty)
        tl.store(out_ptr + col, zeros, mask=col < cols)
    elif start + BLOCK <= vocab:
        # no mask, so that loads and stores are of 16 bytes whatever vocab is
        x = tl.load(row_ptr + col, eviction_policy="evict_first").to(tl.float32)
        dx = gradient(x, col, target, lse, scale, vocab, smoothing, z_loss, SMOOTH, SQUARE)
        tl.store(out_ptr + col, dx.to(out_ptr.dtype.element_ty), eviction_policy="evict_first")
    else:
        mask = col < vocab
        x = tl.load(row_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dx = gradient(x, col, target, lse, scale, vocab, smoothing, z_loss, SMOOTH, SQUARE)
        dx = tl.where(mask, dx, 0.0)
        tl.store(out_ptr + col, dx.to(out_ptr.dtype.element_ty), mask=col < cols)
