"""Gradient of the RMS norm, alone or joined with the gradient of the residual stream.

With xhat = x * rstd and c = mean(dy * weight * xhat) over a row:

    dx = rstd * (dy * weight - xhat * c) [+ dsummed]        dweight = sum over rows of dy * xhat

rstd is computed again from the row, which is loaded anyway. A fixed number of programs walks
over the rows, whole rows in registers; each keeps its share of dweight in float32 registers and
writes it once, and a second kernel adds the shares in a fixed order, so that the result never
varies. Device memory: 3 * rows * cols elements (4 with dsummed) and 8 * programs * cols bytes,
about 11 FLOPs for each element. Rows too wide for the registers are read twice, see split.py.
"""

import torch
import triton
import triton.language as tl

from .reduce import reduce_partials
from .split import launch_split

# 32768 columns of 16 bits spill 584 bytes a thread and run at 15 % of the speed of a copy
WHOLE_BYTES = 32768


def rms_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    BLOCK: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `rms_norm` with respect to `x` and `weight`.

    Args:
        dy: (rows, cols), gradient of the output, in the dtype of `x`.
        x: (rows, cols) in float16, bfloat16 or float32.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        ROWS: rows in one tile, a power of two.
        WARPS: warps in one program.
        STAGES: tiles in flight, 1 for none ahead.
        PROGRAMS_PER_SM: programs on each multiprocessor, each with a share of dweight.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice.

    Rows may lie at any stride, 0 too. A tensor is copied first where the elements of a row do
    not lie next to each other.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `x`; dweight, (cols,), in the dtype of
        `weight`. Both computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree.
    """
    _check(dy, x, weight)
    tuning = (ROWS, WARPS, STAGES, PROGRAMS_PER_SM, BLOCK)
    return _launch(dy, None, x, weight, eps, tuning)


def add_rms_norm_backward(
    dy: torch.Tensor,
    dsummed: torch.Tensor,
    summed: torch.Tensor,
    weight: torch.Tensor,
    *,
    eps: float,
    ROWS: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    BLOCK: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `add_rms_norm` with respect to `x` (or `residual`) and `weight`.

    Args:
        dy: (rows, cols), gradient of the norm; strides as in `rms_norm_backward`.
        dsummed: (rows, cols), gradient of the sum.
        summed: (rows, cols), the sum that `add_rms_norm` returned.
        weight: (cols,), contiguous, any floating dtype.
        eps: added to the mean square.
        ROWS, WARPS, STAGES, PROGRAMS_PER_SM, BLOCK: as in `rms_norm_backward`.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `summed`: one gradient, for x and residual
        alike; dweight, (cols,), in the dtype of `weight`.

    Raises:
        ValueError: shapes do not agree.
    """
    _check(dy, summed, weight)
    if dsummed.shape != summed.shape:
        raise ValueError(f"dsummed is {tuple(dsummed.shape)}, summed is {tuple(summed.shape)}")
    tuning = (ROWS, WARPS, STAGES, PROGRAMS_PER_SM, BLOCK)
    return _launch(dy, dsummed, summed, weight, eps, tuning)


def _check(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, x is {tuple(x.shape)}")
    if weight.shape != (x.shape[1],) or not weight.is_contiguous():
        raise ValueError(f"weight is {tuple(weight.shape)}, not a contiguous ({x.shape[1]},)")


def _adjacent(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[1] == 1 or x.stride(1) == 1 else x.contiguous()


def _device(device: torch.device) -> tuple[int, int]:
    """Return multiprocessors and the bytes of shared memory that one program may have."""
    if device.type == "cpu":
        # Triton's interpreter runs the programs one after another
        return 4, 65536
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.shared_memory_per_block_optin


def _launch(
    dy: torch.Tensor,
    dsummed: torch.Tensor | None,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    tuning: tuple[int | None, ...],
) -> tuple[torch.Tensor, torch.Tensor]:
    tile_rows, warps, stages, per_sm, block = tuning
    rows, cols = x.shape
    add = dsummed is not None
    x, dy = _adjacent(x), _adjacent(dy)
    extra = dy if dsummed is None else _adjacent(dsummed)
    dx = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    dweight = torch.empty((cols,), dtype=weight.dtype, device=weight.device)
    sm_count, shared_bytes = _device(x.device)
    whole = max(triton.next_power_of_2(cols), 16)
    if (block or whole) < cols or whole * x.element_size() > WHOLE_BYTES:
        tensors = (dy, extra, x, weight, dx)
        partial = launch_split(tensors, add, eps, sm_count, tile_rows, block, warps, per_sm)
    else:
        if stages is None:
            stages = 3 if whole > 1024 or (add and whole == 1024) else 1
        # a warp covers 256 columns at a time: with more warps than that, dweight is exchanged
        # between them for every tile, 642.9 us in place of 105.1 us at 65536 x 1024 (H200)
        if warps is None:
            warps = min(16, max(whole // 512, min(whole // 256, 4) if stages > 1 else 1))
        if tile_rows is None:
            # 32 values of dy and of x in each thread, 16 where only 128 registers are left for one;
            # tiles on their way lie in shared memory
            row_bytes = whole * x.element_size() * (3 if add else 2)
            tile_rows = max(1, min(1024 * warps, 8192) // whole)
            while stages > 1 and (stages - 1) * tile_rows * row_bytes > shared_bytes - 4096:
                tile_rows, stages = (tile_rows // 2, stages) if tile_rows > 1 else (1, stages - 1)
        programs = sm_count * (per_sm or max(1, (12 if stages == 1 else 8) // warps))
        programs = min(programs, triton.cdiv(rows, tile_rows))
        partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
        if programs:
            _rows_kernel[(programs,)](
                dy, extra, x, weight, dx, partial,
                dy.stride(0), extra.stride(0), x.stride(0), rows, cols, eps,
                ADD=add, ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols,
                STAGES=stages, num_warps=warps,
            )  # fmt: skip
    reduce_partials(partial, dweight)
    return dx, dweight


@triton.jit
def _rows_kernel(
    dy_ptr, dsummed_ptr, x_ptr, weight_ptr, dx_ptr, partial_ptr,
    dy_row_stride, dsummed_row_stride, x_row_stride, rows, cols, eps,
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
        dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0)
        if ADD:
            dsummed_at = dsummed_ptr + row * dsummed_row_stride + col
            dsummed = tl.load(dsummed_at, mask=mask, other=0.0)
        x = x.to(tl.float32)
        dy = dy.to(tl.float32)

        # joined, so that both sums cross the warps in one exchange
        sums = tl.sum(tl.join(x * x, dy * weight * x), axis=1)  # [ROWS, 2]
        squares, products = tl.split(sums)
        rstd = tl.rsqrt(squares / cols + eps)[:, None]
        # a row past the last is all zeros, and without eps its root divides by them
        rstd = tl.where((row < rows) | (ROWS == 1), rstd, 0.0)
        xhat = x * rstd
        dx = rstd * (dy * weight - xhat * (products[:, None] * rstd / cols))
        if ADD:
            dx += dsummed.to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += tl.sum(dy * xhat, axis=0)
    tl.store(partial_ptr + program.to(tl.int64) * cols + lane, dweight, mask=lane_mask)
