"""Gradient of the RMS norm, alone or joined with the gradient of the residual stream.

With xhat = x * rstd and c = mean(dy * weight * xhat) over a row:

    dx = rstd * (dy * weight - xhat * c) [+ dsummed]        dweight = sum over rows of dy * xhat

rstd is computed again from the row, which is loaded anyway. A fixed number of programs walks
over the rows; each keeps its share of dweight in float32 registers and writes it once, and a
second kernel adds the shares in a fixed order, so that the result never varies. Device memory:
3 * rows * cols elements (4 with dsummed) and 8 * programs * cols bytes, about 11 FLOPs for each
element.

Three plans, by width. NARROW holds whole rows in registers. WIDE splits a row into chunks, each
with its own registers for dweight; while it finishes one row out of the caches it already sums
up the next. SPLIT, for any width, writes dx in one kernel and dweight in another, and so reads
x and dy twice.
"""

import torch
import triton
import triton.language as tl

NARROW_COLS = 16384
# the float32 dweight of 32768 columns is 128 KB, half of the registers of a multiprocessor
WIDE_COLS = 32768


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    PLAN: str | None = None,
    ROWS: int | None = None,
    BLOCK: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS: int | None = None,
    MAX_REGISTERS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rms_norm` with respect to `x` and `weight`.

    Args:
        dy: (rows, cols), gradient of the output, in the dtype of `x`; any strides, 0 too.
        x: (rows, cols) in float16, bfloat16 or float32; elements of a row adjacent, rows at
            any stride.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        PLAN: "narrow", "wide" or "split".
        ROWS: rows in one tile, a power of two (narrow; in split, rows of a dweight tile).
        BLOCK: columns of a chunk, a power of two (wide and split).
        WARPS: warps in one program.
        STAGES: tiles in flight, 1 for none ahead (narrow).
        PROGRAMS: programs that walk over the rows, so shares of dweight.
        MAX_REGISTERS: cap on the registers of a thread.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `x`; dweight, (cols,), in the dtype of
        `weight`. Both computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree, or a row of `x` is not contiguous.
    """
    _check(dy, x, weight)
    tuning = (PLAN, ROWS, BLOCK, WARPS, STAGES, PROGRAMS, MAX_REGISTERS)
    return _launch(dy, None, x, weight, eps, tuning)


def add_rms_norm_backward(
    dy: torch.Tensor,
    dsummed: torch.Tensor,
    summed: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    PLAN: str | None = None,
    ROWS: int | None = None,
    BLOCK: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS: int | None = None,
    MAX_REGISTERS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `add_rms_norm` with respect to `x` (or `residual`) and `weight`.

    Args:
        dy: (rows, cols), gradient of the norm, in the dtype of `summed`; any strides, 0 too.
        dsummed: (rows, cols), gradient of the sum, in the dtype of `summed`; any strides, 0 too.
        summed: (rows, cols), the sum that `add_rms_norm` returned; elements of a row adjacent.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        PLAN, ROWS, BLOCK, WARPS, STAGES, PROGRAMS, MAX_REGISTERS: as in `rms_norm_backward`.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `summed`: one gradient, for x and residual
        alike; dweight, (cols,), in the dtype of `weight`.

    Raises:
        ValueError: shapes do not agree, or a row of `summed` is not contiguous.
    """
    _check(dy, summed, weight)
    if dsummed.shape != summed.shape:
        raise ValueError(f"dsummed is {tuple(dsummed.shape)}, summed is {tuple(summed.shape)}")
    tuning = (PLAN, ROWS, BLOCK, WARPS, STAGES, PROGRAMS, MAX_REGISTERS)
    return _launch(dy, dsummed, summed, weight, eps, tuning)


def _check(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.ndim != 2:
        raise ValueError(f"x has {x.ndim} dimensions, not 2")
    if x.shape[1] < 1:
        raise ValueError("x has no columns")
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError(f"the elements of a row of x are {x.stride(1)} apart, not 1")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, x is {tuple(x.shape)}")
    if weight.shape != (x.shape[1],) or not weight.is_contiguous():
        raise ValueError(f"weight is {tuple(weight.shape)}, not a contiguous ({x.shape[1]},)")


def _launch(
    dy: torch.Tensor,
    dsummed: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    tuning: tuple,
) -> tuple[torch.Tensor, torch.Tensor]:
    plan, tile_rows, block, warps, stages, programs, max_registers = tuning
    rows, cols = x.shape
    sm_count = torch.cuda.get_device_properties(x.device).multi_processor_count
    whole = max(triton.next_power_of_2(cols), 16)
    if plan is None:
        # the masks of a last chunk that is not full cost WIDE 680 bytes of spills a thread
        wide = whole == cols and cols <= WIDE_COLS
        plan = "narrow" if cols <= NARROW_COLS else "wide" if wide else "split"
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    dweight = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
    add = dsummed is not None
    extra = dsummed if add else dy
    arguments = (dy, extra, x, weight, dx)
    strides = (dy.stride(0), dy.stride(1), extra.stride(0), extra.stride(1), x.stride(0))
    options = {"maxnreg": max_registers} if max_registers else {}

    if plan == "narrow":
        if tile_rows is None:
            tile_rows = max(1, min(4096 // whole, 64))
        if warps is None:
            warps = max(1, min(16, tile_rows * whole // 1024))
        if programs is None:
            programs = sm_count * max(1, 16 // warps)
        programs = min(programs, triton.cdiv(rows, tile_rows))
        partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
        if programs:
            _narrow_kernel[(programs,)](
                *arguments, partial, *strides, rows, cols, eps,
                ADD=add, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols,
                STAGES=stages or 1, num_warps=warps, **options,
            )  # fmt: skip
    elif plan == "wide":
        block = min(block or 4096, whole)
        programs = min(programs or sm_count, rows)
        partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
        if programs:
            _wide_kernel[(programs,)](
                *arguments, partial, *strides, rows, cols, eps,
                ADD=add, BLOCK=block, CHUNKS=whole // block, WHOLE=whole == cols,
                num_warps=warps or 16, **options,
            )  # fmt: skip
    else:
        block = block or 128
        tile_rows = tile_rows or 32
        blocks = triton.cdiv(cols, block)
        programs = min(programs or triton.cdiv(8 * sm_count, blocks), triton.cdiv(rows, tile_rows))
        partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
        rstd = torch.empty((rows,), dtype=torch.float32, device=x.device)
        if programs:
            _split_rows_kernel[(rows,)](
                *arguments, rstd, *strides, cols, eps, ADD=add, BLOCK=4096, num_warps=warps or 8
            )
            _split_cols_kernel[(blocks, programs)](
                dy, x, rstd, partial, dy.stride(0), dy.stride(1), x.stride(0), rows, cols,
                ROWS=tile_rows, BLOCK=block, num_warps=4,
            )  # fmt: skip
    reduce_partials(partial, dweight)
    return dx, dweight


def reduce_partials(
    partial: torch.Tensor, dweight: torch.Tensor, ROWS: int = 128, BLOCK: int | None = None
) -> None:
    """Write the column sums of `partial`, (programs, cols) in float32, to `dweight`, (cols,)."""
    programs, cols = partial.shape
    # 16 columns are 64 bytes, two sectors of memory: narrow rows then still fill the device
    block = BLOCK or (16 if cols <= 2048 else 32)
    _reduce_kernel[(triton.cdiv(cols, block),)](
        partial, dweight, programs, cols, ROWS=ROWS, BLOCK=block, num_warps=8
    )


@triton.jit
def _narrow_kernel(
    dy_ptr, dsummed_ptr, x_ptr, weight_ptr, dx_ptr, partial_ptr,
    dy_row_stride, dy_col_stride, dsummed_row_stride, dsummed_col_stride, x_row_stride,
    rows, cols, eps,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    # WHOLE makes the mask constant, and the compiler then drops it
    lane_mask = (lane < cols) | WHOLE
    weight = tl.load(weight_ptr + lane, mask=lane_mask, other=0.0).to(tl.float32)[None, :]
    col = lane[None, :]
    col_mask = lane_mask[None, :]
    dweight = tl.zeros([BLOCK], tl.float32)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        # int64, because row * stride passes 2**31 on large inputs
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        mask = ((row < rows) | (ROWS == 1)) & col_mask

        # 0 adds nothing to either sum over the row, nor to dweight
        x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
        dy = tl.load(dy_ptr + row * dy_row_stride + col * dy_col_stride, mask=mask, other=0.0)
        if ADD:
            dsummed_at = dsummed_ptr + row * dsummed_row_stride + col * dsummed_col_stride
            dsummed = tl.load(dsummed_at, mask=mask, other=0.0)
        x = x.to(tl.float32)
        dy = dy.to(tl.float32)

        # joined, so that both sums cross the warps in one exchange
        sums = tl.sum(tl.join(x * x, dy * weight * x), axis=1)  # [ROWS, 2]
        squares, products = tl.split(sums)
        rstd = tl.rsqrt(squares / cols + eps)[:, None]
        xhat = x * rstd
        dx = rstd * (dy * weight - xhat * (products[:, None] * rstd / cols))
        if ADD:
            dx += dsummed.to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += tl.sum(dy * xhat, axis=0)
    tl.store(partial_ptr + program.to(tl.int64) * cols + lane, dweight, mask=lane_mask)


@triton.jit
def _wide_kernel(
    dy_ptr, dsummed_ptr, x_ptr, weight_ptr, dx_ptr, partial_ptr,
    dy_row_stride, dy_col_stride, dsummed_row_stride, dsummed_col_stride, x_row_stride,
    rows, cols, eps,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNKS: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    dweight = ()
    squares = tl.zeros([BLOCK], tl.float32)
    products = tl.zeros([BLOCK], tl.float32)
    first = program.to(tl.int64)
    for chunk in tl.static_range(CHUNKS):
        dweight = dweight + (tl.zeros([BLOCK], tl.float32),)
        col = chunk * BLOCK + lane
        mask = (col < cols) | WHOLE
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        next_x = tl.load(x_ptr + first * x_row_stride + col, mask=mask, other=0.0).to(tl.float32)
        next_dy_at = dy_ptr + first * dy_row_stride + col * dy_col_stride
        next_dy = tl.load(next_dy_at, mask=mask, other=0.0).to(tl.float32)
        squares += next_x * next_x
        products += next_dy * weight * next_x

    for index in range(program, rows, tl.num_programs(0)):
        row = tl.cast(index, tl.int64)
        following = row + tl.num_programs(0)
        rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
        scale = tl.sum(products, axis=0) * rstd / cols
        squares = tl.zeros([BLOCK], tl.float32)
        products = tl.zeros([BLOCK], tl.float32)
        grown = ()
        for chunk in tl.static_range(CHUNKS):
            col = chunk * BLOCK + lane
            mask = (col < cols) | WHOLE
            ahead = mask & (following < rows)
            # the row after this one comes from memory while this one comes from the caches;
            # 0 adds nothing to either sum over a row, nor to dweight
            next_x_at = x_ptr + following * x_row_stride + col
            next_x = tl.load(next_x_at, mask=ahead, other=0.0, eviction_policy="evict_last")
            next_x = next_x.to(tl.float32)
            next_dy_at = dy_ptr + following * dy_row_stride + col * dy_col_stride
            next_dy = tl.load(next_dy_at, mask=ahead, other=0.0, eviction_policy="evict_last")
            next_dy = next_dy.to(tl.float32)
            x_at = x_ptr + row * x_row_stride + col
            x = tl.load(x_at, mask=mask, other=0.0, eviction_policy="evict_first")
            dy_at = dy_ptr + row * dy_row_stride + col * dy_col_stride
            dy = tl.load(dy_at, mask=mask, other=0.0, eviction_policy="evict_first")
            weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
            xhat = x.to(tl.float32) * rstd
            dy = dy.to(tl.float32)
            dx = rstd * (dy * weight - xhat * scale)
            if ADD:
                dsummed_at = dsummed_ptr + row * dsummed_row_stride + col * dsummed_col_stride
                dx += tl.load(dsummed_at, mask=mask, other=0.0).to(tl.float32)
            dx_at = dx_ptr + row * cols + col
            rounded = dx.to(dx_ptr.dtype.element_ty)
            tl.store(dx_at, rounded, mask=mask, eviction_policy="evict_first")
            grown = grown + (dweight[chunk] + dy * xhat,)
            squares += next_x * next_x
            products += next_dy * weight * next_x
        dweight = grown

    for chunk in tl.static_range(CHUNKS):
        col = chunk * BLOCK + lane
        tl.store(partial_ptr + first * cols + col, dweight[chunk], mask=(col < cols) | WHOLE)


@triton.jit
def _split_rows_kernel(
    dy_ptr, dsummed_ptr, x_ptr, weight_ptr, dx_ptr, rstd_ptr,
    dy_row_stride, dy_col_stride, dsummed_row_stride, dsummed_col_stride, x_row_stride,
    cols, eps,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * dy_row_stride
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = col < cols
        x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col * dy_col_stride, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
        products += dy * weight * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
    scale = tl.sum(products, axis=0) * rstd / cols
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = col < cols
        x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col * dy_col_stride, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dx = rstd * (dy * weight - x * rstd * scale)
        if ADD:
            dsummed_at = dsummed_ptr + row * dsummed_row_stride + col * dsummed_col_stride
            dx += tl.load(dsummed_at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _split_cols_kernel(
    dy_ptr, x_ptr, rstd_ptr, partial_ptr,
    dy_row_stride, dy_col_stride, x_row_stride,
    rows, cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(1)
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dweight = tl.zeros([ROWS, BLOCK], tl.float32)
    for tile in range(program, tl.cdiv(rows, ROWS), tl.num_programs(1)):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        mask = (row < rows)[:, None] & (col < cols)[None, :]
        at = row[:, None] * x_row_stride + col[None, :]
        dy_at = row[:, None] * dy_row_stride + col[None, :] * dy_col_stride
        # 0 adds nothing to dweight
        x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + dy_at, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, mask=row < rows, other=0.0)
        dweight += dy * x * rstd[:, None]
    total = tl.sum(dweight, axis=0)
    tl.store(partial_ptr + program.to(tl.int64) * cols + col, total, mask=col < cols)


@triton.jit
def _reduce_kernel(
    partial_ptr, dweight_ptr, programs, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, programs, ROWS):
        program = start + tl.arange(0, ROWS)
        mask = (program < programs)[:, None] & (col < cols)[None, :]
        at = program.to(tl.int64)[:, None] * cols + col[None, :]
        total += tl.load(partial_ptr + at, mask=mask, other=0.0)
    dweight = tl.sum(total, axis=0).to(dweight_ptr.dtype.element_ty)
    tl.store(dweight_ptr + col, dweight, mask=col < cols)
