"""Library calls to measure the kernels against."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch._functorch.config
import torch.nn.functional as functional

_ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": functools.partial(functional.gelu, approximate="tanh"),
}


def torch_swiglu(gate: torch.Tensor, up: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Run PyTorch's own kernels, one for the activation, one for the product."""
    return _ACTIVATIONS[activation](gate) * up


def compiled_swiglu(gate: torch.Tensor, up: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Run what torch.compile makes of the two."""
    return _compiled(activation)(gate, up)


def liger_swiglu(gate: torch.Tensor, up: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Run Liger's kernel; it has no GeGLU with the error function."""
    if activation == "silu":
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Function
    elif activation == "gelu_tanh":
        from liger_kernel.ops.geglu import LigerGELUMulFunction as Function
    else:
        raise NotImplementedError("Liger has the tanh form only")
    return Function.apply(gate, up)


def compiled_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *, activation: str
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a call of the backward that torch.compile makes of activation and product."""
    leaves = [tensor.detach().requires_grad_() for tensor in (gate, up)]
    # a donated buffer would be overwritten by the first of many backward passes over one graph
    with torch._functorch.config.patch(donated_buffer=False):
        y = _compiled(activation)(*leaves)
    return lambda: torch.autograd.grad(y, leaves, dy, retain_graph=True)


@functools.cache
def _compiled(activation: str) -> Callable[..., Any]:
    """Compile once for all sets of inputs."""
    activate = _ACTIVATIONS[activation]
    return torch.compile(
        lambda gate, up: activate(gate) * up, mode="max-autotune-no-cudagraphs", dynamic=False
    )
