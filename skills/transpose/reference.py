"""What the four operators mean, in plain PyTorch: a view, made contiguous."""

import torch


def transpose(x: torch.Tensor) -> torch.Tensor:
    """Return y with y[c, r] = x[r, c]."""
    return x.t().contiguous()


def batched_transpose(x: torch.Tensor) -> torch.Tensor:
    """Return y with y[b, c, r] = x[b, r, c]."""
    return x.transpose(1, 2).contiguous()


def swap_middle(x: torch.Tensor) -> torch.Tensor:
    """Return y with y[a, c, b, d] = x[a, b, c, d]."""
    return x.permute(0, 2, 1, 3).contiguous()


def reverse_axes(x: torch.Tensor) -> torch.Tensor:
    """Return y with y[d, c, b, a] = x[a, b, c, d]."""
    return x.permute(3, 2, 1, 0).contiguous()
