"""The gradient of the RMS norm where a row is too wide for the registers.

One kernel reads dy and x and leaves two numbers for each row. A second walks down a strip of
columns, reads dy and x again, writes dx and adds up dweight in registers. Device memory: 5 *
rows * cols elements (6 with dsummed) in place of 3, at any width and for any dtype.
"""

import torch
import triton
import triton.language as tl


def launch_split(
    tensors: tuple[torch.Tensor, ...],
    add: bool,
    eps: float,
    sm_count: int,
    tile_rows: int | None,
    block: int | None,
    warps: int | None,
    per_sm: int | None,
) -> torch.Tensor:
    """Write dx and return the shares of dweight, (programs, cols) in float32.

    Args:
        tensors: dy, dsummed, x, weight, dx, as in `backward.add_rms_norm_backward`; the elements
            of a row lie next to each other.
        add: whether dsummed is added to dx; if not, it is not read.
        eps: added to the mean square.
        sm_count: multiprocessors of the device.
        tile_rows, block, warps, per_sm: ROWS, BLOCK, WARPS and PROGRAMS_PER_SM there; None for
            the kernel's own choice.
    """
    dy, dsummed, x, weight, dx = tensors
    rows, cols = x.shape
    block = block or 1024
    tile_rows = tile_rows or 4
    strips = triton.cdiv(cols, block)
    programs = triton.cdiv(sm_count * (per_sm or 4), strips)
    programs = min(programs, triton.cdiv(rows, tile_rows))
    partial = torch.empty((programs, cols), dtype=torch.float32, device=x.device)
    rstd = torch.empty((rows,), dtype=torch.float32, device=x.device)
    scale = torch.empty((rows,), dtype=torch.float32, device=x.device)
    if rows:
        _sums_kernel[(rows,)](
            dy, x, weight, rstd, scale, dy.stride(0), x.stride(0), cols, eps,
            BLOCK=4096, num_warps=8,
        )  # fmt: skip
        _strips_kernel[(strips, programs)](
            dy, dsummed, x, weight, rstd, scale, dx, partial,
            dy.stride(0), dsummed.stride(0), x.stride(0), rows, cols,
            ADD=add, ROWS=tile_rows, BLOCK=block, num_warps=warps or 4,
        )  # fmt: skip
    return partial


@triton.jit
def _sums_kernel(
    dy_ptr, x_ptr, weight_ptr, rstd_ptr, scale_ptr,
    dy_row_stride, x_row_stride, cols, eps,
    BLOCK: tl.constexpr,
):  # fmt: skip
    # int64, because row * stride passes 2**31 on large inputs
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * dy_row_stride
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    products = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = col < cols
        # 0 adds nothing to either sum
        x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        squares += x * x
        products += dy * weight * x
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / cols + eps)
    tl.store(rstd_ptr + row, rstd)
    tl.store(scale_ptr + row, tl.sum(products, axis=0) * rstd / cols)


@triton.jit
def _strips_kernel(
    dy_ptr, dsummed_ptr, x_ptr, weight_ptr, rstd_ptr, scale_ptr, dx_ptr, partial_ptr,
    dy_row_stride, dsummed_row_stride, x_row_stride, rows, cols,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(1)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane_mask = lane < cols
    weight = tl.load(weight_ptr + lane, mask=lane_mask, other=0.0).to(tl.float32)[None, :]
    col = lane[None, :]
    dweight = tl.zeros([BLOCK], tl.float32)
    for tile in range(program, tl.cdiv(rows, ROWS), tl.num_programs(1)):
        index = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        row = index[:, None]
        mask = (row < rows) & lane_mask[None, :]
        rstd = tl.load(rstd_ptr + index, mask=index < rows, other=0.0)[:, None]
        scale = tl.load(scale_ptr + index, mask=index < rows, other=0.0)[:, None]
        # 0 adds nothing to dweight
        x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
        dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0)
        xhat = x.to(tl.float32) * rstd
        dy = dy.to(tl.float32)
        dx = rstd * (dy * weight - xhat * scale)
        if ADD:
            at = dsummed_ptr + row * dsummed_row_stride + col
            dx += tl.load(at, mask=mask, other=0.0).to(tl.float32)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += tl.sum(dy * xhat, axis=0)
    tl.store(partial_ptr + program.to(tl.int64) * cols + lane, dweight, mask=lane_mask)
