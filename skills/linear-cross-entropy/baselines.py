"""Library calls to measure the kernels against."""

from collections.abc import Callable

import torch
import torch.nn.functional as functional


def torch_loss(
    x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, *, ignore_index: int
) -> torch.Tensor:
    """Linear layer and cross-entropy of PyTorch."""
    logits = functional.linear(x, weight)
    return functional.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")


def torch_backward(
    dloss: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    lse: torch.Tensor,
    *,
    ignore_index: int,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a call of PyTorch's backward, whose forward has kept all logits: two matmuls in place of three."""
    leaves = [tensor.detach().requires_grad_() for tensor in (x, weight)]
    loss = torch_loss(*leaves, target, ignore_index=ignore_index)
    gradient = dloss.to(loss.dtype)
    return lambda: torch.autograd.grad(loss, leaves, gradient, retain_graph=True)
