"""What the two operators mean, in plain PyTorch.

Each computes in float32 at least, as `torch.nn.functional.group_norm` does, and in float64 for
float64 inputs.
"""

import torch

Triple = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def group_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, groups: int, eps: float
) -> Triple:
    """Return (x - mean) / sqrt(variance + eps) * weight + bias, and the statistics.

    Mean and variance are over the channels of a group and all pixels of a sample.

    Args:
        x: (batch, channels, pixels).
        weight: (channels,).
        bias: (channels,).
        groups: how many groups of neighbouring channels.
        eps: added to the variance, inside the root.

    Returns:
        y (batch, channels, pixels); mean and rstd, one over the root, (batch, channels): those of
        the channel's group.
    """
    batch, channels, pixels = x.shape
    size = channels // groups
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    grouped = wide.reshape(batch, groups, size * pixels)
    mean = grouped.mean(dim=2, keepdim=True)
    rstd = torch.rsqrt((grouped - mean).square().mean(dim=2, keepdim=True) + eps)
    xhat = ((grouped - mean) * rstd).reshape(x.shape)
    y = xhat * weight.to(wide.dtype)[:, None] + bias.to(wide.dtype)[:, None]
    statistics = (value[:, :, 0].repeat_interleave(size, dim=1) for value in (mean, rstd))
    return y.to(x.dtype), *statistics


def group_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    groups: int,
) -> Triple:
    """Return the gradients of `group_norm` with respect to x, weight and bias.

    Args:
        dy: (batch, channels, pixels), gradient of y.
        x: (batch, channels, pixels).
        weight: (channels,).
        mean: (batch, channels), as `group_norm` returned it.
        rstd: (batch, channels), as `group_norm` returned it.
        groups: as in `group_norm`.
    """
    batch, channels, pixels = x.shape
    size = channels // groups
    dtype = torch.promote_types(x.dtype, torch.float32)
    scale = rstd.to(dtype)[:, :, None]
    xhat = (x.to(dtype) - mean.to(dtype)[:, :, None]) * scale
    dy = dy.to(dtype)
    g = dy * weight.to(dtype)[:, None]

    def group_mean(values: torch.Tensor) -> torch.Tensor:
        means = values.reshape(batch, groups, size * pixels).mean(dim=2)
        return means.repeat_interleave(size, dim=1)[:, :, None]

    dx = scale * (g - group_mean(g) - xhat * group_mean(g * xhat))
    dweight, dbias = (dy * xhat).sum(dim=(0, 2)), dy.sum(dim=(0, 2))
    return dx.to(x.dtype), dweight.to(weight.dtype), dbias.to(weight.dtype)
