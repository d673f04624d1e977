"""Library calls to measure the kernels against."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as functional

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Backward = Callable[[], tuple[torch.Tensor, ...]]


def torch_layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float
) -> Triple:
    """Run PyTorch's own kernel, which returns the statistics, too."""
    return torch.native_layer_norm(x, weight.shape, weight, bias, eps)


def torch_layer_norm_plain(x: torch.Tensor, *, eps: float) -> Triple:
    """Run PyTorch's own kernel, which returns the statistics, too."""
    return torch.native_layer_norm(x, x.shape[1:], None, None, eps)


def torch_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> Triple:
    """Run the kernels that autograd runs."""
    statistics = mean[:, None], rstd[:, None]
    # the last but one stands for a bias; only whether it is there counts
    return torch.ops.aten.native_layer_norm_backward(
        dy, x, weight.shape, *statistics, weight, weight, [True, True, True]
    )


def compiled_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> Backward:
    """Return a call of the backward that torch.compile makes of the layer norm."""
    tensors = (x, weight, torch.zeros_like(weight))
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    # a donated buffer would be overwritten by the first of many backward passes over one graph
    with torch._functorch.config.patch(donated_buffer=False):
        y = _compiled()(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def _affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, weight.shape, weight, bias, 1e-5)


@functools.cache
def _compiled() -> Callable[..., Any]:
    """Compile once for all sets of inputs: autotuning takes most of a minute."""
    return torch.compile(_affine, mode="max-autotune-no-cudagraphs", dynamic=False)
