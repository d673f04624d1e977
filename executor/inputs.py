"""Draw a Workload's inputs on the device, from a seed. Runs in the task worker."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from kernel_skills.executor.expressions import evaluate
from kernel_skills.executor.models import (
    Definition,
    FilledInput,
    IntegerInput,
    RandomInput,
    TensorSpec,
    Workload,
)
from kernel_skills.executor.workload_values import axis_values, dtype_name, shape_of

_PADDING_ELEMENTS = 16
"""Keeps 16-byte alignment of rows for every dtype from 8 bits up, as kernels may require."""
_OFFSET_BYTES = 16
"""The least that Triton takes for aligned, and the tensor memory accelerator demands."""


def dtype_of(spec: TensorSpec, definition: Definition, workload: Workload) -> torch.dtype:
    """Return the torch dtype of a tensor, its type variable resolved."""
    name = dtype_name(spec, definition, workload)
    return getattr(torch, name)  # type: ignore[no-any-return]


def draw_inputs(
    definition: Definition, workload: Workload, seed: int, device: str, layout: str | None = None
) -> dict[str, torch.Tensor]:
    """Return fresh tensors for every tensor input.

    Args:
        seed: the same seed, workload and device give the same values.
        device: where they are drawn; nothing is copied from the host.
        layout: overrides the layout of every random input that has room for it.
    """
    axes = axis_values(definition, workload)
    generator = torch.Generator(device=device).manual_seed(seed)
    tensors = {}
    for name, spec in definition.tensor_inputs.items():
        given = workload.inputs.get(name, RandomInput())
        shape, dtype = shape_of(spec, axes), dtype_of(spec, definition, workload)
        if isinstance(given, RandomInput) and layout and given.layout == "contiguous":
            given = given.model_copy(update={"layout": layout if len(shape) > 1 else "offset"})
        tensors[name] = _draw(given, shape, dtype, axes, generator)
    return tensors


def _draw(
    given: Any,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    axes: Mapping[str, int],
    generator: torch.Generator,
) -> torch.Tensor:
    device = generator.device
    match given:
        case RandomInput(layout=layout):
            tensor = empty_in_layout(shape, dtype, layout, device)
            _fill_random(tensor, given, generator)
            return tensor
        case IntegerInput(low=low, high=high):
            top = int(evaluate(high, axes))
            return torch.randint(low, top, shape, dtype=dtype, device=device, generator=generator)
        case FilledInput(value=value):
            return torch.full(shape, value, dtype=dtype, device=device)
    raise TypeError(f"{type(given).__name__} does not describe a tensor")


def empty_in_layout(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, device: torch.device
) -> torch.Tensor:
    """Return an uninitialised tensor of the shape in a layout of `RandomInput`; contiguous where the rank has no room for it."""
    if layout == "padded" and len(shape) > 1:
        wide = (*shape[:-1], shape[-1] + _PADDING_ELEMENTS)
        return torch.empty(wide, dtype=dtype, device=device)[..., _PADDING_ELEMENTS:]
    if layout == "offset" or (layout == "padded" and len(shape) == 1):
        skipped = _OFFSET_BYTES // dtype.itemsize
        flat = torch.empty(math.prod(shape) + skipped, dtype=dtype, device=device)
        return flat[skipped:].view(shape)
    if layout == "transposed" and len(shape) > 1:
        swapped = (*shape[:-2], shape[-1], shape[-2])
        return torch.empty(swapped, dtype=dtype, device=device).transpose(-1, -2)
    if layout == "expanded" and len(shape) > 1:
        return torch.empty((1, *shape[1:]), dtype=dtype, device=device).expand(shape)
    return torch.empty(shape, dtype=dtype, device=device)


def _fill_random(tensor: torch.Tensor, given: RandomInput, generator: torch.Generator) -> None:
    """Fill in place. Drawn in float32, a slice at a time, so that 8-bit floats work and memory stays small."""
    target = tensor[:1] if 0 in tensor.stride() and tensor.numel() else tensor
    if target.dtype is torch.bool:
        target.copy_(torch.rand(target.shape, device=tensor.device, generator=generator) < 0.5)
        return
    slices = target.unbind(0) if target.numel() > (1 << 28) and target.dim() > 1 else (target,)
    for part in slices:
        values = _sample(given.distribution, part.shape, tensor.device, generator)
        part.copy_(values.mul_(given.scale).add_(given.shift))


def _sample(
    distribution: str, shape: torch.Size, device: torch.device, generator: torch.Generator
) -> torch.Tensor:
    values = torch.empty(shape, device=device, dtype=torch.float32)
    match distribution:
        case "normal":
            values.normal_(generator=generator)
        case "uniform":
            values.uniform_(-1, 1, generator=generator)
        case "lognormal":
            values.log_normal_(generator=generator)
        case "laplace":
            u = values.uniform_(-0.5, 0.5, generator=generator)
            # 0.5 itself would be infinite
            values = -u.sign() * torch.log1p(-2 * u.abs().clamp(max=0.499999))
        case "spiked":
            spikes = torch.rand(shape, generator=generator, device=device) < 1 / 256
            values.normal_(generator=generator).mul_(torch.where(spikes, 100.0, 1.0))
        case _:
            raise ValueError(f"unknown distribution {distribution!r}")
    return values
