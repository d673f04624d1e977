"""What the four operators mean, in plain PyTorch.

Each computes in float32 at least, and in float64 for float64 inputs.
"""

import math

import torch
import torch.nn.functional as functional


def swiglu(gate: torch.Tensor, up: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Return activation(gate) * up.

    Args:
        gate, up: (rows, cols).
        activation: `silu` (SwiGLU), `gelu` (GeGLU) or `gelu_tanh`.
    """
    value, _ = _activated(_wide(gate), activation)
    return (value * _wide(up)).to(gate.dtype)


def swiglu_backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `swiglu` with respect to gate and up.

    Args:
        dy: (rows, cols), gradient of the output.
        gate, up, activation: as in `swiglu`.
    """
    value, slope = _activated(_wide(gate), activation)
    dgate = _wide(dy) * _wide(up) * slope
    return dgate.to(gate.dtype), (_wide(dy) * value).to(up.dtype)


def swiglu_packed(x: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Return `swiglu` of the left and the right half of each row of x, (rows, 2 * cols)."""
    gate, up = x.chunk(2, dim=1)
    return swiglu(gate, up, activation=activation)


def swiglu_packed_backward(dy: torch.Tensor, x: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Return the gradient of `swiglu_packed` with respect to x.

    Args:
        dy: (rows, cols), gradient of the output.
        x: (rows, 2 * cols).
        activation: as in `swiglu`.
    """
    gate, up = x.chunk(2, dim=1)
    return torch.cat(swiglu_backward(dy, gate, up, activation=activation), dim=1)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _activated(x: torch.Tensor, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the activation and its derivative."""
    if activation == "silu":
        chance = torch.sigmoid(x)
        return functional.silu(x), chance * (1 + x * torch.sigmoid(-x))
    if activation == "gelu":
        # not torch.special.ndtr, which on the CPU subtracts from 1 and has no digits below -8
        chance = torch.special.erfc(x * -math.sqrt(0.5)) / 2
        return x * chance, chance + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if activation == "gelu_tanh":
        angle = 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        chance = torch.sigmoid(angle)
        slope = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return x * chance, chance + x * chance * torch.sigmoid(-angle) * slope
    raise ValueError(f"activation is {activation!r}; known: silu, gelu, gelu_tanh")
