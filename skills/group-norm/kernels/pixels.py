"""Forward kernels for channels-last: the channels of a pixel lie together, all groups side by side."""

import torch
import triton
import triton.language as tl


def sum_pixels(
    x: torch.Tensor,
    partial: torch.Tensor,
    first: int,
    count: int,
    chunk: int,
    tile: tuple[int, int],
    warps: int,
) -> None:
    """Write mean and centred squares of each channel over a chunk of pixels.

    Args:
        x: (batch, channels, pixels), channels-last.
        partial: (2, batch, splits, channels) in float32.
        first: number of the first sample.
        count: of samples.
        chunk: pixels of a chunk, a multiple of the tile's.
        tile: pixels and channels that a program holds at once.
        warps: of a program.
    """
    _, channels, pixels = x.shape
    splits, strips = partial.shape[2], triton.cdiv(channels, tile[1])
    _sum_kernel[(count * splits * strips,)](
        x, partial[0], partial[1], x.stride(0), channels, pixels, first, splits, strips, chunk,
        PIXELS=tile[0], CHANNELS=tile[1], num_warps=warps,
    )  # fmt: skip


def join_channels(
    x: torch.Tensor,
    partial: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    groups: int,
    eps: float,
    first: int,
    count: int,
    chunk: int,
) -> None:
    """Write mean and rstd of each group, from what `sum_pixels` left.

    Args:
        x: as there, for its shape.
        partial, first, count, chunk: as there.
        mean, rstd: (batch, channels) in float32.
        groups: of a sample.
        eps: added to the variance.
    """
    _, channels, pixels = x.shape
    each, splits = channels // groups, partial.shape[2]
    wide = min(triton.next_power_of_2(each), 1024)
    _join_kernel[(count * groups,)](
        partial[0], partial[1], mean, rstd, groups, each, pixels, eps, first, splits, chunk,
        SPLITS=triton.next_power_of_2(splits), CHANNELS=wide, num_warps=4,
    )  # fmt: skip


def apply_pixels(
    tensors: tuple[torch.Tensor, ...], first: int, count: int, tile: tuple[int, int], warps: int
) -> None:
    """Write y from mean and rstd.

    Args:
        tensors: x, weight, bias, y, mean, rstd, as in `forward.group_norm`.
        first, count, tile, warps: as in `sum_pixels`.
    """
    x, weight, bias, y, mean, rstd = tensors
    _, channels, pixels = x.shape
    rows, strips = triton.cdiv(pixels, tile[0]), triton.cdiv(channels, tile[1])
    _apply_kernel[(count * rows * strips,)](
        x, weight, bias, y, mean, rstd, x.stride(0), channels, pixels, first, rows, strips,
        PIXELS=tile[0], CHANNELS=tile[1], num_warps=warps,
    )  # fmt: skip


@triton.jit
def _sum_kernel(
    x_ptr, mean_ptr, squares_ptr,
    batch_stride, channels, pixels, first, splits, strips, chunk,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    strip = tl.program_id(0) % strips
    # counted over all samples
    part = first * splits + tl.program_id(0) // strips
    sample = part // splits
    split = part % splits
    # int64, because offsets pass 2**31 on large inputs
    x_ptr += sample.to(tl.int64) * batch_stride + (split * chunk).to(tl.int64) * channels
    size = tl.minimum(chunk, pixels - split * chunk)
    channel = strip * CHANNELS + tl.arange(0, CHANNELS)
    channel_mask = channel < channels
    lane = tl.arange(0, PIXELS)
    mean = tl.zeros([PIXELS, CHANNELS], tl.float32)
    squares = tl.zeros([PIXELS, CHANNELS], tl.float32)
    for start in range(0, size, PIXELS):
        pixel = start + lane
        inside = (pixel < size)[:, None]
        at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        # kept for the second reading
        x = tl.load(
            x_ptr + at, mask=inside & channel_mask[None, :], other=0.0,
            eviction_policy="evict_last",
        )  # fmt: skip
        x = x.to(tl.float32)
        # Welford's step; every tile before this one was full
        away = tl.where(inside, x - mean, 0.0)
        mean += away * (1.0 / (start // PIXELS + 1))
        squares += away * (x - mean)
    count = tl.cdiv(tl.maximum(size - lane, 0), PIXELS).to(tl.float32)[:, None]
    # in float64, once a program: a sum of hundreds of means is rounded at its own size, and the
    # distance between the channels of a group carries that error in first order
    total = (tl.sum((mean * count).to(tl.float64), axis=0) / size).to(tl.float32)
    away = mean - total[None, :]
    squares = tl.sum(squares + count * away * away, axis=0)
    at = part.to(tl.int64) * channels + channel
    tl.store(mean_ptr + at, total, mask=channel_mask)
    tl.store(squares_ptr + at, squares, mask=channel_mask)


@triton.jit
def _join_kernel(
    partial_mean_ptr, partial_squares_ptr, mean_ptr, rstd_ptr,
    groups, each, pixels, eps, first, splits, chunk,
    SPLITS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    group = first * groups + tl.program_id(0)
    sample = (group // groups).to(tl.int64)
    channels = groups * each
    # of the group, in the partial sums of the sample and in its statistics
    base = sample * splits * channels + (group % groups) * each
    split = tl.arange(0, SPLITS)[:, None]
    count = tl.minimum(tl.maximum(pixels - split * chunk, 0), chunk).to(tl.float32)
    elements = pixels * each * 1.0
    mean = tl.zeros([CHANNELS], tl.float64)
    for start in range(0, each, CHANNELS):
        channel = start + tl.arange(0, CHANNELS)[None, :]
        mask = (split < splits) & (channel < each)
        means = tl.load(partial_mean_ptr + base + split * channels + channel, mask=mask, other=0.0)
        mean += tl.sum((means * count).to(tl.float64), axis=0)
    mean = (tl.sum(mean, axis=0) / elements).to(tl.float32)
    squares = tl.zeros([CHANNELS], tl.float32)
    for start in range(0, each, CHANNELS):
        channel = start + tl.arange(0, CHANNELS)[None, :]
        mask = (split < splits) & (channel < each)
        at = base + split * channels + channel
        means = tl.load(partial_mean_ptr + at, mask=mask, other=0.0)
        own = tl.load(partial_squares_ptr + at, mask=mask, other=0.0)
        # a masked lane is no part of the group, however far from its mean
        away = tl.where(mask, means - mean, 0.0)
        squares += tl.sum(own + count * away * away, axis=0)
    variance = tl.sum(squares, axis=0) / elements
    rstd = tl.div_rn(1.0, tl.sqrt_rn(variance + eps))
    for start in range(0, each, CHANNELS):
        channel = start + tl.arange(0, CHANNELS)
        at = group.to(tl.int64) * each + channel
        tl.store(mean_ptr + at, tl.zeros([CHANNELS], tl.float32) + mean, mask=channel < each)
        tl.store(rstd_ptr + at, tl.zeros([CHANNELS], tl.float32) + rstd, mask=channel < each)


@triton.jit
def _apply_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr,
    batch_stride, channels, pixels, first, rows, strips,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    strip = tl.program_id(0) % strips
    row = tl.program_id(0) // strips
    sample = (first + row // rows).to(tl.int64)
    pixel = row % rows * PIXELS + tl.arange(0, PIXELS)
    channel = strip * CHANNELS + tl.arange(0, CHANNELS)
    channel_mask = channel < channels
    mask = (pixel < pixels)[:, None] & channel_mask[None, :]
    at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
    x_ptr += sample * batch_stride
    x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    statistics_at = sample * channels + channel
    mean = tl.load(mean_ptr + statistics_at, mask=channel_mask, other=0.0)
    rstd = tl.load(rstd_ptr + statistics_at, mask=channel_mask, other=0.0)
    weight = tl.load(weight_ptr + channel, mask=channel_mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + channel, mask=channel_mask, other=0.0).to(tl.float32)
    y = (x - mean[None, :]) * (rstd * weight)[None, :] + bias[None, :]
    y_ptr += sample * channels * pixels
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
