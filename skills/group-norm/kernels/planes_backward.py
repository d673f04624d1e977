"""Backward kernels where the pixels of a channel lie together."""

import torch
import triton
import triton.language as tl


def sum_plane_gradients(
    tensors: tuple[torch.Tensor, ...],
    sums: torch.Tensor,
    first: int,
    count: int,
    chunk: int,
    tile: tuple[int, int],
    warps: int,
) -> None:
    """Write the sums of dy and of dy * xhat over each chunk of a channel.

    Args:
        tensors: dy, x, weight, mean, rstd, dx, as in `backward.group_norm_backward`.
        sums: (2, splits, batch, channels) in float32.
        first: number of the first channel, counted over all samples.
        count: of channels.
        chunk: pixels of a chunk, a multiple of the tile's.
        tile: channels and pixels that a program holds at once.
        warps: of a program.
    """
    dy, x, _, mean, rstd, _ = tensors
    batch, channels, pixels = x.shape
    splits, rows = sums.shape[1], triton.cdiv(count, tile[0])
    _sum_kernel[(rows * splits,)](
        dy, x, mean, rstd, sums[0], sums[1], dy.stride(0), x.stride(0), channels, pixels,
        first, first + count, splits, chunk, batch * channels,
        ACROSS=tile[0], ALONG=tile[1], num_warps=warps,
    )  # fmt: skip


def differentiate_planes(
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
        tensors: as in `sum_plane_gradients`.
        means: (2, batch, groups), of g and of g * xhat.
        groups: of a sample.
        first: number of the first group, counted over all samples.
        count: of groups.
        tile: channels and pixels of a program.
        warps: of a program.
    """
    dy, x, weight, mean, rstd, dx = tensors
    _, channels, pixels = x.shape
    each = channels // groups
    rows, columns = triton.cdiv(each, tile[0]), triton.cdiv(pixels, tile[1])
    _apply_kernel[(count * rows * columns,)](
        dy, x, weight, mean, rstd, dx, means[0], means[1], dy.stride(0), x.stride(0), groups, each, pixels,
        first, rows, columns, ACROSS=tile[0], ALONG=tile[1], num_warps=warps,
    )  # fmt: skip


@triton.jit
def _sum_kernel(
    dy_ptr, x_ptr, mean_ptr, rstd_ptr, plain_ptr, product_ptr,
    dy_batch_stride, x_batch_stride, channels, pixels, first, end, splits, chunk, split_stride,
    ACROSS: tl.constexpr,
    ALONG: tl.constexpr,
):  # fmt: skip
    split = tl.program_id(0) % splits
    # of a plane, counted over all samples
    plane = first + tl.program_id(0) // splits * ACROSS + tl.arange(0, ACROSS)
    plane_mask = plane < end
    mean = tl.load(mean_ptr + plane, mask=plane_mask, other=0.0)[:, None]
    rstd = tl.load(rstd_ptr + plane, mask=plane_mask, other=0.0)[:, None]
    sample = (plane // channels).to(tl.int64)[:, None]
    # int64, because offsets pass 2**31 on large inputs
    channel_at = (plane % channels).to(tl.int64)[:, None] * pixels
    dy_ptr += sample * dy_batch_stride + channel_at
    x_ptr += sample * x_batch_stride + channel_at
    plain = tl.zeros([ACROSS, ALONG], tl.float32)
    product = tl.zeros([ACROSS, ALONG], tl.float32)
    begin = split * chunk
    for start in range(begin, tl.minimum(begin + chunk, pixels), ALONG):
        pixel = start + tl.arange(0, ALONG)[None, :]
        mask = plane_mask[:, None] & (pixel < pixels)
        # kept for the second reading; where dy is 0, what xhat is counts for nothing
        dy = tl.load(dy_ptr + pixel, mask=mask, other=0.0, eviction_policy="evict_last")
        x = tl.load(x_ptr + pixel, mask=mask, other=0.0, eviction_policy="evict_last")
        dy = dy.to(tl.float32)
        plain += dy
        product += dy * ((x.to(tl.float32) - mean) * rstd)
    at = split.to(tl.int64) * split_stride + plane
    tl.store(plain_ptr + at, tl.sum(plain, axis=1), mask=plane_mask)
    tl.store(product_ptr + at, tl.sum(product, axis=1), mask=plane_mask)


@triton.jit
def _apply_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, mean_plain_ptr, mean_product_ptr,
    dy_batch_stride, x_batch_stride, groups, each, pixels, first, rows, columns,
    ACROSS: tl.constexpr,
    ALONG: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0) % (rows * columns)
    group = first + tl.program_id(0) // (rows * columns)
    sample = (group // groups).to(tl.int64)
    inner = (group % groups).to(tl.int64) * each
    channel = tile // columns * ACROSS + tl.arange(0, ACROSS)[:, None]
    pixel = tile % columns * ALONG + tl.arange(0, ALONG)[None, :]
    channel_mask = channel < each
    mask = channel_mask & (pixel < pixels)
    at = (inner + channel) * pixels + pixel
    dy_ptr += sample * dy_batch_stride
    x_ptr += sample * x_batch_stride
    dy = tl.load(dy_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    weight = tl.load(weight_ptr + inner + channel, mask=channel_mask, other=0.0).to(tl.float32)
    # one for all channels of a group
    mean = tl.load(mean_ptr + group.to(tl.int64) * each)
    rstd = tl.load(rstd_ptr + group.to(tl.int64) * each)
    plain = tl.load(mean_plain_ptr + group)
    product = tl.load(mean_product_ptr + group)
    dx = rstd * (dy * weight - plain - ((x - mean) * rstd) * product)
    dx_ptr += sample * groups * each * pixels
    tl.store(dx_ptr + at, dx.to(dx_ptr.dtype.element_ty), mask=mask, eviction_policy="evict_first")
