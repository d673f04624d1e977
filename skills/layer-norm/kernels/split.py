"""The gradients of the layer norm where a row is too wide for the registers.

One kernel reads dy and x and leaves two means for each row. A second walks down a strip of
columns, reads dy and x again, writes dx and adds up dweight and dbias in registers. Device
memory: 5 * rows * cols elements in place of 3, at any width and for any dtype.
"""

import torch
import triton
import triton.language as tl


def launch_split(
    tensors: tuple[torch.Tensor, ...],
    sm_count: int,
    tile_rows: int | None,
    block: int | None,
    warps: int | None,
    per_sm: int | None,
) -> torch.Tensor:
    """Write dx and return the shares of dweight and dbias, (programs, 2 * cols) in float32.

    Args:
        tensors: dy, x, weight, mean, rstd, dx, as in `backward.layer_norm_backward`; the elements
            of a row lie next to each other.
        sm_count: multiprocessors of the device.
        tile_rows, block, warps, per_sm: ROWS, BLOCK, WARPS and PROGRAMS_PER_SM there; None for
            the kernel's own choice.
    """
    dy, x, weight, mean, rstd, dx = tensors
    rows, cols = x.shape
    block = block or 1024
    tile_rows = tile_rows or 4
    strips = triton.cdiv(cols, block)
    programs = triton.cdiv(sm_count * (per_sm or 4), strips)
    programs = min(programs, triton.cdiv(rows, tile_rows))
    partial = torch.empty((programs, 2 * cols), dtype=torch.float32, device=x.device)
    plain = torch.empty((rows,), dtype=torch.float32, device=x.device)
    product = torch.empty((rows,), dtype=torch.float32, device=x.device)
    if rows:
        _means_kernel[(rows,)](
            dy, x, weight, mean, rstd, plain, product, dy.stride(0), x.stride(0), cols,
            BLOCK=4096, num_warps=16,
        )  # fmt: skip
        _strips_kernel[(strips, programs)](
            dy, x, weight, mean, rstd, plain, product, dx, partial,
            dy.stride(0), x.stride(0), rows, cols,
            ROWS=tile_rows, BLOCK=block, num_warps=warps or 4,
        )  # fmt: skip
    return partial


@triton.jit
def _means_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, plain_ptr, product_ptr,
    dy_row_stride, x_row_stride, cols,
    BLOCK: tl.constexpr,
):  # fmt: skip
    # int64, because row * stride passes 2**31 on large inputs
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_row_stride
    dy_ptr += row * dy_row_stride
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    lane = tl.arange(0, BLOCK)
    plain = tl.zeros([BLOCK], tl.float32)
    product = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        col = start + lane
        mask = col < cols
        # where g is 0, what xhat is in a masked lane counts for nothing
        x = tl.load(x_ptr + col, mask=mask, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + col, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + col, mask=mask, other=0.0).to(tl.float32)
        g = dy * weight
        plain += g
        product += g * ((x - mean) * rstd)
    tl.store(plain_ptr + row, tl.sum(plain, axis=0) / cols)
    tl.store(product_ptr + row, tl.sum(product, axis=0) / cols)


@triton.jit
def _strips_kernel(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, plain_ptr, product_ptr, dx_ptr, partial_ptr,
    dy_row_stride, x_row_stride, rows, cols,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(1)
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    lane_mask = lane < cols
    weight = tl.load(weight_ptr + lane, mask=lane_mask, other=0.0).to(tl.float32)[None, :]
    col = lane[None, :]
    dweight = tl.zeros([BLOCK], tl.float32)
    dbias = tl.zeros([BLOCK], tl.float32)
    for tile in range(program, tl.cdiv(rows, ROWS), tl.num_programs(1)):
        row = (tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
        row_mask = row < rows
        mask = row_mask & lane_mask[None, :]
        mean = tl.load(mean_ptr + row, mask=row_mask, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row_mask, other=0.0)
        plain = tl.load(plain_ptr + row, mask=row_mask, other=0.0)
        product = tl.load(product_ptr + row, mask=row_mask, other=0.0)
        x = tl.load(x_ptr + row * x_row_stride + col, mask=mask, other=0.0)  # [ROWS, BLOCK]
        dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0)
        xhat = (x.to(tl.float32) - mean) * rstd
        dy = dy.to(tl.float32)
        dx = rstd * (dy * weight - plain - xhat * product)
        tl.store(dx_ptr + row * cols + col, dx.to(dx_ptr.dtype.element_ty), mask=mask)
        dweight += tl.sum(dy * xhat, axis=0)
        dbias += tl.sum(dy, axis=0)
    at = partial_ptr + program.to(tl.int64) * (2 * cols) + lane
    tl.store(at, dweight, mask=lane_mask)
    tl.store(at + cols, dbias, mask=lane_mask)
