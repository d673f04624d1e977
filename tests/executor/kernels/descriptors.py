"""A copy through tensor descriptors, made on the host and on the device."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def host_copy(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    source = TensorDescriptor.from_tensor(x, [64, 64])
    target = TensorDescriptor.from_tensor(y, [64, 64])
    host_copy_kernel[(x.shape[0] // 64, x.shape[1] // 64)](source, target)
    return y


def device_copy(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    device_copy_kernel[(x.shape[0] // 64, x.shape[1] // 64)](x, y, *x.shape, launch_pdl=True)
    return y


@triton.jit
def host_copy_kernel(source, target):
    row, col = tl.program_id(0) * 64, tl.program_id(1) * 64
    target.store([row, col], source.load([row, col]))


@triton.jit
def device_copy_kernel(x_ptr, y_ptr, rows, cols):
    row, col = tl.program_id(0) * 64, tl.program_id(1) * 64
    source = tl.make_tensor_descriptor(x_ptr, [rows, cols], [cols, 1], [64, 64])
    target = tl.make_tensor_descriptor(y_ptr, [rows, cols], [cols, 1], [64, 64])
    target.store([row, col], source.load([row, col]))
