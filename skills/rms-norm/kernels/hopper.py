"""Gradient of the RMS norm of wide rows on Hopper, with the next row under way while one is done.

One program holds all of a multiprocessor. The float32 dweight of up to 32768 columns lies in
its registers (128 KB at 32768), the weight and a ring of chunks of x and dy in its shared
memory. A row passes the ring twice: once for the sums over the row, once for dx and dweight;
the second pass frees one chunk after another and asks for the next row's in its place, so that
device memory stays busy through the sums. Device memory: x, dy and dx once each, 3 * rows *
cols elements, and 8 * programs * cols bytes for the shares of dweight.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy

from . import backward
from .reduce import reduce_partials

MAX_COLS = 32768
CHUNK_COLS = 4096
# the shared memory that one program may have on sm_90, less 2 KB for the exchange of the sums
SHARED_BYTES = 232448 - 2048


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    CHUNK: int | None = None,
    RING: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rms_norm` with respect to `x` and `weight`.

    Args:
        dy: (rows, cols), gradient of the output, in the dtype of `x`.
        x: (rows, cols) in float16 or bfloat16, cols a multiple of 16 and at most `MAX_COLS`.
        weight: (cols,), contiguous, in the dtype of `x`.
        eps: added to the mean square.
        CHUNK: columns of one chunk of the ring, a power of two.
        RING: chunks in the ring, more than one row has.
        WARPS: warps in one program.

    Where the elements of a row do not lie next to each other, or rows do not start at multiples
    of 16 elements and 16 bytes, the call goes to backward.py.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `x`; dweight, (cols,), in the dtype of
        `weight`. Both computed in float32 and rounded once.

    Raises:
        ValueError: shapes or dtypes are not as above.
    """
    _check(dy, dy, x, weight)
    if not (_reachable(dy) and _reachable(x) and _reachable(weight[None])):
        return backward.rms_norm_backward(dy, x, weight, eps=eps)
    return _launch(dy, dy, x, weight, eps, False, CHUNK, RING, WARPS, 0)


def add_rms_norm_backward(
    dy: torch.Tensor,
    dsummed: torch.Tensor,
    summed: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    CHUNK: int | None = None,
    RING: int | None = None,
    WARPS: int | None = None,
    AHEAD: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `add_rms_norm` with respect to `x` (or `residual`) and `weight`.

    Args:
        dy: (rows, cols), gradient of the norm, as in `rms_norm_backward`.
        dsummed: (rows, cols), gradient of the sum, as dy.
        summed: (rows, cols), the sum that `add_rms_norm` returned; as x in `rms_norm_backward`.
        weight: (cols,), contiguous, in the dtype of `summed`.
        eps: added to the mean square.
        CHUNK, RING, WARPS: as in `rms_norm_backward`.
        AHEAD: chunks of dsummed on their way to registers.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `summed`: one gradient, for x and residual
        alike; dweight, (cols,), in the dtype of `weight`.

    Raises:
        ValueError: shapes or dtypes are not as above.
    """
    _check(dy, dsummed, summed, weight)
    if not all(_reachable(tensor) for tensor in (dy, dsummed, summed, weight[None])):
        return backward.add_rms_norm_backward(dy, dsummed, summed, weight, eps=eps)
    # 349.1, 313.2, 277.5, 272.2 us with 0, 1, 2, 3 at 4096 x 32768 (H200)
    ahead = 3 if AHEAD is None else AHEAD
    return _launch(dy, dsummed, summed, weight, eps, True, CHUNK, RING, WARPS, ahead)


def _check(dy: torch.Tensor, dsummed: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.ndim != 2 or x.element_size() != 2:
        raise ValueError(f"x is {x.ndim}-D {x.dtype}, not 2-D float16 or bfloat16")
    cols = x.shape[1]
    if cols % 16 or not 16 <= cols <= MAX_COLS:
        raise ValueError(f"{cols} columns; must be a multiple of 16, at most {MAX_COLS}")
    for grad in (dy, dsummed):
        if grad.shape != x.shape or grad.dtype != x.dtype:
            raise ValueError(
                f"a gradient is {tuple(grad.shape)} {grad.dtype}, x is {tuple(x.shape)} {x.dtype}"
            )
    if weight.shape != (cols,) or not weight.is_contiguous() or weight.dtype != x.dtype:
        raise ValueError(f"weight is {tuple(weight.shape)} {weight.dtype}, x is {x.dtype}")


def _reachable(tensor: torch.Tensor) -> bool:
    """Tell whether asynchronous copies of 16 bytes can read the rows."""
    return tensor.stride(1) == 1 and tensor.stride(0) % 16 == 0 and tensor.data_ptr() % 16 == 0


def _launch(
    dy: torch.Tensor,
    dsummed: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    add: bool,
    chunk: int | None,
    ring: int | None,
    warps: int | None,
    ahead: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, cols = x.shape
    chunk = chunk or CHUNK_COLS
    chunks = triton.cdiv(cols, chunk)
    if ring is None:
        # 2 bytes of weight, 2 of x and 2 of dy for each column
        ring = min(2 * chunks + 2, (SHARED_BYTES - 2 * chunks * chunk) // (4 * chunk))
        # with dsummed in registers, the last chunk that fits costs 16 bytes of spills a thread:
        # 281.4 us with 10, 277.5 us with 9 at 4096 x 32768 (H200)
        ring -= add
    sm_count = torch.cuda.get_device_properties(x.device).multi_processor_count
    # as many rows for each: 128 programs are 3 us faster than 132 at 4096 rows
    programs = triton.cdiv(rows, max(1, triton.cdiv(rows, sm_count)))
    dx = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    dweight = torch.empty((cols,), dtype=weight.dtype, device=weight.device)
    partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
    if programs:
        _ring_kernel[(programs,)](
            dy, dsummed, x, weight, dx, partial, dy.stride(0), dsummed.stride(0), x.stride(0),
            rows, cols, eps,
            ADD=add, CHUNK=chunk, CHUNKS=chunks, RING=ring, WHOLE=cols % chunk == 0,
            AHEAD=min(chunks, ahead), num_warps=warps or 16,
        )  # fmt: skip
    reduce_partials(partial, dweight)
    return dx, dweight


@gluon.jit
def _plus_pair(first_a, second_a, first_b, second_b):
    return first_a + first_b, second_a + second_b


@gluon.jit
def _ring_kernel(
    dy_ptr, dsummed_ptr, x_ptr, weight_ptr, dx_ptr, partial_ptr,
    dy_row_stride, dsummed_row_stride, x_row_stride,
    rows, cols, eps,
    ADD: gl.constexpr,
    CHUNK: gl.constexpr,
    CHUNKS: gl.constexpr,
    RING: gl.constexpr,
    WHOLE: gl.constexpr,
    AHEAD: gl.constexpr,
):  # fmt: skip
    # 8 elements of 2 bytes are the 16 of one asynchronous copy
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [gl.num_warps()], [0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    dtype: gl.constexpr = x_ptr.dtype.element_ty
    x_ring = gl.allocate_shared_memory(dtype, [RING, CHUNK], plain)
    dy_ring = gl.allocate_shared_memory(dtype, [RING, CHUNK], plain)
    weights = gl.allocate_shared_memory(dtype, [CHUNKS, CHUNK], plain)
    lane = gl.arange(0, CHUNK, layout=layout)
    program = gl.program_id(0)
    step = gl.num_programs(0)

    # one group of copies for each chunk; the weight comes in the first. Tuples are joined by +,
    # because Gluon does not unpack them
    dweight = ()
    for chunk in gl.static_range(CHUNKS):
        col = chunk * CHUNK + lane
        mask = (col < cols) | WHOLE
        async_copy.async_copy_global_to_shared(weights.index(chunk), weight_ptr + col, mask=mask)
        dweight = dweight + (gl.zeros([CHUNK], gl.float32, layout=layout),)  # noqa: RUF005
    for ahead in gl.static_range(RING):
        row = program + (ahead // CHUNKS) * step
        col = (ahead % CHUNKS) * CHUNK + lane
        mask = ((col < cols) | WHOLE) & (row < rows)
        x_at = x_ptr + row.to(gl.int64) * x_row_stride + col
        dy_at = dy_ptr + row.to(gl.int64) * dy_row_stride + col
        async_copy.async_copy_global_to_shared(x_ring.index(ahead), x_at, mask=mask)
        async_copy.async_copy_global_to_shared(dy_ring.index(ahead), dy_at, mask=mask)
        async_copy.commit_group()

    base = 0
    for row in range(program, rows, step):
        squares = gl.zeros([CHUNK], gl.float32, layout=layout)
        products = gl.zeros([CHUNK], gl.float32, layout=layout)
        for chunk in gl.static_range(CHUNKS):
            slot = base + chunk
            slot = gl.where(slot >= RING, slot - RING, slot)
            # the groups asked for after this chunk's are RING - 1 - chunk
            async_copy.wait_group(RING - 1 - chunk)
            x = x_ring.index(slot).load(layout).to(gl.float32)
            dy = dy_ring.index(slot).load(layout).to(gl.float32)
            weight = weights.index(chunk).load(layout).to(gl.float32)
            squares += x * x
            products += dy * weight * x
        waiting = ()
        if ADD:
            # under way during the exchange of the sums
            for chunk in gl.static_range(AHEAD):
                col = chunk * CHUNK + lane
                at = dsummed_ptr + row.to(gl.int64) * dsummed_row_stride + col
                held = gl.load(at, mask=(col < cols) | WHOLE, other=0.0)
                waiting = waiting + (held,)  # noqa: RUF005
        # a pair, so that both sums cross the warps in one exchange
        total_squares, total_products = gl.reduce((squares, products), 0, _plus_pair)
        rstd = gl.rsqrt(total_squares / cols + eps)
        scale = total_products * rstd / cols

        grown = ()
        for chunk in gl.static_range(CHUNKS):
            slot = base + chunk
            slot = gl.where(slot >= RING, slot - RING, slot)
            col = chunk * CHUNK + lane
            mask = (col < cols) | WHOLE
            x = x_ring.index(slot).load(layout)
            dy = dy_ring.index(slot).load(layout)
            # free now: what it held is in registers
            row_ahead = row + ((chunk + RING) // CHUNKS) * step
            col_ahead = ((chunk + RING) % CHUNKS) * CHUNK + lane
            mask_ahead = ((col_ahead < cols) | WHOLE) & (row_ahead < rows)
            x_at = x_ptr + row_ahead.to(gl.int64) * x_row_stride + col_ahead
            dy_at = dy_ptr + row_ahead.to(gl.int64) * dy_row_stride + col_ahead
            async_copy.async_copy_global_to_shared(x_ring.index(slot), x_at, mask=mask_ahead)
            async_copy.async_copy_global_to_shared(dy_ring.index(slot), dy_at, mask=mask_ahead)
            async_copy.commit_group()
            weight = weights.index(chunk).load(layout).to(gl.float32)
            xhat = x.to(gl.float32) * rstd
            dy = dy.to(gl.float32)
            dx = rstd * (dy * weight - xhat * scale)
            if ADD:
                if chunk + AHEAD < CHUNKS:
                    col_held = (chunk + AHEAD) * CHUNK + lane
                    at = dsummed_ptr + row.to(gl.int64) * dsummed_row_stride + col_held
                    held = gl.load(at, mask=(col_held < cols) | WHOLE, other=0.0)
                    waiting = waiting + (held,)  # noqa: RUF005
                dx += waiting[chunk].to(gl.float32)
            gl.store(dx_ptr + row.to(gl.int64) * cols + col, dx.to(dtype), mask=mask)
            grown = grown + (dweight[chunk] + dy * xhat,)  # noqa: RUF005
        dweight = grown
        base = base + CHUNKS
        base = gl.where(base >= RING, base - RING, base)

    async_copy.wait_group(0)
    for chunk in gl.static_range(CHUNKS):
        col = chunk * CHUNK + lane
        at = partial_ptr + program.to(gl.int64) * cols + col
        gl.store(at, dweight[chunk], mask=(col < cols) | WHOLE)
