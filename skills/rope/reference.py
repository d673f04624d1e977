"""What the four operators mean, in plain PyTorch.

Each computes in float32 at least, and in float64 for float64 inputs.
"""

import torch


def rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, pairing: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return q and k, the first 2 * half elements of each head rotated pair by pair.

    Args:
        q: (batch, tokens, q_heads, dim).
        k: (batch, tokens, kv_heads, dim).
        cos, sin: (positions, half); token t takes row t.
        pairing: `half` pairs element i with i + half, `interleaved` 2 i with 2 i + 1.
    """
    tokens = q.shape[1]
    return _rotated(q, k, cos[None, :tokens], sin[None, :tokens], pairing)


def rope_backward(
    dq: torch.Tensor, dk: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, pairing: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rope` with respect to q and k, from those of its outputs: the rotation back."""
    tokens = dq.shape[1]
    return _rotated(dq, dk, cos[None, :tokens], -sin[None, :tokens], pairing)


def rope_at_positions(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: torch.Tensor,
    *,
    pairing: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what `rope` returns, token t of sequence b with row position[b, t] of the tables."""
    return _rotated(q, k, cos[position], sin[position], pairing)


def rope_at_positions_backward(
    dq: torch.Tensor,
    dk: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: torch.Tensor,
    *,
    pairing: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rope_at_positions` with respect to q and k."""
    return _rotated(dq, dk, cos[position], -sin[position], pairing)


def _rotated(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairing: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate by tables of (batch or 1, tokens, half)."""
    if pairing not in ("half", "interleaved"):
        raise ValueError(f"pairing is {pairing!r}; known: half, interleaved")
    first, second = (_rotated_one(x, cos[:, :, None], sin[:, :, None], pairing) for x in (q, k))
    return first, second


def _rotated_one(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairing: str
) -> torch.Tensor:
    half = cos.shape[-1]
    dtype = torch.promote_types(x.dtype, torch.float32)
    head = x[..., : 2 * half].to(dtype)
    cos, sin = cos.to(dtype), sin.to(dtype)
    a, b = head.chunk(2, -1) if pairing == "half" else (head[..., 0::2], head[..., 1::2])
    pair = (a * cos - b * sin, b * cos + a * sin)
    turned = torch.cat(pair, -1) if pairing == "half" else torch.stack(pair, -1).flatten(-2)
    return torch.cat((turned.to(x.dtype), x[..., 2 * half :]), -1)
