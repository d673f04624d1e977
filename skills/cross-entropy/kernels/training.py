"""Loss and its gradient in one pass of a program over each row, for training.

The logits are read for the sums, and again at once for the gradient, out of the second-level cache where the rows in
work fit there. Device memory: rows * cols elements read and as many written, if they fit; about 12 FLOPs and 2.1
exponentials for each. A kernel of one program before it counts the rows, one after it adds up the losses in a fixed order.
"""

import torch
import triton
import triton.language as tl

from .backward import write_block
from .lanes import adjacent, check, lane_elements, most_warps, row_loss, row_sums


def cross_entropy_with_gradient(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean or the sum of the losses, and its gradient with respect to the logits.

    Args:
        logits, target, ignore_index, label_smoothing, z_loss, vocab: as in `cross_entropy`.
        reduction: `mean`, over the rows that are not ignored, or `sum`. The mean of no row is 0.
        BLOCK: columns read at once, a power of two.
        WARPS: warps in one program.

    Returns:
        loss, () in float32; dlogits, (rows, cols), contiguous, in the dtype of `logits`, 0 in ignored
        rows and past `vocab`.

    Raises:
        ValueError: shapes do not agree, or the reduction is unknown.
    """
    check(logits, target, vocab)
    check_reduction(reduction)
    logits, target = adjacent(logits), adjacent(target)
    rows, cols = logits.shape
    dlogits = torch.empty((rows, cols), dtype=logits.dtype, device=logits.device)
    losses = torch.empty((rows,), dtype=torch.float32, device=logits.device)
    vector = lane_elements(logits)
    # 32 warps at 128256 columns, so that the rows in work are few; 16 elements a thread, and half of them where they
    # come one by one, which would spill
    each = 8 if vector == 1 else 16
    block = BLOCK or max(16, min(1024 * each, triton.next_power_of_2(vocab)))
    warps = WARPS or max(1, min(most_warps(logits.device), block // (32 * each)))
    scale = count_scale(target, reduction, ignore_index)
    if rows:
        _training_kernel[(rows,)](
            logits, target, scale, losses, dlogits, logits.stride(0), cols, vocab, ignore_index,
            label_smoothing, z_loss,
            BLOCK=block, VECTOR=vector, SMOOTH=label_smoothing > 0, SQUARE=z_loss > 0, num_warps=warps,
        )  # fmt: skip
    return add_up(losses, scale), dlogits


def check_reduction(reduction: str) -> None:
    """Raise ValueError where the reduction is unknown."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}; known: mean, sum")


def count_scale(target: torch.Tensor, reduction: str, ignore_index: int) -> torch.Tensor:
    """Return what each row counts for, (1,) in float32, worked out on the device."""
    scale = torch.empty((1,), dtype=torch.float32, device=target.device)
    _count_kernel[(1,)](
        target, scale, target.shape[0], ignore_index, MEAN=reduction == "mean", BLOCK=4096, num_warps=8
    )  # fmt: skip
    return scale


def add_up(losses: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return the sum of the losses times the scale, () in float32."""
    loss = torch.empty((), dtype=torch.float32, device=losses.device)
    _sum_kernel[(1,)](losses, scale, loss, losses.shape[0], BLOCK=4096, num_warps=8)
    return loss


@triton.jit
def _count_kernel(
    target_ptr, scale_ptr, rows, ignore_index, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    count = tl.zeros([BLOCK], tl.int32)
    if MEAN:
        for start in range(0, rows, BLOCK):
            row = start + tl.arange(0, BLOCK)
            target = tl.load(target_ptr + row, mask=row < rows, other=ignore_index)
            count += (target != ignore_index).to(tl.int32)
    # no row is a mean of 0, not of 0/0
    tl.store(scale_ptr, 1.0 / tl.maximum(tl.sum(count, axis=0), 1).to(tl.float32))


@triton.jit
def _sum_kernel(losses_ptr, scale_ptr, loss_ptr, rows, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        total += tl.load(losses_ptr + row, mask=row < rows, other=0.0)
    tl.store(loss_ptr, tl.sum(total, axis=0) * tl.load(scale_ptr))


@triton.jit
def _training_kernel(
    logits_ptr, target_ptr, scale_ptr, losses_ptr, dlogits_ptr,
    row_stride, cols, vocab, ignore_index, smoothing, z_loss,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    SMOOTH: tl.constexpr,
    SQUARE: tl.constexpr,
):  # fmt: skip
    # int64, because row * stride passes 2**31 on large inputs
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * row_stride
    target = tl.load(target_ptr + row)
    scale = tl.load(scale_ptr)
    lse = 0.0
    loss = 0.0
    if target != ignore_index:
        lse, plain = row_sums(row_ptr, vocab, BLOCK, VECTOR, SMOOTH)
        loss = row_loss(row_ptr, target, lse, plain, vocab, smoothing, z_loss, SMOOTH, SQUARE)
    tl.store(losses_ptr + row, loss)
    # backwards, from what was read last: the first-level cache holds most of a row of 250 KB, and in the order of the
    # first pass a cache that is a little too small holds nothing that is asked for
    last = (cols - 1) // BLOCK * BLOCK
    for start in range(0, cols, BLOCK):
        write_block(
            row_ptr, dlogits_ptr + row * cols, last - start, target, lse, scale,
            cols, vocab, ignore_index, smoothing, z_loss, BLOCK, SMOOTH, SQUARE,
        )  # fmt: skip
