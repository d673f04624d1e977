"""Loss and gradient on Hopper with each row read once from device memory, for 65536 to 131072 classes.

A row of 128256 16-bit logits is 250 KB, more than the shared memory of a multiprocessor (227 KB) and as much as its
registers. One program holds all of a multiprocessor: a ring of chunks in shared memory takes 224 KB of the row,
registers the rest. A row is passed twice, for the sums and for the gradient; the second pass frees one chunk after
another and asks for the next row's in its place, so that device memory stays busy. Every thread reads what it copied
itself. Device memory: 2 * rows * cols elements, and the second-level cache need not hold anything.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from . import training
from .lanes import check
from .training import add_up, check_reduction, count_scale

LEAST_CLASSES = 65536
MOST_CLASSES = 131072
CHUNK_COLS = 8192
# the shared memory that one program may have on sm_90, less 2 KB for the exchange of the sums
SHARED_BYTES = 232448 - 2048

LOG2E = gl.constexpr(1.4426950408889634)
INF = gl.constexpr(float("inf"))


def cross_entropy_with_gradient(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    vocab: int,
    CHUNK: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean or the sum of the losses, and its gradient with respect to the logits.

    Args:
        logits: (rows, cols) in float16 or bfloat16, cols a multiple of 16.
        target: (rows,), integers.
        reduction: `mean`, over the rows that are not ignored, or `sum`. The mean of no row is 0.
        ignore_index, label_smoothing, z_loss: as in training.py.
        vocab: number of classes, more than `LEAST_CLASSES` and at most `MOST_CLASSES`.
        CHUNK: columns of one chunk of the ring, a power of two.
        WARPS: warps in one program.

    Where the elements of a row do not lie next to each other, or rows do not start at multiples of 16 elements and
    16 bytes, the call goes to training.py.

    Returns:
        loss, () in float32; dlogits, (rows, cols), contiguous, in the dtype of `logits`, 0 in ignored
        rows and past `vocab`.

    Raises:
        ValueError: shapes or dtypes are not as above, or the reduction is unknown.
    """
    check(logits, target, vocab)
    check_reduction(reduction)
    rows, cols = logits.shape
    if logits.element_size() != 2 or cols % 16 or not LEAST_CLASSES < vocab <= MOST_CLASSES:
        raise ValueError(f"{vocab} classes in {cols} columns of {logits.dtype}; see the limits")
    if logits.stride(1) != 1 or logits.stride(0) % 16 or logits.data_ptr() % 16:
        return training.cross_entropy_with_gradient(
            logits, target, reduction=reduction, ignore_index=ignore_index,
            label_smoothing=label_smoothing, z_loss=z_loss, vocab=vocab,
        )  # fmt: skip
    target = target.contiguous()
    dlogits = torch.empty((rows, cols), dtype=logits.dtype, device=logits.device)
    losses = torch.empty((rows,), dtype=torch.float32, device=logits.device)
    scale = count_scale(target, reduction, ignore_index)
    chunk = CHUNK or CHUNK_COLS
    chunks = triton.cdiv(vocab, chunk)
    # the last chunk, where vocab ends, is always in registers, so that the ring needs no masks
    ring = min(chunks - 1, SHARED_BYTES // (2 * chunk))
    sm_count = torch.cuda.get_device_properties(logits.device).multi_processor_count
    # as many rows for each
    programs = triton.cdiv(rows, max(1, triton.cdiv(rows, sm_count)))
    if programs:
        _ring_kernel[(programs,)](
            logits, target, scale, losses, dlogits, logits.stride(0), rows, cols, vocab,
            ignore_index, label_smoothing, z_loss,
            CHUNK=chunk, RING=ring, HELD=chunks - ring, SMOOTH=label_smoothing > 0,
            num_warps=WARPS or 16,
        )  # fmt: skip
    return add_up(losses, scale), dlogits


@gluon.jit
def _absorb(x, largest, total):
    """Add a chunk, [CHUNK / 8, 8], to the running maximum and sum of each lane."""
    grown = gl.maximum(largest, gl.max(x, axis=1))
    # inf - inf is NaN; 0 keeps exp(-inf) at 0 and exp(inf) at inf
    origin = gl.where(gl.abs(grown) == INF, 0.0, grown)
    shift = gl.expand_dims(origin * LOG2E, 1)
    added = gl.sum(gl.exp2(x * LOG2E - shift), axis=1)
    return grown, total * gl.exp2((largest - origin) * LOG2E) + added


@gluon.jit
def _gradient(x, col, target, shift, factor, spread, share):
    dx = gl.exp2(x * LOG2E - shift) * factor - spread
    return gl.where(col == target, dx - share, dx)


@gluon.jit
def _ring_kernel(
    logits_ptr, target_ptr, scale_ptr, losses_ptr, dlogits_ptr,
    row_stride, rows, cols, vocab, ignore_index, smoothing, z_loss,
    CHUNK: gl.constexpr,
    RING: gl.constexpr,
    HELD: gl.constexpr,
    SMOOTH: gl.constexpr,
):  # fmt: skip
    # 8 elements of 2 bytes are the 16 of one asynchronous copy, and one lane of the sums
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [32, 1], [gl.num_warps(), 1], [1, 0])
    lanes: gl.constexpr = gl.SliceLayout(1, layout)
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    dtype: gl.constexpr = logits_ptr.dtype.element_ty
    ring = gl.allocate_shared_memory(dtype, [RING, CHUNK // 8, 8], plain)
    lane = gl.expand_dims(gl.arange(0, CHUNK // 8, layout=lanes), 1) * 8
    lane = lane + gl.expand_dims(gl.arange(0, 8, layout=gl.SliceLayout(0, layout)), 0)
    program = gl.program_id(0)
    step = gl.num_programs(0)
    scale = gl.load(scale_ptr)

    # a row that is ignored is not read: its copies are masked off, which leaves zeros
    target_ahead = gl.load(target_ptr + program)
    ahead_ptr = logits_ptr + program.to(gl.int64) * row_stride
    for chunk in range(RING):
        mask = (chunk * CHUNK + lane < cols) & (target_ahead != ignore_index)
        at = ahead_ptr + chunk * CHUNK + lane
        async_copy.async_copy_global_to_shared(ring.index(chunk), at, mask=mask)
        async_copy.commit_group()

    for row in range(program, rows, step):
        target = target_ahead
        counts = target != ignore_index
        inside = (target >= 0) & (target < vocab)
        row_ptr = logits_ptr + row.to(gl.int64) * row_stride
        out_ptr = dlogits_ptr + row.to(gl.int64) * cols
        row_ahead = row + step
        more = row_ahead < rows
        target_ahead = gl.load(target_ptr + row_ahead, mask=more, other=ignore_index)
        live = target_ahead != ignore_index
        ahead_ptr = logits_ptr + row_ahead.to(gl.int64) * row_stride

        # on their way while the ring is added up
        picked = gl.load(row_ptr + gl.where(inside, target, 0)).to(gl.float32)
        held = ()
        for part in gl.static_range(HELD):
            col = (RING + part) * CHUNK + lane
            held = held + (gl.load(row_ptr + col, mask=(col < cols) & counts, other=0.0),)  # noqa: RUF005

        largest = gl.full([CHUNK // 8], -INF, gl.float32, layout=lanes)
        total = gl.zeros([CHUNK // 8], gl.float32, layout=lanes)
        summed = gl.zeros([CHUNK // 8], gl.float32, layout=lanes)
        for chunk in range(RING):
            # an empty group in each turn keeps the number of younger groups the same
            async_copy.wait_group(RING - 1)
            async_copy.commit_group()
            x = ring.index(chunk).load(layout).to(gl.float32)
            largest, total = _absorb(x, largest, total)
            if SMOOTH:
                summed += gl.sum(x, axis=1)
        for part in gl.static_range(HELD):
            x = held[part].to(gl.float32)
            if part == HELD - 1:
                real = (RING + part) * CHUNK + lane < vocab
                if SMOOTH:
                    summed += gl.sum(gl.where(real, x, 0.0), axis=1)
                x = gl.where(real, x, -INF)
            elif SMOOTH:
                summed += gl.sum(x, axis=1)
            largest, total = _absorb(x, largest, total)
        top = gl.max(largest, axis=0)
        origin = gl.where(gl.abs(top) == INF, 0.0, top)
        lse = origin + gl.log(gl.sum(total * gl.exp2((largest - origin) * LOG2E), axis=0))
        loss = lse - (1 - smoothing) * picked
        factor = gl.where(inside, scale, float("nan"))
        share = factor * (1 - smoothing)
        spread = factor * 0.0
        if SMOOTH:
            loss -= smoothing * (gl.sum(summed, axis=0) / vocab)
            spread = factor * smoothing / vocab
        if z_loss > 0:
            loss += z_loss * lse * lse
        loss = gl.where(inside, loss, float("nan"))
        gl.store(losses_ptr + row, gl.where(counts, loss, 0.0))
        # the zeros of an ignored row are finite, so 0 times their probability is 0
        factor = gl.where(counts, factor * (1 + 2 * z_loss * lse), 0.0)
        share = gl.where(counts, share, 0.0)
        spread = gl.where(counts, spread, 0.0)
        shift = lse * LOG2E

        for chunk in range(RING):
            col = chunk * CHUNK + lane
            taken = ring.index(chunk).load(layout)
            # free now: what it held is in registers
            async_copy.async_copy_global_to_shared(
                ring.index(chunk), ahead_ptr + col, mask=(col < cols) & live
            )
            async_copy.commit_group()
            dx = _gradient(taken.to(gl.float32), col, target, shift, factor, spread, share)
            gl.store(out_ptr + col, dx.to(dtype))
        for part in gl.static_range(HELD):
            col = (RING + part) * CHUNK + lane
            dx = _gradient(held[part].to(gl.float32), col, target, shift, factor, spread, share)
            if part == HELD - 1:
                dx = gl.where(col < vocab, dx, 0.0)
            gl.store(out_ptr + col, dx.to(dtype), mask=col < cols)
        for start in range((RING + HELD) * CHUNK, cols, CHUNK):
            zeros = gl.zeros([CHUNK // 8, 8], dtype, layout=layout)
            gl.store(out_ptr + start + lane, zeros, mask=start + lane < cols)
    async_copy.wait_group(0)
