"""What the two operators mean, in plain PyTorch.

Each computes in float32 at least, and in float64 for float64 inputs.
"""

import math

import torch


def gelu(x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """Return x times the chance that a standard normal number lies below x.

    Args:
        x: (rows, cols).
        approximate: `none` for that chance itself, `tanh` for (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.
    """
    wide, chance, _ = _parts(x, approximate)
    # the limit at -inf; at +inf the product is right
    return torch.where(torch.isneginf(wide), 0.0, wide * chance).to(x.dtype)


def gelu_backward(dy: torch.Tensor, x: torch.Tensor, *, approximate: str) -> torch.Tensor:
    """Return the gradient of `gelu` with respect to x: 0 at -inf, dy at inf.

    Args:
        dy: (rows, cols), gradient of the output.
        x, approximate: as in `gelu`.
    """
    wide, chance, density = _parts(x, approximate)
    slope = chance + torch.where(torch.isinf(wide), 0.0, wide * density)
    return (dy.to(wide.dtype) * slope).to(x.dtype)


def _parts(x: torch.Tensor, approximate: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return x widened, the chance, and its derivative."""
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    if approximate == "none":
        # not torch.special.ndtr, which on the CPU subtracts from 1 and has no digits below -8
        chance = torch.special.erfc(x * -math.sqrt(0.5)) / 2
        return x, chance, torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    if approximate != "tanh":
        raise ValueError(f"approximate is {approximate!r}; known: none, tanh")
    slope = math.sqrt(2 / math.pi)
    chance = torch.sigmoid(2 * slope * (x + 0.044715 * x**3))
    opposite = torch.sigmoid(-2 * slope * (x + 0.044715 * x**3))
    both = torch.where(torch.isinf(x), 0.0, chance * opposite * (1 + 3 * 0.044715 * x * x))
    return x, chance, 2 * slope * both
