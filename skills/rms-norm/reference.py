"""What the four operators mean, in plain PyTorch.

Each computes in float32 at least, as `torch.nn.functional.rms_norm` does, and in float64 for float64 inputs.
"""

import torch


def rms_norm(x: torch.Tensor, weight: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Return x / sqrt(mean(x^2) + eps) * weight, the mean over a row.

    Args:
        x: (rows, cols).
        weight: (cols,).
        eps: added to the mean square, inside the root.
    """
    xhat, _ = _normalised(x, eps)
    return (xhat * weight.to(xhat.dtype)).to(x.dtype)


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, *, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMS norm of x + residual, and that sum as it is rounded to the dtype of x.

    Args:
        x: (rows, cols).
        residual: (rows, cols).
        weight: (cols,).
        eps: as in `rms_norm`.
    """
    summed = x + residual
    return rms_norm(summed, weight, eps=eps), summed


def rms_norm_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rms_norm` with respect to x and weight.

    Args:
        dy: (rows, cols), gradient of the output.
        x: (rows, cols).
        weight: (cols,).
        eps: as in `rms_norm`.
    """
    dx, dweight = _gradients(dy, x, weight, eps)
    return dx.to(x.dtype), dweight.to(weight.dtype)


def add_rms_norm_backward(
    dy: torch.Tensor,
    dsummed: torch.Tensor,
    summed: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `add_rms_norm` with respect to x (the residual's is the same) and weight.

    Args:
        dy: (rows, cols), gradient of the norm.
        dsummed: (rows, cols), gradient of the sum.
        summed: (rows, cols), the sum that `add_rms_norm` returned.
        weight: (cols,).
        eps: as in `rms_norm`.
    """
    dx, dweight = _gradients(dy, summed, weight, eps)
    return (dx + dsummed.to(dx.dtype)).to(summed.dtype), dweight.to(weight.dtype)


def _normalised(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    rstd = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + eps)
    return x * rstd, rstd


def _gradients(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    xhat, rstd = _normalised(x, eps)
    dy = dy.to(xhat.dtype)
    dxhat = dy * weight.to(xhat.dtype)
    dx = rstd * (dxhat - xhat * (dxhat * xhat).mean(dim=1, keepdim=True))
    return dx, (dy * xhat).sum(dim=0)
