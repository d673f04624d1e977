"""Library calls to measure the kernels against."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as functional

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Backward = Callable[[], tuple[torch.Tensor, ...]]


def torch_group_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, groups: int, eps: float
) -> torch.Tensor:
    """Run PyTorch's own kernels."""
    return functional.group_norm(x, groups, weight, bias, eps)


def torch_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    groups: int,
) -> Triple:
    """Run the kernels that autograd runs."""
    batch, channels, pixels = x.shape
    each = channels // groups
    statistics = mean[:, ::each].contiguous(), rstd[:, ::each].contiguous()
    return torch.ops.aten.native_group_norm_backward(
        dy, x, *statistics, weight, batch, channels, pixels, groups, [True, True, True]
    )


def compiled_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    groups: int,
) -> Backward:
    """Return a call of the backward that torch.compile makes of the group norm."""
    tensors = (x, weight, torch.zeros_like(weight))
    leaves = [tensor.detach().requires_grad_() for tensor in tensors]
    # a donated buffer would be overwritten by the first of many backward passes over one graph
    with torch._functorch.config.patch(donated_buffer=False):
        y = _compiled()(*leaves, groups)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


def _affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int) -> torch.Tensor:
    return functional.group_norm(x, groups, weight, bias, 1e-5)


@functools.cache
def _compiled() -> Callable[..., Any]:
    """Compile once for all sets of inputs: autotuning takes most of a minute."""
    return torch.compile(_affine, mode="max-autotune-no-cudagraphs", dynamic=False)
