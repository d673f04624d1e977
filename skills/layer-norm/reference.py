"""What the four operators mean, in plain PyTorch.

Each computes in float32 at least, as `torch.nn.functional.layer_norm` does, and in float64 for
float64 inputs.
"""

import torch

Normalised = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float
) -> Normalised:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias over each row, and its statistics.

    Args:
        x: (rows, cols).
        weight: (cols,).
        bias: (cols,).
        eps: added to the variance, inside the root.

    Returns:
        y (rows, cols); mean (rows,) and rstd (rows,), one over the root.
    """
    xhat, mean, rstd = _normalised(x, eps)
    y = xhat * weight.to(xhat.dtype) + bias.to(xhat.dtype)
    return y.to(x.dtype), mean, rstd


def layer_norm_plain(x: torch.Tensor, *, eps: float) -> Normalised:
    """Return `layer_norm` without weight and bias.

    Args:
        x: (rows, cols).
        eps: as in `layer_norm`.
    """
    xhat, mean, rstd = _normalised(x, eps)
    return xhat.to(x.dtype), mean, rstd


def layer_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of `layer_norm` with respect to x, weight and bias.

    Args:
        dy: (rows, cols), gradient of y.
        x: (rows, cols).
        weight: (cols,).
        mean: (rows,), as `layer_norm` returned it.
        rstd: (rows,), as `layer_norm` returned it.
    """
    g, xhat, scale = _wide(dy, x, mean, rstd)
    dx = _input_gradient(g * weight.to(g.dtype), xhat, scale)
    dweight, dbias = (g * xhat).sum(dim=0), g.sum(dim=0)
    return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype)


def layer_norm_plain_backward(
    dy: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """Return the gradient of `layer_norm_plain` with respect to x.

    Args:
        dy: (rows, cols), gradient of y.
        x: (rows, cols).
        mean: (rows,), as `layer_norm_plain` returned it.
        rstd: (rows,), as `layer_norm_plain` returned it.
    """
    return _input_gradient(*_wide(dy, x, mean, rstd)).to(x.dtype)


def _normalised(x: torch.Tensor, eps: float) -> Normalised:
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = x.mean(dim=1, keepdim=True)
    rstd = torch.rsqrt((x - mean).square().mean(dim=1, keepdim=True) + eps)
    return (x - mean) * rstd, mean[:, 0], rstd[:, 0]


def _wide(dy: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor) -> Normalised:
    """Return dy and the normalised x in float32 at least, and rstd as a column."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    scale = rstd.to(dtype)[:, None]
    return dy.to(dtype), (x.to(dtype) - mean.to(dtype)[:, None]) * scale, scale


def _input_gradient(g: torch.Tensor, xhat: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    along_row = xhat * (g * xhat).mean(dim=1, keepdim=True)
    return rstd * (g - g.mean(dim=1, keepdim=True) - along_row)
