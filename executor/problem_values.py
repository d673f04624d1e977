"""Values of other kinds for inputs that a problem draws itself: same shapes and dtypes, as `problem_kinds.KINDS` names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

_SCALE, _SMALL, _SHIFT, _SPIKE_SHARE = 100.0, 1e-3, 3.0, 256
_PADDING = 16
"""Elements; keeps rows aligned to 16 bytes for every dtype from 8 bits up."""


def vary(values: Mapping[str, Any], kind: str, seed: int, fixed: frozenset[str]) -> dict[str, Any]:
    """Return the inputs with values of a kind.

    Args:
        fixed: names of parameters and buffers; only `redrawn` changes them.
    """
    varied = {}
    for position, (name, value) in enumerate(values.items()):
        if not isinstance(value, torch.Tensor):
            varied[name] = value
            continue
        dice = torch.Generator(device=value.device).manual_seed((seed + position) % 2**63)
        varied[name] = _varied(value, kind, dice, name in fixed)
    return varied


def _varied(value: torch.Tensor, kind: str, dice: torch.Generator, fixed: bool) -> torch.Tensor:
    if kind == "strided":
        return value if fixed else strided_copy(value)
    if not value.is_floating_point() or (fixed and kind != "redrawn"):
        return value
    match kind:
        case "scaled":
            return value * _SCALE
        case "small":
            return value * _SMALL
        case "shifted":
            return value + _SHIFT
        case "spiked":
            return _spiked(value, dice)
        case "redrawn":
            return redrawn(value, dice) if is_constant(value) else value
    return value


def is_constant(value: torch.Tensor) -> bool:
    return value.numel() > 0 and bool((value == value.flatten()[0]).all())


def redrawn(value: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
    """Return uniform values from 0.5 to 1.5: a weight of ones or a bias of zeros may be any of them."""
    drawn = torch.rand(value.shape, generator=dice, device=value.device)
    return (drawn + 0.5).to(value.dtype)


def _spiked(value: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
    if not value.numel():
        return value
    spikes = torch.rand(value.shape, generator=dice, device=value.device) < 1 / _SPIKE_SHARE
    last = torch.randint(value.numel(), (1,), generator=dice, device=value.device)
    spikes.view(-1)[last] = True
    return torch.where(spikes, value * 100, value)


def strided_copy(value: torch.Tensor) -> torch.Tensor:
    """Return the same values in padded rows, or 16 elements into their storage where there is one dimension."""
    if value.dim() == 0 or not value.numel():
        return value
    wide = value.new_empty((*value.shape[:-1], value.shape[-1] + _PADDING))
    part = wide[..., _PADDING:]
    return part.copy_(value)
