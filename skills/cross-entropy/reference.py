"""What the three operators mean, in plain PyTorch.

Each computes in float32 at least, and in float64 for float64 logits.
"""

import torch


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each row, and the logarithm of its sum of exponentials.

    Args:
        logits: (rows, cols); columns from `vocab` on are padding.
        target: (rows,), class of each row. Outside of [0, vocab) and not `ignore_index`: NaN.
        ignore_index: rows with this target have loss and lse 0.
        label_smoothing: share of the target's weight that is spread over all classes.
        z_loss: factor of lse^2 in the loss.
        vocab: number of classes.
    """
    x = _wide(logits)[:, :vocab]
    lse = torch.logsumexp(x, dim=1)
    inside = (target >= 0) & (target < vocab)
    picked = x.gather(1, torch.where(inside, target, 0)[:, None])[:, 0]
    picked = torch.where(inside, picked, torch.nan)
    loss = lse - (1 - label_smoothing) * picked
    if label_smoothing > 0:
        loss = loss - label_smoothing * x.mean(dim=1)
    if z_loss > 0:
        loss = loss + z_loss * lse.square()
    ignored = target == ignore_index
    return torch.where(ignored, 0.0, loss), torch.where(ignored, 0.0, lse)


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
) -> torch.Tensor:
    """Return the gradient of `cross_entropy` with respect to the logits, 0 in padding and ignored rows.

    Args:
        dloss: (rows,), gradient of the loss of each row.
        lse: (rows,), as `cross_entropy` returned it.
        logits, target, ignore_index, label_smoothing, z_loss, vocab: as in `cross_entropy`.
    """
    x = _wide(logits)[:, :vocab]
    dlogits = torch.exp(x - lse[:, None]) * (1 + 2 * z_loss * lse[:, None])
    if label_smoothing > 0:
        dlogits = dlogits - label_smoothing / vocab
    inside = (target >= 0) & (target < vocab)
    at = torch.where(inside, target, 0)[:, None]
    share = torch.full(at.shape, label_smoothing - 1, dtype=x.dtype, device=x.device)
    dlogits = dlogits.scatter_add(1, at, share)
    dlogits = torch.where(inside[:, None], dloss[:, None] * dlogits, torch.nan)
    dlogits = torch.where((target == ignore_index)[:, None], 0.0, dlogits)
    padded = torch.zeros(logits.shape, dtype=x.dtype, device=logits.device)
    padded[:, :vocab] = dlogits
    return padded.to(logits.dtype)


def cross_entropy_with_gradient(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum or the mean of the losses, and its gradient with respect to the logits.

    Args:
        reduction: `mean`, over the rows that are not ignored, or `sum`. The mean of no row is 0.
        logits, target, ignore_index, label_smoothing, z_loss, vocab: as in `cross_entropy`.
    """
    options = {
        "ignore_index": ignore_index,
        "label_smoothing": label_smoothing,
        "z_loss": z_loss,
        "vocab": vocab,
    }
    loss, lse = cross_entropy(logits, target, **options)
    counted = (target != ignore_index).sum().clamp(min=1) if reduction == "mean" else 1
    dloss = torch.ones_like(loss) / counted
    dlogits = cross_entropy_backward(dloss, logits, target, lse, **options)
    return loss.sum() / counted, dlogits


def _wide(logits: torch.Tensor) -> torch.Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
