"""Library calls to measure the kernels against."""

import torch


def torch_softmax(x: torch.Tensor) -> torch.Tensor:
    """Run PyTorch's own kernel."""
    return torch.softmax(x, dim=1)


def torch_log_softmax(x: torch.Tensor) -> torch.Tensor:
    """Run PyTorch's own kernel."""
    return torch.log_softmax(x, dim=1)


def torch_softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Run the kernel that autograd runs."""
    return torch.ops.aten._softmax_backward_data(dy, y, 1, y.dtype)


def torch_log_softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Run the kernel that autograd runs."""
    return torch.ops.aten._log_softmax_backward_data(dy, y, 1, y.dtype)


def liger_softmax(x: torch.Tensor) -> torch.Tensor:
    """Run the forward of Liger kernel; where it is not installed, the report says so."""
    from liger_kernel.ops.softmax import LigerSoftmaxFunction

    return LigerSoftmaxFunction.apply(x)
