"""PyTorch's own attention with its backend forced, as a strong library call to measure against."""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


def cudnn(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float
) -> torch.Tensor:
    """The fastest backend on Hopper; PyTorch does not pick it by itself."""
    return _forced(SDPBackend.CUDNN_ATTENTION, q, k, v, causal, scale)


def flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float
) -> torch.Tensor:
    """What PyTorch picks by itself for these inputs."""
    return _forced(SDPBackend.FLASH_ATTENTION, q, k, v, causal, scale)


def _forced(
    backend: SDPBackend,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    if causal and q.shape[2] != k.shape[2]:
        raise ValueError("is_causal aligns to the top left: only square causal attention compares")
    grouped = q.shape[1] != k.shape[1]
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(
            q, k, v, is_causal=causal, scale=scale, enable_gqa=grouped
        )
