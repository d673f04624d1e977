"""What the three operators mean, in plain PyTorch.

Each computes in float32 at least, and in float64 for float64 inputs.
"""

import torch


def l2_normalise(x: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Return each row divided by its Euclidean norm, or by eps where that is larger.

    Args:
        x: (rows, cols).
        eps: least divisor.
    """
    wide = _wide(x)
    norm = wide.square().sum(dim=1, keepdim=True).sqrt()
    return (wide / norm.clamp(min=eps)).to(x.dtype)


def l2_normalise_backward(dy: torch.Tensor, x: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Return the gradient of `l2_normalise` with respect to x.

    Args:
        dy: (rows, cols), gradient of y.
        x: (rows, cols).
        eps: as in `l2_normalise`; a row no longer than that is only scaled.
    """
    g, wide = _wide(dy), _wide(x)
    squares = wide.square().sum(dim=1, keepdim=True)
    norm = squares.sqrt()
    along_row = wide * ((g * wide).sum(dim=1, keepdim=True) / squares)
    return ((g - torch.where(norm > eps, along_row, 0.0)) / norm.clamp(min=eps)).to(x.dtype)


def absmax_scale(x: torch.Tensor, *, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row divided by its largest magnitude, or by eps where that is larger, and the magnitude.

    Args:
        x: (rows, cols), without NaN.
        eps: least divisor.
    """
    wide = _wide(x)
    absmax = wide.abs().amax(dim=1)
    return (wide / absmax.clamp(min=eps)[:, None]).to(x.dtype), absmax


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))
