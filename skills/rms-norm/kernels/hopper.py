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

from .backward import reduce_partials

MAX_COLS = 32768
# the shared memory that one program may have on sm_90, less 2 KB for the exchange of the sums
SHARED_BYTES = 232448 - 2048


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    CHUNK: int | None = None,
    RING: int | None = None,
    WARPS: int | None = None,
    PROGRAMS: int | None = None,
) -> torch.Tensor:
    """Return each row of `x` divided by its root mean square, times `weight`.

    Args:
        x: (rows, cols) in float16 or bfloat16, cols a multiple of 16 and at most `MAX_COLS`;
            elements of a row adjacent, rows a multiple of 16 elements apart.
        weight: (cols,), contiguous, in the dtype of `x`.
        eps: added to the mean square.
        CHUNK, RING, WARPS, PROGRAMS: as in `rms_norm_backward`.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`; computed in float32 and rounded once.

    Raises:
        ValueError: shapes, dtypes or strides are not as above.
    """
    _check_x(x, weight)
    rows, cols = x.shape
    whole = triton.next_power_of_2(cols)
    chunk = min(whole, CHUNK or 8192)
    chunks = whole // chunk
    ring = RING or min(3 * chunks, (SHARED_BYTES - 2 * whole) // (2 * chunk))
    programs = PROGRAMS or torch.cuda.get_device_properties(x.device).multi_processor_count
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rows:
        _forward_ring_kernel[(min(programs, rows),)](
            x, weight, y, x.stride(0), rows, cols, eps,
            CHUNK=chunk, CHUNKS=chunks, RING=ring, WHOLE=whole == cols,
            num_warps=WARPS or max(1, min(16, chunk // 256)),
        )  # fmt: skip
    return y


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    CHUNK: int | None = None,
    RING: int | None = None,
    WARPS: int | None = None,
    PROGRAMS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rms_norm` with respect to `x` and `weight`.

    Args:
        dy: (rows, cols), gradient of the output, in the dtype of `x`; elements of a row
            adjacent, rows a multiple of 16 elements apart, 0 too.
        x: (rows, cols) in float16 or bfloat16, cols a multiple of 16 and at most `MAX_COLS`;
            elements of a row adjacent, rows a multiple of 16 elements apart.
        weight: (cols,), contiguous, in the dtype of `x`.
        eps: added to the mean square.
        CHUNK: columns of one chunk of the ring, a power of two.
        RING: chunks in the ring, more than one row has.
        WARPS: warps in one program.
        PROGRAMS: programs that walk over the rows, so shares of dweight.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `x`; dweight, (cols,), in the dtype of
        `weight`. Both computed in float32 and rounded once.

    Raises:
        ValueError: shapes, dtypes or strides are not as above.
    """
    return _launch(dy, None, x, weight, eps, CHUNK, RING, WARPS, PROGRAMS)


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
    PROGRAMS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `add_rms_norm` with respect to `x` (or `residual`) and `weight`.

    Args:
        dy: (rows, cols), gradient of the norm, as in `rms_norm_backward`.
        dsummed: (rows, cols), gradient of the sum; strides as those of dy.
        summed: (rows, cols), the sum that `add_rms_norm` returned; as x in `rms_norm_backward`.
        weight: (cols,), contiguous, in the dtype of `summed`.
        eps: added to the mean square.
        CHUNK, RING, WARPS, PROGRAMS: as in `rms_norm_backward`.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `summed`: one gradient, for x and residual
        alike; dweight, (cols,), in the dtype of `weight`.

    Raises:
        ValueError: shapes, dtypes or strides are not as above.
    """
    return _launch(dy, dsummed, summed, weight, eps, CHUNK, RING, WARPS, PROGRAMS)


def _check_x(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.ndim != 2 or x.element_size() != 2:
        raise ValueError(f"x is {x.ndim}-D {x.dtype}, not 2-D float16 or bfloat16")
    cols = x.shape[1]
    if cols % 16 or not 16 <= cols <= MAX_COLS:
        raise ValueError(f"{cols} columns; must be a multiple of 16, at most {MAX_COLS}")
    _check("x", x, x)
    if weight.shape != (cols,) or not weight.is_contiguous() or weight.dtype != x.dtype:
        raise ValueError(f"weight is {tuple(weight.shape)} {weight.dtype}, x is {x.dtype}")


def _check(name: str, tensor: torch.Tensor, x: torch.Tensor) -> None:
    if tensor.shape != x.shape or tensor.dtype != x.dtype:
        raise ValueError(
            f"{name} is {tuple(tensor.shape)} {tensor.dtype}, x is {tuple(x.shape)} {x.dtype}"
        )
    # 16-byte asynchronous copies
    if tensor.stride(1) != 1 or tensor.stride(0) % 16 or tensor.data_ptr() % 16:
        raise ValueError(f"{name} has strides {tensor.stride()}: rows must lie 16 elements apart")


def _launch(
    dy: torch.Tensor,
    dsummed: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    chunk: int | None,
    ring: int | None,
    warps: int | None,
    programs: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    _check_x(x, weight)
    rows, cols = x.shape
    _check("dy", dy, x)
    add = dsummed is not None
    if dsummed is not None:
        _check("dsummed", dsummed, x)
    whole = triton.next_power_of_2(cols)
    chunk = min(whole, chunk or 8192)
    chunks = whole // chunk
    # 2 bytes of x and 2 of dy for each element of a chunk
    ring = ring or min(2 * chunks + 2, (SHARED_BYTES - 2 * whole) // (4 * chunk))
    programs = programs or torch.cuda.get_device_properties(x.device).multi_processor_count
    programs = min(programs, rows)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    dweight = torch.empty_like(weight)
    partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
    extra = dsummed if add else dy
    if programs:
        _ring_kernel[(programs,)](
            dy, extra, x, weight, dx, partial, dy.stride(0), extra.stride(0), x.stride(0),
            rows, cols, eps,
            ADD=add, CHUNK=chunk, CHUNKS=chunks, RING=ring, WHOLE=whole == cols,
            num_warps=warps or max(1, min(16, chunk // 256)),
        )  # fmt: skip
    reduce_partials(partial, dweight)
    return dx, dweight


@gluon.jit
def _plus_pair(first_a, second_a, first_b, second_b):
    return first_a + first_b, second_a + second_b


@gluon.jit
def _forward_ring_kernel(
    x_ptr, weight_ptr, y_ptr, x_row_stride, rows, cols, eps,
    CHUNK: gl.constexpr,
    CHUNKS: gl.constexpr,
    RING: gl.constexpr,
    WHOLE: gl.constexpr,
):  # fmt: skip
    # 8 elements of 2 bytes are the 16 of one asynchronous copy
    layout: gl.constexpr = gl.BlockedLayout([8], [32], [gl.num_warps()], [0])
    plain: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    dtype: gl.constexpr = x_ptr.dtype.element_ty
    x_ring = gl.allocate_shared_memory(dtype, [RING, CHUNK], plain)
    weights = gl.allocate_shared_memory(dtype, [CHUNKS, CHUNK], plain)
    lane = gl.arange(0, CHUNK, layout=layout)
    program = gl.program_id(0)
    step = gl.num_programs(0)
    for chunk in gl.static_range(CHUNKS):
        col = chunk * CHUNK + lane
        mask = (col < cols) | WHOLE
        async_copy.async_copy_global_to_shared(weights.index(chunk), weight_ptr + col, mask=mask)
    for ahead in gl.static_range(RING):
        row = program + (ahead // CHUNKS) * step
        col = (ahead % CHUNKS) * CHUNK + lane
        mask = ((col < cols) | WHOLE) & (row < rows)
        x_at = x_ptr + row.to(gl.int64) * x_row_stride + col
        async_copy.async_copy_global_to_shared(x_ring.index(ahead), x_at, mask=mask)
        async_copy.commit_group()

    base = 0
    for row in range(program, rows, step):
        squares = gl.zeros([CHUNK], gl.float32, layout=layout)
        for chunk in gl.static_range(CHUNKS):
            slot = base + chunk
            slot = gl.where(slot >= RING, slot - RING, slot)
            async_copy.wait_group(RING - 1 - chunk)
            x = x_ring.index(slot).load(layout).to(gl.float32)
            squares += x * x
        rstd = gl.rsqrt(gl.sum(squares, axis=0) / cols + eps)
        for chunk in gl.static_range(CHUNKS):
            slot = base + chunk
            slot = gl.where(slot >= RING, slot - RING, slot)
            col = chunk * CHUNK + lane
            x = x_ring.index(slot).load(layout)
            # free now: what it held is in registers
            row_ahead = row + ((chunk + RING) // CHUNKS) * step
            col_ahead = ((chunk + RING) % CHUNKS) * CHUNK + lane
            mask_ahead = ((col_ahead < cols) | WHOLE) & (row_ahead < rows)
            x_at = x_ptr + row_ahead.to(gl.int64) * x_row_stride + col_ahead
            async_copy.async_copy_global_to_shared(x_ring.index(slot), x_at, mask=mask_ahead)
            async_copy.commit_group()
            weight = weights.index(chunk).load(layout).to(gl.float32)
            y = (x.to(gl.float32) * rstd * weight).to(dtype)
            gl.store(y_ptr + row.to(gl.int64) * cols + col, y, mask=(col < cols) | WHOLE)
        base = base + CHUNKS
        base = gl.where(base >= RING, base - RING, base)
    async_copy.wait_group(0)


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

    # one group of copies for each chunk; the weight comes in the first
    dweight = ()
    for chunk in gl.static_range(CHUNKS):
        col = chunk * CHUNK + lane
        mask = (col < cols) | WHOLE
        async_copy.async_copy_global_to_shared(weights.index(chunk), weight_ptr + col, mask=mask)
        dweight = dweight + (gl.zeros([CHUNK], gl.float32, layout=layout),)
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
                at = dsummed_ptr + row.to(gl.int64) * dsummed_row_stride + col
                dx += gl.load(at, mask=mask, other=0.0).to(gl.float32)
            gl.store(dx_ptr + row.to(gl.int64) * cols + col, dx.to(dtype), mask=mask)
            grown = grown + (dweight[chunk] + dy * xhat,)
        dweight = grown
        base = base + CHUNKS
        base = gl.where(base >= RING, base - RING, base)

    async_copy.wait_group(0)
    for chunk in gl.static_range(CHUNKS):
        col = chunk * CHUNK + lane
        at = partial_ptr + program.to(gl.int64) * cols + col
        gl.store(at, dweight[chunk], mask=(col < cols) | WHOLE)
