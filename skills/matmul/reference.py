"""What the kernels must compute, in plain PyTorch, in the dtype of the inputs."""

import torch

_ACTIVATIONS = {
    "none": lambda x: x,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return `a @ b`: (m, k) times (k, n) is (m, n)."""
    return torch.matmul(a, b)


def matmul_backward(
    dout: torch.Tensor, a: torch.Tensor, b: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `a @ b` with respect to `a` (m, k) and `b` (k, n)."""
    return torch.matmul(dout, b.T), torch.matmul(a.T, dout)


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, activation: str
) -> torch.Tensor:
    """Return `activation(x @ weight.T + bias)`: x (m, k), weight (n, k), bias (n,)."""
    return _ACTIVATIONS[activation](torch.matmul(x, weight.T) + bias)
