"""Forward kernels where the pixels of a channel lie together: a group is one run of memory."""

import torch
import triton
import triton.language as tl

from .layout import ELEMENTS, tile_shape


def normalise_groups(
    tensors: tuple[torch.Tensor, ...],
    groups: int,
    eps: float,
    block: int | None,
    warps: int | None,
) -> None:
    """Write y, mean and rstd, each group by one program that reads it twice.

    Args:
        tensors: x, weight, bias, y, mean, rstd, as in `forward.group_norm`.
        groups: of a sample.
        eps: added to the variance.
        block, warps: BLOCK and WARPS there; None for the kernel's own choice.
    """
    x, weight, bias, y, mean, rstd = tensors
    batch, channels, pixels = x.shape
    each = channels // groups
    length = each * pixels
    whole = triton.next_power_of_2(length)
    if block is None:
        # 8 values a thread at 32 warps, as for wide rows of a layer norm; a group that does not end
        # with a block needs more registers than 64 a thread
        most = ELEMENTS if length % (2 * ELEMENTS) else 2 * ELEMENTS
        block = max(256, min(whole, most))
    warps = warps or max(1, min(32 * 32 // _warp_size(x.device), block // 256))
    across, along = tile_shape(each, pixels, block)
    _group_kernel[(batch * groups,)](
        x, weight, bias, y, mean, rstd, x.stride(0), groups, each, pixels, length, eps,
        EACH=triton.next_power_of_2(each), ACROSS=across, ALONG=along,
        BLOCK=block, VECTOR=16 // x.element_size(), WHOLE=length % block == 0, num_warps=warps,
    )  # fmt: skip


def sum_groups(
    x: torch.Tensor,
    partial: torch.Tensor,
    groups: int,
    first: int,
    count: int,
    chunk: int,
    block: int,
    warps: int,
) -> None:
    """Write mean and centred squares of each chunk of a group.

    Args:
        x: (batch, channels, pixels), samples dense.
        partial: (2, batch * groups, splits) in float32.
        groups: of a sample.
        first: number of the first group, counted over all samples.
        count: of groups.
        chunk: elements of a chunk, a multiple of block.
        block: elements that a program holds at once.
        warps: of a program.
    """
    _, channels, pixels = x.shape
    length, splits = channels // groups * pixels, partial.shape[2]
    _sum_kernel[(count * splits,)](
        x, partial[0], partial[1], x.stride(0), groups, length, first, splits, chunk,
        BLOCK=block, VECTOR=16 // x.element_size(), WHOLE=length % chunk == 0, num_warps=warps,
    )  # fmt: skip


def apply_planes(
    tensors: tuple[torch.Tensor, ...],
    partial: torch.Tensor,
    groups: int,
    eps: float,
    first: int,
    count: int,
    chunk: int,
    tile: tuple[int, int],
    warps: int,
) -> None:
    """Join the chunks of each group and write its y, mean and rstd.

    Args:
        tensors: x, weight, bias, y, mean, rstd, as in `forward.group_norm`.
        partial: as `sum_groups` left it.
        groups, first, count, chunk: as there.
        eps: added to the variance.
        tile: channels and pixels of a program.
        warps: of a program.
    """
    x, weight, bias, y, mean, rstd = tensors
    _, channels, pixels = x.shape
    each, splits = channels // groups, partial.shape[2]
    rows, columns = triton.cdiv(each, tile[0]), triton.cdiv(pixels, tile[1])
    _apply_kernel[(count * rows * columns,)](
        x, weight, bias, y, mean, rstd, partial[0], partial[1], x.stride(0), groups, each, pixels, each * pixels, eps,
        first, splits, chunk, rows, columns,
        EACH=triton.next_power_of_2(each), SPLITS=triton.next_power_of_2(splits),
        ACROSS=tile[0], ALONG=tile[1], num_warps=warps,
    )  # fmt: skip


def _warp_size(device: torch.device) -> int:
    if device.type == "cpu":  # Triton's interpreter
        return 32
    return int(torch.cuda.get_device_properties(device).warp_size)


@triton.jit
def _group_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr,
    batch_stride, groups, each, pixels, length, eps,
    EACH: tl.constexpr,
    ACROSS: tl.constexpr,
    ALONG: tl.constexpr,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0)
    sample = group // groups
    # int64, because offsets pass 2**31 on large inputs
    inner = (group - sample * groups).to(tl.int64)
    x_ptr += sample.to(tl.int64) * batch_stride + inner * length
    y_ptr += group.to(tl.int64) * length
    mean, squares = _moments(x_ptr, length, BLOCK, VECTOR, WHOLE)
    rstd = _inverse_root(squares / length + eps)
    _store_statistics(mean_ptr, rstd_ptr, group, each, mean, rstd, EACH)
    weight_ptr += inner * each
    bias_ptr += inner * each
    for channel in range(0, each, ACROSS):
        for pixel in range(0, pixels, ALONG):
            at, row, row_mask, mask = _tile(channel, pixel, each, pixels, ACROSS, ALONG)
            x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first")
            y = _affine(x, mean, rstd, weight_ptr + row, bias_ptr + row, row_mask)
            y = y.to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + at, y, mask=mask, eviction_policy="evict_first")


@triton.jit
def _sum_kernel(
    x_ptr, mean_ptr, squares_ptr, batch_stride, groups, length, first, splits, chunk,
    BLOCK: tl.constexpr,
    VECTOR: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    group = first + tl.program_id(0) // splits
    split = tl.program_id(0) % splits
    sample = group // groups
    inner = (group - sample * groups).to(tl.int64)
    x_ptr += sample.to(tl.int64) * batch_stride + inner * length + split.to(tl.int64) * chunk
    size = tl.minimum(chunk, length - split * chunk)
    mean, squares = _moments(x_ptr, size, BLOCK, VECTOR, WHOLE)
    at = group.to(tl.int64) * splits + split
    tl.store(mean_ptr + at, mean)
    tl.store(squares_ptr + at, squares)


@triton.jit
def _apply_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, partial_mean_ptr, partial_squares_ptr,
    batch_stride, groups, each, pixels, length, eps, first, splits, chunk, rows, columns,
    EACH: tl.constexpr,
    SPLITS: tl.constexpr,
    ACROSS: tl.constexpr,
    ALONG: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0) % (rows * columns)
    group = first + tl.program_id(0) // (rows * columns)
    sample = group // groups
    inner = (group - sample * groups).to(tl.int64)
    x_ptr += sample.to(tl.int64) * batch_stride + inner * length
    channel, pixel = tile // columns * ACROSS, tile % columns * ALONG
    at, row, row_mask, mask = _tile(channel, pixel, each, pixels, ACROSS, ALONG)
    # asked for first: nothing that is joined below decides where it lies
    x = tl.load(x_ptr + at, mask=mask, other=0.0, eviction_policy="evict_first")

    split = tl.arange(0, SPLITS)
    count = tl.minimum(tl.maximum(length - split * chunk, 0), chunk).to(tl.float32)
    split_at = group.to(tl.int64) * splits + split
    means = tl.load(partial_mean_ptr + split_at, mask=split < splits, other=0.0)
    squares = tl.load(partial_squares_ptr + split_at, mask=split < splits, other=0.0)
    mean = _quotient(tl.sum(means * count, axis=0), length)
    away = means - mean
    rstd = _inverse_root(tl.sum(squares + count * away * away, axis=0) / length + eps)
    if tile == 0:
        _store_statistics(mean_ptr, rstd_ptr, group, each, mean, rstd, EACH)

    at_weight, at_bias = weight_ptr + inner * each + row, bias_ptr + inner * each + row
    y = _affine(x, mean, rstd, at_weight, at_bias, row_mask).to(y_ptr.dtype.element_ty)
    y_ptr += group.to(tl.int64) * length
    tl.store(y_ptr + at, y, mask=mask, eviction_policy="evict_first")


@triton.jit
def _moments(x_ptr, size, BLOCK: tl.constexpr, VECTOR: tl.constexpr, WHOLE: tl.constexpr):
    """Return mean and centred squares of `size` elements that lie next to each other."""
    lane = tl.arange(0, BLOCK)
    # of what one load brings to a thread, VECTOR elements
    vector = tl.arange(0, BLOCK // VECTOR)
    mean = tl.zeros([BLOCK // VECTOR], tl.float32)
    squares = tl.zeros([BLOCK // VECTOR], tl.float32)
    for start in range(0, size, BLOCK):
        at = start + lane
        # kept for the second reading
        x = tl.load(x_ptr + at, mask=(at < size) | WHOLE, other=0.0, eviction_policy="evict_last")
        x = tl.reshape(x.to(tl.float32), [BLOCK // VECTOR, VECTOR])
        # every block before this one was full
        before = start // BLOCK * VECTOR * 1.0
        if WHOLE:
            new_mean = tl.sum(x, axis=1) / VECTOR
            centred = x - new_mean[:, None]
            share = VECTOR / (before + VECTOR)
        else:
            count = _elements(size - start, vector, VECTOR)
            inside = tl.arange(0, VECTOR)[None, :] < count[:, None]
            count = count.to(tl.float32)
            new_mean = _quotient(tl.sum(x, axis=1), tl.maximum(count, 1.0))
            centred = tl.where(inside, x - new_mean[:, None], 0.0)
            share = count / tl.maximum(before + count, 1.0)
        # joined as Chan, Golub and LeVeque do: no term cancels another
        away = new_mean - mean
        squares += tl.sum(centred * centred, axis=1) + away * away * (before * share)
        mean += away * share
    count = size // BLOCK * VECTOR
    if not WHOLE:
        count += _elements(size % BLOCK, vector, VECTOR)
    count = count.to(tl.float32)
    total = _quotient(tl.sum(mean * count, axis=0), size)
    away = mean - total
    return total, tl.sum(squares + count * away * away, axis=0)


@triton.jit
def _elements(left, vector, VECTOR: tl.constexpr):
    """Return how many of the VECTOR elements of each vector there are, of `left` in a block."""
    return tl.minimum(tl.maximum(left - vector * VECTOR, 0), VECTOR)


@triton.jit
def _tile(channel, pixel, each, pixels, ACROSS: tl.constexpr, ALONG: tl.constexpr):
    """Return offsets of a tile in its group, its channels and their mask, and the tile's mask."""
    row = channel + tl.arange(0, ACROSS)[:, None]
    column = pixel + tl.arange(0, ALONG)[None, :]
    row_mask = row < each
    return row.to(tl.int64) * pixels + column, row, row_mask, row_mask & (column < pixels)


@triton.jit
def _affine(x, mean, rstd, weight_ptr, bias_ptr, mask):
    weight = tl.load(weight_ptr, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr, mask=mask, other=0.0).to(tl.float32)
    return (x.to(tl.float32) - mean) * (rstd * weight) + bias


@triton.jit
def _store_statistics(mean_ptr, rstd_ptr, group, each, mean, rstd, EACH: tl.constexpr):
    """Store the statistics of a group for each of its channels."""
    channel = tl.arange(0, EACH)
    at = group.to(tl.int64) * each + channel
    tl.store(mean_ptr + at, tl.zeros([EACH], tl.float32) + mean, mask=channel < each)
    tl.store(rstd_ptr + at, tl.zeros([EACH], tl.float32) + rstd, mask=channel < each)


@triton.jit
def _quotient(total, count):
    # rounded to nearest: a quotient of two units in the last place less, and a constant group deviates
    return tl.div_rn(total, count * 1.0)


@triton.jit
def _inverse_root(x):
    # rounded to nearest: the backward takes rstd from here, and one a program costs nothing
    return tl.div_rn(1.0, tl.sqrt_rn(x))
