"""Second step of dweight and dbias: add the shares that the programs left, in a fixed order."""

import torch
import triton
import triton.language as tl


def reduce_partials(partial: torch.Tensor, dweight: torch.Tensor, dbias: torch.Tensor) -> None:
    """Write sums over programs to `dweight` and `dbias`, (cols,) each.

    Args:
        partial: (programs, 2 * cols) in float32, in each row the share of dweight, then of dbias.
        dweight: (cols,).
        dbias: (cols,).
    """
    programs, columns = partial.shape
    # 16 columns are 64 bytes, two sectors of memory, so that few columns still fill the device
    rows, block = (128, 16) if columns <= 8192 else (64, 32)
    _reduce_kernel[(triton.cdiv(columns, block),)](
        partial, dweight, dbias, programs, columns // 2, ROWS=rows, BLOCK=block, num_warps=8
    )


@triton.jit
def _reduce_kernel(
    partial_ptr, dweight_ptr, dbias_ptr, programs, cols, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for start in range(0, programs, ROWS):
        program = start + tl.arange(0, ROWS)
        mask = (program < programs)[:, None] & (col < 2 * cols)[None, :]
        at = program.to(tl.int64)[:, None] * (2 * cols) + col[None, :]
        total += tl.load(partial_ptr + at, mask=mask, other=0.0)
    grad = tl.sum(total, axis=0).to(dweight_ptr.dtype.element_ty)
    # a block may hold the last of dweight and the first of dbias
    tl.store(dweight_ptr + col, grad, mask=col < cols)
    tl.store(dbias_ptr + (col - cols), grad, mask=(col >= cols) & (col < 2 * cols))
