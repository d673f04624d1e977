"""c = a @ b with pointers, in the forms that the compile tests need."""

import torch
import triton
import triton.language as tl


def matmul(
    a: torch.Tensor, b: torch.Tensor, *, STAGES: int | None = None, WARPS: int | None = None
) -> torch.Tensor:
    c = a.new_empty(a.shape[0], b.shape[1])
    grid = (triton.cdiv(a.shape[0], 128), triton.cdiv(b.shape[1], 128))
    matmul_kernel[grid](
        a, b, c, b.shape[1], a.shape[1], 128, 128, 64, num_stages=STAGES or 3, num_warps=WARPS or 8
    )
    return c


def matmul_twice(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return double(matmul(a, b))


def double(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    # the same launch in a loop compiles once
    for _ in range(3):
        double_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


def tuned_double(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


def tuned_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a.new_empty(a.shape[0], b.shape[1])
    tuned_matmul_kernel[(1,)](a, b, c, b.shape[1], a.shape[1], 128, 128, 64)
    return c


def one_block_per_multiprocessor(x: torch.Tensor) -> torch.Tensor:
    """The usual questions of a persistent kernel, asked with checks that refuse anything but a GPU."""
    if not (x.is_cuda and torch.cuda.is_available()):
        raise ValueError("x must be on the GPU")
    y = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    with torch.cuda.device(x.device):
        blocks = torch.cuda.get_device_properties(x.device).multi_processor_count
        properties = triton.runtime.driver.active.utils.get_device_properties(0)
        major, _ = torch.cuda.get_device_capability()
        block = 256 if major >= 9 and properties["max_shared_mem"] > 0 else 128
        double_kernel[(blocks,)](x, y, x.numel(), BLOCK=block)
        double_kernel[(properties["multiprocessor_count"],)](x, y, x.numel(), BLOCK=2 * block)
    return y


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    col = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptr + row[:, None] * K + (k + inner)[None, :])
        b = tl.load(b_ptr + (k + inner)[:, None] * N + col[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + row[:, None] * N + col[None, :], acc.to(c_ptr.dtype.element_ty))


tuned_matmul_kernel = triton.autotune(
    [triton.Config({}, num_stages=3), triton.Config({}, num_stages=9)], key=["N"]
)(matmul_kernel)


@triton.jit
def double_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < size
    tl.store(y_ptr + index, 2 * tl.load(x_ptr + index, mask=mask), mask=mask)


tuned_kernel = triton.autotune(
    [triton.Config({"BLOCK": 256}, num_warps=2), triton.Config({"BLOCK": 512}, num_warps=4)],
    key=["size"],
)(double_kernel)
