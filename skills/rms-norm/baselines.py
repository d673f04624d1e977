"""Library calls to measure the kernels against."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as functional

Backward = Callable[[], tuple[torch.Tensor, ...]]


def torch_rms_norm(x: torch.Tensor, weight: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Run PyTorch's own fused kernel."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def compiled_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, eps: float
) -> Backward:
    """Return a call of the backward that torch.compile makes of `rms_norm`."""
    leaves = [tensor.detach().requires_grad_() for tensor in (x, weight)]
    return _backward_of(torch_rms_norm, leaves, (dy,), eps)


def compiled_add_backward(
    dy: torch.Tensor,
    dsummed: torch.Tensor,
    summed: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
) -> Backward:
    """Return a call of the backward that torch.compile makes of an addition and `rms_norm`."""
    # any two terms with this sum will do
    terms = (summed, torch.zeros_like(summed), weight)
    leaves = [tensor.detach().requires_grad_() for tensor in terms]
    return _backward_of(_add_rms_norm, leaves, (dy, dsummed), eps)


def _add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    summed = x + residual
    return torch_rms_norm(summed, weight, eps=eps), summed


def _backward_of(
    forward: Callable[..., object],
    leaves: list[torch.Tensor],
    grads: tuple[torch.Tensor, ...],
    eps: float,
) -> Backward:
    # a donated buffer would be overwritten by the first of many backward passes over one graph
    with torch._functorch.config.patch(donated_buffer=False):
        outputs = _compiled(forward)(*leaves, eps=eps)
    return lambda: torch.autograd.grad(outputs, leaves, grads, retain_graph=True)


@functools.cache
def _compiled(forward: Callable[..., object]) -> Callable[..., Any]:
    """Compile once for all sets of inputs: autotuning takes most of a minute."""
    return torch.compile(forward, mode="max-autotune-no-cudagraphs", dynamic=False)
