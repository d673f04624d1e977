"""Library calls to measure the kernels against."""

from collections.abc import Callable

import torch
import torch.nn.functional as functional


def torch_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
) -> torch.Tensor:
    """PyTorch's own log-softmax and gather, two kernels; no z-loss."""
    return functional.cross_entropy(
        logits[:, :vocab],
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="none",
    )


def liger_cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
) -> Callable[[], torch.Tensor]:
    """Return a call of Liger's forward without a gradient, on a copy: some releases write to their input even so."""
    return _liger(logits.detach().clone(), target, "none", ignore_index, label_smoothing, z_loss)


def torch_training(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a call of PyTorch's forward and backward; no z-loss."""
    leaf = logits.detach().requires_grad_()

    def run() -> tuple[torch.Tensor, ...]:
        loss = functional.cross_entropy(
            leaf[:, :vocab],
            target,
            ignore_index=ignore_index,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
        return loss, *torch.autograd.grad(loss, leaf)

    return run


def liger_training(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a call of Liger's forward, which writes the gradient over the logits, and of its backward.

    It gets a copy of the logits, made outside the timed call, so from the second call on it reads its own gradients: as many
    bytes, other values. Its backward has nothing to multiply, because the loss itself is differentiated.
    """
    leaf = logits.detach().clone().requires_grad_()
    forward = _liger(leaf, target, reduction, ignore_index, label_smoothing, z_loss)

    def run() -> tuple[torch.Tensor, ...]:
        loss = forward()
        return loss, *torch.autograd.grad(loss, leaf)

    return run


def _liger(
    logits: torch.Tensor,
    target: torch.Tensor,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> Callable[[], torch.Tensor]:
    from liger_kernel.transformers.functional import liger_cross_entropy as liger

    return lambda: liger(
        logits,
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        lse_square_scale=z_loss,
        reduction=reduction,
    )
