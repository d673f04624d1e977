"""What the two operators mean, in plain PyTorch, with all logits in memory.

The logits are those of a linear layer in the dtype of its inputs; from there on float32 at least.
"""

import torch
import torch.nn.functional as functional


def linear_cross_entropy(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, *, ignore_index: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the cross-entropy of each row of x weight^T, and the logarithm of its sum of exponentials.

    Args:
        x: (rows, hidden).
        weight: (vocab, hidden).
        target: (rows,), class of each row, or `ignore_index`.
        ignore_index: rows with this target have loss 0.
    """
    logits = _logits(x, weight)
    lse = torch.logsumexp(logits, dim=1)
    ignored = target == ignore_index
    picked = logits.gather(1, torch.where(ignored, 0, target)[:, None])[:, 0]
    return torch.where(ignored, 0.0, lse - picked), lse


def linear_cross_entropy_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    *,
    ignore_index: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `linear_cross_entropy` with respect to x and weight.

    Args:
        dloss: (rows,), gradient of the loss of each row.
        lse: (rows,), as `linear_cross_entropy` returned it.
        x, weight, target, ignore_index: as in `linear_cross_entropy`.
    """
    dlogits = torch.exp(_logits(x, weight) - lse[:, None])
    ignored = target == ignore_index
    ones = torch.ones((x.shape[0], 1), dtype=dlogits.dtype, device=x.device)
    dlogits.scatter_add_(1, torch.where(ignored, 0, target)[:, None], -ones)
    dlogits = torch.where(ignored[:, None], 0.0, dlogits * dloss[:, None]).to(x.dtype)
    return dlogits @ weight, dlogits.t() @ x


def _logits(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    logits = functional.linear(x, weight)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
