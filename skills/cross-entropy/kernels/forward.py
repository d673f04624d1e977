"""Cross-entropy of each row of logits, which are read once.

    loss = lse - (1 - s) x[target] - s mean(x) + z lse^2        lse = log(sum(exp(x)))

with the label smoothing s and the factor z of the z-loss. rows * vocab elements of device memory, about 6
FLOPs and 1.1 exponentials for each. One program walks along one row; `lanes.py` says how it adds up.
"""

import torch
import triton
import triton.language as tl

from .lanes import adjacent, check, lane_elements, most_warps, row_loss, row_sums


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each row, and the logarithm of its sum of exponentials.

    Args:
        logits: (rows, cols) in float16, bfloat16 or float32, rows at any stride; copied first where
            the elements of a row do not lie next to each other. Columns from `vocab` on are not read.
        target: (rows,), integers. Outside of [0, vocab) and not `ignore_index`: the loss is NaN.
        ignore_index: rows with this target are not read; their loss and lse are 0.
        label_smoothing: share of the target's weight that is spread over all classes, 0 to 1.
        z_loss: factor of lse^2 in the loss.
        vocab: number of classes.
        BLOCK: columns read at once, a power of two.
        WARPS: warps in one program.

    Returns:
        loss and lse, (rows,) in float32.

    Raises:
        ValueError: shapes do not agree.
    """
    check(logits, target, vocab)
    logits, target = adjacent(logits), adjacent(target)
    rows = logits.shape[0]
    loss = torch.empty((rows,), dtype=torch.float32, device=logits.device)
    lse = torch.empty((rows,), dtype=torch.float32, device=logits.device)
    vector = lane_elements(logits)
    block = BLOCK or max(16, min(8192, triton.next_power_of_2(vocab)))
    # 16 elements a thread: 64 KB under way on a full multiprocessor, where latency times bandwidth is about 23 KB
    warps = WARPS or max(1, min(most_warps(logits.device), block // 512))
    if rows:
        _forward_kernel[(rows,)](
            logits, target, loss, lse, logits.stride(0), vocab, ignore_index, label_smoothing, z_loss,
            BLOCK=block, VECTOR=vector, SMOOTH=label_smoothing > 0, SQUARE=z_loss > 0, num_warps=warps,
        )  # fmt: skip
    return loss, lse


@triton.jit
def _forward_kernel(
    logits_ptr, target_ptr, loss_ptr, lse_ptr, row_stride, vocab, ignore_index, smoothing, z_loss,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    SMOOTH: tl.constexpr,
    SQUARE: tl.constexpr,
):  # fmt: skip
    # int64, because row * stride passes 2**31 on large inputs
    row = tl.program_id(0).to(tl.int64)
    target = tl.load(target_ptr + row)
    if target == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        tl.store(lse_ptr + row, 0.0)
    else:
        row_ptr = logits_ptr + row * row_stride
        lse, plain = row_sums(row_ptr, vocab, BLOCK, VECTOR, SMOOTH)
        loss = row_loss(row_ptr, target, lse, plain, vocab, smoothing, z_loss, SMOOTH, SQUARE)
        tl.store(loss_ptr + row, loss)
        tl.store(lse_ptr + row, lse)
