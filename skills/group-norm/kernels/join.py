"""Join the sums over pixels: over parts of a channel, over the channels of a group, over samples."""

import torch
import triton
import triton.language as tl


def join_sums(
    tensors: tuple[torch.Tensor, ...],
    sums: torch.Tensor,
    totals: torch.Tensor,
    means: torch.Tensor,
    groups: int,
    first: int,
    count: int,
) -> None:
    """Write the sums of each channel, and means over each group, of g and of g * xhat.

    Args:
        tensors: dy, x, weight, ..., as in `backward.group_norm_backward`.
        sums: (2, splits, batch, channels) in float32, of dy and of dy * xhat over parts of the pixels.
        totals: (2, batch, channels), gets the sums over all pixels.
        means: (2, batch, groups).
        groups: of a sample.
        first: number of the first group, counted over all samples.
        count: of groups.
    """
    x, weight = tensors[1], tensors[2]
    batch, channels, pixels = x.shape
    each, splits = channels // groups, sums.shape[1]
    wide = min(triton.next_power_of_2(each), 1024)
    _join_kernel[(count,)](
        sums[0], sums[1], weight, totals[0], totals[1], means[0], means[1],
        groups, each, pixels, first, splits, batch * channels,
        SPLITS=triton.next_power_of_2(splits), CHANNELS=wide, num_warps=4,
    )  # fmt: skip


def reduce_samples(totals: torch.Tensor, dweight: torch.Tensor, dbias: torch.Tensor) -> None:
    """Write the sums over samples of `totals`, (2, batch, channels), to `dbias` and `dweight`."""
    _, batch, channels = totals.shape
    _reduce_kernel[(triton.cdiv(channels, 32),)](
        totals[0], totals[1], dweight, dbias, batch, channels, ROWS=32, BLOCK=32, num_warps=4
    )


@triton.jit
def _join_kernel(
    plain_ptr, product_ptr, weight_ptr, total_plain_ptr, total_product_ptr, mean_plain_ptr,
    mean_product_ptr,
    groups, each, pixels, first, splits, split_stride,
    SPLITS: tl.constexpr,
    CHANNELS: tl.constexpr,
):  # fmt: skip
    group = first + tl.program_id(0)
    weight_ptr += group % groups * each
    # a group's channels lie one after another, and so do groups and samples
    base = group.to(tl.int64) * each
    split = tl.arange(0, SPLITS)[:, None]
    mean_plain = tl.zeros([CHANNELS], tl.float32)
    mean_product = tl.zeros([CHANNELS], tl.float32)
    for start in range(0, each, CHANNELS):
        channel = start + tl.arange(0, CHANNELS)
        channel_mask = channel < each
        at = base + split.to(tl.int64) * split_stride + channel[None, :]
        mask = (split < splits) & channel_mask[None, :]
        plain = tl.sum(tl.load(plain_ptr + at, mask=mask, other=0.0), axis=0)
        product = tl.sum(tl.load(product_ptr + at, mask=mask, other=0.0), axis=0)
        tl.store(total_plain_ptr + base + channel, plain, mask=channel_mask)
        tl.store(total_product_ptr + base + channel, product, mask=channel_mask)
        weight = tl.load(weight_ptr + channel, mask=channel_mask, other=0.0).to(tl.float32)
        mean_plain += plain * weight
        mean_product += product * weight
    elements = pixels * each * 1.0
    tl.store(mean_plain_ptr + group, tl.sum(mean_plain, axis=0) / elements)
    tl.store(mean_product_ptr + group, tl.sum(mean_product, axis=0) / elements)


@triton.jit
def _reduce_kernel(
    plain_ptr, product_ptr, dweight_ptr, dbias_ptr, batch, channels,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    plain = tl.zeros([ROWS, BLOCK], tl.float32)
    product = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, batch, ROWS):
        sample = start + tl.arange(0, ROWS)
        mask = (sample < batch)[:, None] & (channel < channels)[None, :]
        at = sample.to(tl.int64)[:, None] * channels + channel[None, :]
        plain += tl.load(plain_ptr + at, mask=mask, other=0.0)
        product += tl.load(product_ptr + at, mask=mask, other=0.0)
    dbias = tl.sum(plain, axis=0).to(dbias_ptr.dtype.element_ty)
    dweight = tl.sum(product, axis=0).to(dweight_ptr.dtype.element_ty)
    tl.store(dbias_ptr + channel, dbias, mask=channel < channels)
    tl.store(dweight_ptr + channel, dweight, mask=channel < channels)
