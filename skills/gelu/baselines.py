"""Library calls to measure the kernels against."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as functional


def torch_gelu(x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """Run PyTorch's own kernel."""
    return functional.gelu(x, approximate=approximate)


def compiled_gelu(x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """Run what torch.compile makes of PyTorch's operator."""
    return _compiled(approximate)(x)


def torch_gelu_backward(dy: torch.Tensor, x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """Run PyTorch's own kernel of the backward."""
    return torch.ops.aten.gelu_backward(dy, x, approximate=approximate)


def compiled_backward(
    dy: torch.Tensor, x: torch.Tensor, *, approximate: str
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a call of the backward that torch.compile makes of PyTorch's operator."""
    leaf = x.detach().requires_grad_()
    # a donated buffer would be overwritten by the first of many backward passes over one graph
    with torch._functorch.config.patch(donated_buffer=False):
        y = _compiled(approximate)(leaf)
    return lambda: torch.autograd.grad(y, leaf, dy, retain_graph=True)


@functools.cache
def _compiled(approximate: str) -> Callable[..., Any]:
    """Compile once for all sets of inputs."""
    call = functools.partial(functional.gelu, approximate=approximate)
    return torch.compile(lambda x: call(x), mode="max-autotune-no-cudagraphs", dynamic=False)
