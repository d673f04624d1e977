"""Group norm of each sample, in either memory layout, and the statistics for its backward.

    y = (x - mean) * rstd * weight + bias            over the channels of a group and all pixels

x is read once and y written once: 2 elements of device memory for each of x, about 8 FLOPs. The
variance is of centred elements everywhere: mean(x^2) - mean^2 cancels to nothing where the mean
is far above the deviation.

Three plans. Where the pixels of a channel lie together, a group is one run of memory, and where
the groups that run at once fit the caches, one program reads its group twice. Otherwise groups
are taken in waves that fit the second-level cache: one launch sums a wave in many programs, the
next reads it again out of the cache and writes y. Channels-last groups are strips of every pixel:
a program takes a tile of pixels with many groups, sums each channel, and a small launch joins the
channels of a group.
"""

import torch
import triton

from .layout import (
    ELEMENTS,
    empty_in_layout,
    in_layout,
    is_pixels,
    multiprocessors,
    split_evenly,
    tile_shape,
    wave_bytes,
)
from .pixels import apply_pixels, join_channels, sum_pixels
from .planes import apply_planes, normalise_groups, sum_groups

# of one group, from which its program's latency shows less than further launches cost
SMALL_GROUP_BYTES = 65536


def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    groups: int,
    eps: float,
    BLOCK: int | None = None,
    WARPS: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    WAVE_MB: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return `x` with mean 0 and variance 1 in each group of channels, times `weight`, plus `bias`.

    Args:
        x: (batch, channels, pixels) in float16, bfloat16 or float32; samples at any stride, each
            dense as (channels, pixels) or as (pixels, channels); copied first where it is neither.
        weight: (channels,), contiguous, any floating dtype.
        bias: (channels,), contiguous, any floating dtype.
        groups: how many groups of neighbouring channels; a divisor of channels.
        eps: added to the variance.
        BLOCK: elements that one program holds at once, a power of two.
        WARPS: warps in one program.
        PROGRAMS_PER_SM: programs that sum on each multiprocessor, where groups are split.
        WAVE_MB: MiB of x that are summed before they are read again; 0 for one program a group.

    Returns:
        y, in the shape, dtype and layout of `x`, computed in float32 and rounded once; mean and
        rstd, (batch, channels), in float32: those of the channel's group.

    Raises:
        ValueError: shapes do not agree, or groups do not divide the channels.
    """
    _check(x, weight, bias, groups)
    batch, channels, _ = x.shape
    last = is_pixels(x)
    x = in_layout(x, last)
    y = empty_in_layout(x, last)
    mean = torch.empty((batch, channels), dtype=torch.float32, device=x.device)
    rstd = torch.empty((batch, channels), dtype=torch.float32, device=x.device)
    tensors = (x, weight, bias, y, mean, rstd)
    if batch and last:
        _pixel_waves(tensors, groups, eps, BLOCK, WARPS, PROGRAMS_PER_SM, WAVE_MB)
    elif batch and _one_program_each(x, groups, WAVE_MB):
        normalise_groups(tensors, groups, eps, BLOCK, WARPS)
    elif batch:
        _plane_waves(tensors, groups, eps, BLOCK, WARPS, PROGRAMS_PER_SM, WAVE_MB)
    return y, mean, rstd


def _check(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, groups: int) -> None:
    if x.ndim != 3 or x.shape[1] < 1 or x.shape[2] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (batch, channels, pixels) with one of each")
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{groups} groups do not divide {x.shape[1]} channels")
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector.shape != x.shape[1:2] or not vector.is_contiguous():
            raise ValueError(f"{name} is {tuple(vector.shape)}, not a contiguous ({x.shape[1]},)")


def _one_program_each(x: torch.Tensor, groups: int, wave_mb: int | None) -> bool:
    """Return whether every group is small, or there are many and those that run at once fit the cache."""
    batch, channels, pixels = x.shape
    size = channels // groups * pixels * x.element_size()
    if wave_mb is not None:
        return wave_mb == 0
    at_once = min(batch * groups, 2 * multiprocessors(x.device))
    enough = batch * groups >= multiprocessors(x.device)
    return size <= SMALL_GROUP_BYTES or (enough and at_once * size <= wave_bytes(x.device, None))


def _plane_waves(
    tensors: tuple[torch.Tensor, ...],
    groups: int,
    eps: float,
    block: int | None,
    warps: int | None,
    per_sm: int | None,
    wave_mb: int | None,
) -> None:
    x = tensors[0]
    batch, channels, pixels = x.shape
    block, warps = block or ELEMENTS, warps or 8
    length, count = channels // groups * pixels, batch * groups
    wave = min(max(1, wave_bytes(x.device, wave_mb) // (length * x.element_size())), count)
    # as many groups in the last wave as in the others
    wave = triton.cdiv(count, triton.cdiv(count, wave))
    programs = multiprocessors(x.device) * (per_sm or 4)
    chunk, splits = split_evenly(length, min(triton.cdiv(programs, wave), 64), block)
    partial = torch.empty((2, count, splits), dtype=torch.float32, device=x.device)
    tile = tile_shape(channels // groups, pixels, block)
    for first in range(0, count, wave):
        here = min(wave, count - first)
        sum_groups(x, partial, groups, first, here, chunk, block, warps)
        apply_planes(tensors, partial, groups, eps, first, here, chunk, tile, warps)


def _pixel_waves(
    tensors: tuple[torch.Tensor, ...],
    groups: int,
    eps: float,
    block: int | None,
    warps: int | None,
    per_sm: int | None,
    wave_mb: int | None,
) -> None:
    x, _, _, _, mean, rstd = tensors
    batch, channels, pixels = x.shape
    block, warps = block or ELEMENTS, warps or 8
    wide = min(triton.next_power_of_2(channels), 256)
    tile = (block // wide, wide)
    size = channels * pixels * x.element_size()
    wave = min(max(1, wave_bytes(x.device, wave_mb) // size), batch)
    wave = triton.cdiv(batch, triton.cdiv(batch, wave))
    programs = multiprocessors(x.device) * (per_sm or 4)
    parts = triton.cdiv(programs, wave * triton.cdiv(channels, wide))
    chunk, splits = split_evenly(pixels, min(parts, 64), tile[0])
    partial = torch.empty((2, batch, splits, channels), dtype=torch.float32, device=x.device)
    for first in range(0, batch, wave):
        here = min(wave, batch - first)
        sum_pixels(x, partial, first, here, chunk, tile, warps)
        join_channels(x, partial, mean, rstd, groups, eps, first, here, chunk)
        apply_pixels(tensors, first, here, tile, warps)
