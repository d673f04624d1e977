"""Backward kernels for channels-last."""

import torch
import triton
import triton.language as tl


def sum_pixel_gradients(
    tensors: tuple[torch.Tensor, ...],
    sums: torch.Tensor,
    first: int,
    count: int,
    chunk: int,
    tile: tuple[int, int],
    warps: int,
) -> None:
    """Write the sums of dy and of dy * xhat of each channel over a chunk of pixels.

    Args:
        tensors: dy, x, weight, mean, rstd, dx, as in `backward.group_norm_backward`.
        sums: (2, splits, batch, channels) in float32.
        first: number of the first sample.
        count: of samples.
        chunk: pixels of a chunk, a multiple of the tile's.
        tile: pixels and channels that a program holds at once.
        warps: of a program.
    """
    dy, x, _, mean, rstd, _ = tensors
    batch, channels, pixels = x.shape
    splits, strips = sums.shape[1], triton.cdiv(channels, tile[1])
    _sum_kernel[(count * splits * strips,)](
        dy, x, mean, rstd, sums[0], sums[1], dy.stride(0), x.stride(0), channels, pixels,
        first, splits, strips, chunk, batch * channels,
        PIXELS=tile[0], CHANNELS=tile[1], num_warps=warps,
    )  # fmt: skip


def differentiate_pixels(
    tensors: tuple[torch.Tensor, ...],
    means: torch.Tensor,
    groups: int,
    first: int,
    count: int,
    tile: tuple[int, int],
    warps: int,
) -> None:
    """Write dx.

    Args:
        tensors, first, count, tile, warps: as in `sum_pixel_gradients`.
        means: (2, batch, groups), of g and of g * xhat.
        groups: of a sample.
    """
    dy, x, weight, mean, rstd, dx = tensors
    _, channels, pixels = x.shape
    rows, strips = triton.cdiv(pixels, tile[0]), triton.cdiv(channels, tile[1])
    _apply_kernel[(count * rows * strips,)](
        dy, x, weight, mean, rstd, dx, means[0], means[1], dy.stride(0), x.stride(0), groups, channels, pixels,
        first, rows, strips, PIXELS=tile[0], CHANNELS=tile[1], num_warps=warps,
    )  # fmt: skip


@triton.jit
def _sum_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, plain_ptr, product_ptr,
    dy_batch_stride, x_batch_stride, channels, pixels, first, splits, strips, chunk, split_stride,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    strip = tl.program_id(0) % strips
    part = tl.program_id(0) // strips
    # int64, because offsets pass 2**31 on large inputs
    sample = (first + part // splits).to(tl.int64)
    split = part % splits
    channel = strip * CHANNELS + tl.arange(0, CHANNELS)
    channel_mask = channel < channels
    channel_at = sample * channels + channel
    mean = tl.load(mean_ptr + channel_at, mask=channel_mask, other=0.0)[None, :]
    rstd = tl.load(rstd_ptr + channel_at, mask=channel_mask, other=0.0)[None, :]
    dy_ptr += sample * dy_batch_stride
    x_ptr += sample * x_batch_stride
    plain = tl.zeros([PIXELS, CHANNELS], tl.float32)
    product = tl.zeros([PIXELS, CHANNELS], tl.float32)
    begin = split * chunk
    for start in range(begin, tl.minimum(begin + chunk, pixels), PIXELS):
        pixel = start + tl.arange(0, PIXELS)
        mask = (pixel < pixels)[:, None] & channel_mask[None, :]
        at = pixel.to(tl.int64)[:, None] * channels + channel[None, :]
        # kept for the second reading; where dy is 0, what xhat is counts for nothing
        dy = tl.load(dy_ptr + at, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_last")
        dy = dy.to(tl.float32)
        plain += dy
        product += dy * ((x.to(tl.float32) - mean) * rstd)
    at = split.to(tl.int64) * split_stride + channel_at
    tl.store(plain_ptr + at, tl.sum(plain, axis=0), mask=channel_mask)
    tl.store(product_ptr + at, tl.sum(product, axis=0), mask=channel_mask)


@triton.jit
def _apply_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, mean_plain_ptr, mean_product_ptr,
    dy_batch_stride, x_batch_stride, groups, channels, pixels, first, rows, strips,
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
    dy_ptr += sample * dy_batch_stride
    x_ptr += sample * x_batch_stride
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    channel_at = sample * channels + channel
    mean = tl.load(mean_ptr + channel_at, mask=channel_mask, other=0.0)[None, :]
    rstd = tl.load(rstd_ptr + channel_at, mask=channel_mask, other=0.0)[None, :]
    weight = tl.load(weight_ptr + channel, mask=channel_mask, other=0.0).to(tl.float32)[None, :]
    group_at = sample * groups + channel // (channels // groups)
    plain = tl.load(mean_plain_ptr + group_at, mask=channel_mask, other=0.0)[None, :]
    product = tl.load(mean_product_ptr + group_at, mask=channel_mask, other=0.0)[None, :]
    dx = rstd * (dy * weight - plain - ((x - mean) * rstd) * product)
    dx_ptr += sample * channels * pixels
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
