"""The library calls that the kernels are measured against: cuBLAS on NVIDIA, hipBLASLt on AMD."""

import torch
from torch.nn import functional

_ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu_,
    "gelu": functional.gelu,
    "silu": lambda x: functional.silu(x, inplace=True),
}


def blas_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """One call of the library, into a new tensor."""
    return torch.mm(a, b)


def blas_matmul_backward(
    dout: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Two calls of the library on transposed views, as autograd makes them."""
    return torch.mm(dout, b.T), torch.mm(a.T, dout)


def blas_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, activation: str
) -> torch.Tensor:
    """The library adds the bias as it writes; the activation is a pass of its own, in place where there is one."""
    return _ACTIVATIONS[activation](functional.linear(x, weight, bias))
