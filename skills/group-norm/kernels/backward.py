"""Gradients of the group norm.

With xhat = (x - mean) * rstd, g = dy * weight, and means over the channels of a group and all
pixels:

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
    dweight = sum over samples and pixels of dy * xhat          dbias = the same of dy

All of it follows from two sums over the pixels of each channel, of dy and of dy * xhat: weighted
by the channel they give both means, added up over the samples they are dbias and dweight. One
launch takes them in many programs, a small one joins them, a third reads dy and x again and
writes dx. Groups (samples, in channels-last) are taken in waves that fit the second-level cache,
so that device memory sees one read: 3 elements for each of x, about 13 FLOPs. Sums are joined in
a fixed order, without atomics.
"""

import torch
import triton

from .join import join_sums, reduce_samples
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
from .pixels_backward import differentiate_pixels, sum_pixel_gradients
from .planes_backward import differentiate_planes, sum_plane_gradients


def group_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    groups: int,
    BLOCK: int | None = None,
    WARPS: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    WAVE_MB: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of `group_norm` with respect to `x`, `weight` and the bias.

    Args:
        dy: (batch, channels, pixels), gradient of y, in the dtype of `x`.
        x: (batch, channels, pixels) in float16, bfloat16 or float32. Samples of both at any
            stride, 0 too; copied first where a sample is dense neither as (channels, pixels) nor as
            (pixels, channels), and dy where its layout is not that of x.
        weight: (channels,), contiguous, any floating dtype.
        mean: (batch, channels), contiguous, in float32, as `group_norm` returned it.
        rstd: (batch, channels), contiguous, in float32, as `group_norm` returned it.
        groups: as in `group_norm`.
        BLOCK: elements of x that one program holds at once, a power of two.
        WARPS: warps in one program.
        PROGRAMS_PER_SM: programs that sum on each multiprocessor.
        WAVE_MB: MiB of dy and x that are summed before they are read again.

    Returns:
        dx, in the shape, dtype and layout of `x`; dweight and dbias, (channels,), in the dtype of
        `weight`. Computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree, or groups do not divide the channels.
    """
    _check(dy, x, weight, mean, rstd, groups)
    channels = x.shape[1]
    last = is_pixels(x)
    x, dy = in_layout(x, last), in_layout(dy, last)
    dx = empty_in_layout(x, last)
    dweight = torch.empty((channels,), dtype=weight.dtype, device=x.device)
    dbias = torch.empty((channels,), dtype=weight.dtype, device=x.device)
    tensors = (dy, x, weight, mean, rstd, dx)
    launch = _pixel_waves if last else _plane_waves
    totals = launch(tensors, groups, BLOCK or ELEMENTS, WARPS or 8, PROGRAMS_PER_SM, WAVE_MB)
    reduce_samples(totals, dweight, dbias)
    return dx, dweight, dbias


def _check(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    groups: int,
) -> None:
    if x.ndim != 3 or x.shape[1] < 1 or x.shape[2] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (batch, channels, pixels) with one of each")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, x is {tuple(x.shape)}")
    if groups < 1 or x.shape[1] % groups:
        raise ValueError(f"{groups} groups do not divide {x.shape[1]} channels")
    expected = (("weight", weight, x.shape[1:2]), ("mean", mean, x.shape[:2]))
    for name, tensor, shape in (*expected, ("rstd", rstd, x.shape[:2])):
        if tensor.shape != shape or not tensor.is_contiguous():
            raise ValueError(f"{name} is {tuple(tensor.shape)}, not a contiguous {tuple(shape)}")


def _plane_waves(
    tensors: tuple[torch.Tensor, ...],
    groups: int,
    block: int,
    warps: int,
    per_sm: int | None,
    wave_mb: int | None,
) -> torch.Tensor:
    """Write dx and return sums over pixels of dy and of dy * xhat, (2, batch, channels)."""
    x = tensors[1]
    batch, channels, pixels = x.shape
    each, count = channels // groups, batch * groups
    size = 2 * each * pixels * x.element_size()
    wave = min(max(1, wave_bytes(x.device, wave_mb) // size), max(count, 1))
    # as many groups in the last wave as in the others
    wave = triton.cdiv(count, triton.cdiv(count, wave)) if count else 1
    tile = tile_shape(wave * each, pixels, block)
    programs = multiprocessors(x.device) * (per_sm or 4)
    parts = triton.cdiv(programs, triton.cdiv(wave * each, tile[0]))
    chunk, splits = split_evenly(pixels, min(parts, 16), tile[1])
    sums = torch.empty((2, splits, batch, channels), dtype=torch.float32, device=x.device)
    totals = torch.empty((2, batch, channels), dtype=torch.float32, device=x.device)
    means = torch.empty((2, batch, groups), dtype=torch.float32, device=x.device)
    for first in range(0, count, wave):
        here = min(wave, count - first)
        sum_plane_gradients(tensors, sums, first * each, here * each, chunk, tile, warps)
        join_sums(tensors, sums, totals, means, groups, first, here)
        tile_of_group = tile_shape(each, pixels, block)
        differentiate_planes(tensors, means, groups, first, here, tile_of_group, warps)
    return totals


def _pixel_waves(
    tensors: tuple[torch.Tensor, ...],
    groups: int,
    block: int,
    warps: int,
    per_sm: int | None,
    wave_mb: int | None,
) -> torch.Tensor:
    """Write dx and return sums over pixels of dy and of dy * xhat, (2, batch, channels)."""
    x = tensors[1]
    batch, channels, pixels = x.shape
    wide = min(triton.next_power_of_2(channels), 256)
    tile = (max(1, block // wide), wide)
    size = 2 * channels * pixels * x.element_size()
    wave = min(max(1, wave_bytes(x.device, wave_mb) // size), max(batch, 1))
    wave = triton.cdiv(batch, triton.cdiv(batch, wave)) if batch else 1
    programs = multiprocessors(x.device) * (per_sm or 4)
    parts = triton.cdiv(programs, wave * triton.cdiv(channels, wide))
    chunk, splits = split_evenly(pixels, min(parts, 64), tile[0])
    sums = torch.empty((2, splits, batch, channels), dtype=torch.float32, device=x.device)
    totals = torch.empty((2, batch, channels), dtype=torch.float32, device=x.device)
    means = torch.empty((2, batch, groups), dtype=torch.float32, device=x.device)
    for first in range(0, batch, wave):
        here = min(wave, batch - first)
        sum_pixel_gradients(tensors, sums, first, here, chunk, tile, warps)
        join_sums(tensors, sums, totals, means, groups, first * groups, here * groups)
        differentiate_pixels(tensors, means, groups, first, here, tile, warps)
    return totals
