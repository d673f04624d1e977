"""y = 2 x in Gluon."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


def double(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    layout = gl.BlockedLayout([4], [32], [4], [0])
    double_kernel[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), 512, layout, num_warps=4)
    return y


@gluon.jit
def double_kernel(x_ptr, y_ptr, size, BLOCK: gl.constexpr, layout: gl.constexpr):
    index = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = index < size
    gl.store(y_ptr + index, 2 * gl.load(x_ptr + index, mask=mask), mask=mask)
