"""RMS norm of each row, alone or fused with the residual addition before it.

    y = x * rsqrt(mean(x^2) + eps) * weight

A program holds ROWS whole rows in registers, so that x is read once and y written once:
2 * rows * cols elements of device memory, and about 4 FLOPs for each. With the residual,
x and residual are read, the sum and y are written: 4 * rows * cols elements in place of the
5 that an addition and a norm move. Rows too wide for the registers are read twice, the
second time out of the caches.
"""

import torch
import triton
import triton.language as tl

# 32768 columns are 32 values a thread at 32 warps; twice that spills at the 64 registers
# that 1024 threads leave each other
MAX_BLOCK = 32768
WIDE_BLOCK = 8192


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    LOAD_CACHE: str | None = None,
    STORE_CACHE: str | None = None,
    BLOCK: int | None = None,
    MAX_REGISTERS: int | None = None,
) -> torch.Tensor:
    """Return each row of `x` divided by its root mean square, times `weight`.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32; elements of a row adjacent, rows at
            any stride.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        ROWS: rows in one tile, a power of two.
        WARPS: warps in one program.
        STAGES: tiles in flight in a persistent program, 1 for none ahead.
        PROGRAMS_PER_SM: persistent programs on each multiprocessor; 0 for one program a tile.
        LOAD_CACHE: cache modifier of the loads of x.
        STORE_CACHE: cache modifier of the stores of y.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice.
        MAX_REGISTERS: cap on the registers of a thread.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`; computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree, or a row of `x` is not contiguous.
    """
    _check(x, weight)
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tuning = (ROWS, WARPS, STAGES, PROGRAMS_PER_SM, LOAD_CACHE, STORE_CACHE, BLOCK, MAX_REGISTERS)
    _launch(x, x, weight, y, y, eps, False, tuning)
    return y


def add_rms_norm(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    LOAD_CACHE: str | None = None,
    STORE_CACHE: str | None = None,
    BLOCK: int | None = None,
    MAX_REGISTERS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the RMS norm of `x + residual`, and that sum.

    The norm is taken of the sum as it was rounded to the dtype of `x`, so that the pair equals
    an addition followed by `rms_norm`.

    Args:
        x: (rows, cols) in float16, bfloat16 or float32; elements of a row adjacent, rows at
            any stride.
        residual: like `x` in shape and dtype; elements of a row adjacent, rows at any stride.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        ROWS, WARPS, STAGES, PROGRAMS_PER_SM, LOAD_CACHE, STORE_CACHE, BLOCK, MAX_REGISTERS: as
            in `rms_norm`.

    Returns:
        y and summed, both (rows, cols), contiguous, in the dtype of `x`.

    Raises:
        ValueError: shapes or dtypes do not agree, or a row is not contiguous.
    """
    _check(x, weight)
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise ValueError(
            f"residual is {tuple(residual.shape)} {residual.dtype}, x is {tuple(x.shape)} {x.dtype}"
        )
    if x.shape[1] > 1 and residual.stride(1) != 1:
        raise ValueError(f"the elements of a row of residual are {residual.stride(1)} apart, not 1")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    summed = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    tuning = (ROWS, WARPS, STAGES, PROGRAMS_PER_SM, LOAD_CACHE, STORE_CACHE, BLOCK, MAX_REGISTERS)
    _launch(x, residual, weight, y, summed, eps, True, tuning)
    return y, summed


def _check(x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.ndim != 2:
        raise ValueError(f"x has {x.ndim} dimensions, not 2")
    if x.shape[1] < 1:
        raise ValueError("x has no columns")
    if x.shape[1] > 1 and x.stride(1) != 1:
        raise ValueError(f"the elements of a row of x are {x.stride(1)} apart, not 1")
    if weight.shape != (x.shape[1],) or not weight.is_contiguous():
        raise ValueError(f"weight is {tuple(weight.shape)}, not a contiguous ({x.shape[1]},)")


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    y: torch.Tensor,
    summed: torch.Tensor,
    eps: float,
    add: bool,
    tuning: tuple,
) -> None:
    rows, cols = x.shape
    if rows == 0:
        return
    tile_rows, warps, stages, per_sm, load_cache, store_cache, block, max_registers = tuning
    whole = max(triton.next_power_of_2(cols), 16)
    if block is None:
        block = whole if whole <= MAX_BLOCK else WIDE_BLOCK
    arguments = (x, residual, weight, y, summed, x.stride(0), residual.stride(0))
    cache = {"LOAD_CACHE": load_cache or "", "STORE_CACHE": store_cache or ""}
    if block < cols:
        _wide_kernel[(rows,)](
            *arguments,
            cols,
            eps,
            ADD=add,
            BLOCK=block,
            HINTS=load_cache == "hints",
            STORE_CACHE=cache["STORE_CACHE"],
            num_warps=warps or 16,
        )
        return
    if tile_rows is None:
        tile_rows = max(1, min(4096 // block, 64))
    if warps is None:
        warps = max(1, min(32, tile_rows * block // 1024))
    tiles = triton.cdiv(rows, tile_rows)
    programs = tiles
    if per_sm:
        count = torch.cuda.get_device_properties(x.device).multi_processor_count
        programs = min(tiles, per_sm * count)
    _kernel[(programs,)](
        *arguments,
        rows,
        cols,
        eps,
        ADD=add,
        ROWS=tile_rows,
        BLOCK=block,
        WHOLE=block == cols,
        PERSISTENT=bool(per_sm),
        STAGES=stages or 1,
        **cache,
        num_warps=warps,
        **({"maxnreg": max_registers} if max_registers else {}),
    )


@triton.jit
def _kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    summed_ptr,
    x_row_stride,
    residual_row_stride,
    rows,
    cols,
    eps,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
    PERSISTENT: tl.constexpr,
    STAGES: tl.constexpr,
    LOAD_CACHE: tl.constexpr,
    STORE_CACHE: tl.constexpr,
):
    col = tl.arange(0, BLOCK)[None, :]
    # WHOLE makes the mask constant, and the compiler then drops it
    col_mask = (col < cols) | WHOLE
    if PERSISTENT:
        weight = tl.load(weight_ptr + col, mask=col_mask, other=0.0).to(tl.float32)
    tiles = tl.cdiv(rows, ROWS)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        # int64, because row * stride passes 2**31 on large inputs
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        mask = ((row < rows) | (ROWS == 1)) & col_mask

        # 0 adds nothing to the sum of squares
        x = tl.load(
            x_ptr + row * x_row_stride + col, mask=mask, other=0.0, cache_modifier=LOAD_CACHE
        )  # [ROWS, BLOCK]
        if ADD:
            residual = tl.load(
                residual_ptr + row * residual_row_stride + col,
                mask=mask,
                other=0.0,
                cache_modifier=LOAD_CACHE,
            )
            # rounded here, because the norm is of the sum that the caller gets
            x = (x.to(tl.float32) + residual.to(tl.float32)).to(x_ptr.dtype.element_ty)
            tl.store(summed_ptr + row * cols + col, x, mask=mask, cache_modifier=STORE_CACHE)
        if not PERSISTENT:
            weight = tl.load(weight_ptr + col, mask=col_mask, other=0.0).to(tl.float32)
        x = x.to(tl.float32)
        rstd = tl.rsqrt(tl.sum(x * x, axis=1, keep_dims=True) / cols + eps)  # [ROWS, 1]
        y = (x * rstd * weight).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + row * cols + col, y, mask=mask, cache_modifier=STORE_CACHE)


@triton.jit
def _wide_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    summed_ptr,
    x_row_stride,
    residual_row_stride,
    cols,
    eps,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    HINTS: tl.constexpr,
    STORE_CACHE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    residual_ptr += row * residual_row_stride
    y_ptr += row * cols
    summed_ptr += row * cols
    lane = tl.arange(0, BLOCK)

    squares = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = col < cols
        x = _summed(x_ptr, residual_ptr, col, mask, ADD, "evict_last" if HINTS else "")
        if ADD:
            tl.store(summed_ptr + col, x, mask=mask)
        x = x.to(tl.float32)
        squares += x * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)

    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = col < cols
        # added again rather than read back: a store is not ordered before another thread's load
        x = _summed(x_ptr, residual_ptr, col, mask, ADD, "evict_first" if HINTS else "")
        x = x.to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        y = (x * rstd * weight).to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + col, y, mask=mask, cache_modifier=STORE_CACHE)


@triton.jit
def _summed(x_ptr, residual_ptr, col, mask, ADD: tl.constexpr, POLICY: tl.constexpr):
    # 0 adds nothing to the sum of squares
    x = tl.load(x_ptr + col, mask=mask, other=0.0, eviction_policy=POLICY)
    if ADD:
        residual = tl.load(residual_ptr + col, mask=mask, other=0.0, eviction_policy=POLICY)
        x = (x.to(tl.float32) + residual.to(tl.float32)).to(x_ptr.dtype.element_ty)
    return x
