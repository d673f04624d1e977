"""Gradients of the layer norm with weight and bias.

With xhat = (x - mean) * rstd, g = dy * weight, and means over a row:

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
    dweight = sum over rows of dy * xhat          dbias = sum over rows of dy

mean and rstd come from the forward: computed again, they would be a sum that must be complete
before the two sums above can begin. A fixed number of programs walks over the rows, whole rows in
registers; each keeps its shares of dweight and dbias in float32 registers and writes them once,
and a second kernel adds the shares in a fixed order, so that the result never varies. Device
memory: 3 * rows * cols elements and 16 * programs * cols bytes, about 13 FLOPs for each element.
Rows too wide for the registers are read twice, see split.py.
"""

import torch
import triton
import triton.language as tl

from .reduce import reduce_partials
from .rows import adjacent
from .split import launch_split

# x, dy, weight and both shares take five registers for each column that a thread has: at 16
# warps, 128 registers a thread, 16 columns fit and 32 spill
WHOLE_COLS = 8192


def layer_norm_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    *,
    ROWS: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    PROGRAMS_PER_SM: int | None = None,
    BLOCK: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of `layer_norm` with respect to `x`, `weight` and the bias.

    Args:
        dy: (rows, cols), gradient of y, in the dtype of `x`.
        x: (rows, cols) in float16, bfloat16 or float32. Rows of both at any stride, 0 too;
            copied first where the elements of a row do not lie next to each other.
        weight: (cols,), contiguous, any floating dtype.
        mean: (rows,), contiguous, in float32, as `layer_norm` returned it.
        rstd: (rows,), contiguous, in float32, as `layer_norm` returned it.
        ROWS: rows in one tile, a power of two.
        WARPS: warps in one program.
        STAGES: tiles in flight, 1 for none ahead.
        PROGRAMS_PER_SM: programs on each multiprocessor, each with a share of dweight and dbias.
        BLOCK: columns held at once, a power of two; below cols, rows are read twice.

    Returns:
        dx, (rows, cols), contiguous, in the dtype of `x`; dweight and dbias, (cols,), in the
        dtype of `weight`. Computed in float32 and rounded once.

    Raises:
        ValueError: shapes do not agree.
    """
    _check(dy, x, weight, mean, rstd)
    rows, cols = x.shape
    dy, x = adjacent(dy), adjacent(x)
    dx = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    dweight = torch.empty((cols,), dtype=weight.dtype, device=x.device)
    dbias = torch.empty((cols,), dtype=weight.dtype, device=x.device)
    tensors = (dy, x, weight, mean, rstd, dx)
    whole = max(triton.next_power_of_2(cols), 16)
    if (BLOCK or whole) < cols or whole > WHOLE_COLS:
        partial = launch_split(tensors, _device(x.device)[0], ROWS, BLOCK, WARPS, PROGRAMS_PER_SM)
    else:
        partial = _launch(tensors, whole, ROWS, WARPS, STAGES, PROGRAMS_PER_SM)
    reduce_partials(partial, dweight, dbias)
    return dx, dweight, dbias


def _check(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
) -> None:
    if x.ndim != 2 or x.shape[1] < 1:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, cols) with a column")
    if dy.shape != x.shape:
        raise ValueError(f"dy is {tuple(dy.shape)}, x is {tuple(x.shape)}")
    expected = (("weight", weight, x.shape[1:]), ("mean", mean, x.shape[:1]))
    for name, vector, shape in (*expected, ("rstd", rstd, x.shape[:1])):
        if vector.shape != shape or not vector.is_contiguous():
            raise ValueError(f"{name} is {tuple(vector.shape)}, not a contiguous {tuple(shape)}")


def _device(device: torch.device) -> tuple[int, int]:
    """Return multiprocessors and the bytes of shared memory that one program may have."""
    if device.type == "cpu":
        # Triton's interpreter runs the programs one after another
        return 4, 65536
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count, properties.shared_memory_per_block_optin


def _launch(
    tensors: tuple[torch.Tensor, ...],
    whole: int,
    tile_rows: int | None,
    warps: int | None,
    stages: int | None,
    per_sm: int | None,
) -> torch.Tensor:
    """Write dx and return the shares of dweight and dbias, (programs, 2 * cols) in float32."""
    dy, x, *_ = tensors
    rows, cols = x.shape
    sm_count, shared_bytes = _device(x.device)
    if stages is None:
        stages = 3 if whole > 1024 else 1
    # a warp covers 256 columns at a time: with more warps than that, both shares are exchanged
    # between them for every tile, six times slower for the RMS norm at 65536 x 1024 (H200)
    if warps is None:
        warps = min(16, max(whole // 512, min(whole // 256, 4) if stages > 1 else 1))
    if tile_rows is None:
        # 32 values of dy and of x in each thread, 16 where only 128 registers are left for one or
        # a thread has several rows of a narrow tile; tiles on their way lie in shared memory
        tile_rows = max(1, min((1024 if whole > 512 else 512) * warps, 8192) // whole)
        row_bytes = whole * x.element_size() * 2
        while stages > 1 and (stages - 1) * tile_rows * row_bytes > shared_bytes - 4096:
            tile_rows, stages = (tile_rows // 2, stages) if tile_rows > 1 else (1, stages - 1)
    programs = sm_count * (per_sm or max(1, (12 if stages == 1 else 8) // warps))
    programs = min(programs, triton.cdiv(rows, tile_rows))
    partial = torch.empty((programs, 2 * cols), dtype=torch.float32, device=x.device)
    if programs:
        _rows_kernel[(programs,)](
            *tensors, partial, dy.stride(0), x.stride(0), rows, cols,
            ROWS=tile_rows, BLOCK=whole, WHOLE=whole == cols, STAGES=stages, num_warps=warps,
        )  # fmt: skip
    return partial


@triton.jit
def _rows_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, partial_ptr,
    dy_row_stride, x_row_stride, rows, cols,
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
    dbias = tl.zeros([BLOCK], tl.float32)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        # int64, because row * stride passes 2**31 on large inputs
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        row_mask = (row < rows) | (ROWS == 1)
        mask = row_mask & col_mask
        x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
        # 0 adds nothing to any sum; where dy is 0, what xhat is in a masked lane counts for nothing
        dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0)
        mean = tl.load(mean_ptr + row, mask=row_mask, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row_mask, other=0.0)
        xhat = (x.to(tl.float32) - mean) * rstd
        dy = dy.to(tl.float32)
        g = dy * weight
        # joined, so that both sums cross the warps in one exchange
        sums = tl.sum(tl.join(g, g * xhat), axis=1)  # [ROWS, 2]
        plain, product = tl.split(sums)
        dx = rstd * (g - plain[:, None] / cols - xhat * (product[:, None] / cols))
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += tl.sum(dy * xhat, axis=0)
        dbias += tl.sum(dy, axis=0)
    at = partial_ptr + program.to(tl.int64) * (2 * cols) + lane
    tl.store(at, dweight, mask=lane_mask)
    tl.store(at + cols, dbias, mask=lane_mask)
