"""What the kernels share: checks, the default tile, the order of tiles, and the loop over the inner dimension."""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
INF = tl.constexpr(float("inf"))

Tuning = tuple[int | None, int | None, int | None, int | None, int | None]
"""BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS."""


def check(x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> None:
    """Raise ValueError where shapes or dtypes do not agree."""
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1] or not weight.shape[0]:
        raise ValueError(
            f"x is {tuple(x.shape)}, weight {tuple(weight.shape)}: not (rows, hidden), (vocab, hidden)"
        )
    if x.dtype != weight.dtype:
        raise ValueError(f"x is {x.dtype}, weight {weight.dtype}")
    if target.shape != (x.shape[0],):
        raise ValueError(f"target is {tuple(target.shape)}, x is {tuple(x.shape)}")


def adjacent(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, copied where the elements of its last dimension do not lie next to each other."""
    if tensor.shape[-1] == 1 or tensor.stride(-1) == 1:
        return tensor
    return tensor.contiguous()


def _shared_bytes(device: torch.device) -> int:
    """Return the bytes of shared memory that one program may have."""
    if device.type == "cpu":  # Triton's interpreter
        return 65536
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin


def tile(tuning: Tuning, a: torch.Tensor, m: int, n: int, k: int) -> tuple[int, ...]:
    """Return block_m, block_n, block_k, stages, warps for the product of `a`, (m, k), and a (k, n)."""
    shared = _shared_bytes(a.device)
    if a.dtype == torch.float32:
        # no matrix units without TF32
        default = (64, 64, 32, 2, 4)
    elif m * n <= 128 * 128 * 64:
        default = (64, 64, 64, 3, 4)
    elif shared >= 200000:
        # 128 x 256 float32 sums are half of the registers of 8 warps; 3 stages are 144 KB
        default = (128, 256, 64, 3, 8)
    else:
        # Ampere and Ada keep operands in registers, too; CDNA has 64 KB
        default = (128, 128, 64, 3 if shared >= 100000 else 2, 8)
    block_m, block_n, block_k, stages, warps = (
        given or own for given, own in zip(tuning, default, strict=True)
    )
    # a tile that is larger than the matrix would only compute zeros; 16 is the least of a matrix unit
    block_m = max(16, min(block_m, triton.next_power_of_2(m)))
    block_n = max(16, min(block_n, triton.next_power_of_2(n)))
    block_k = max(16, min(block_k, triton.next_power_of_2(k)))
    return block_m, block_n, block_k, stages, warps


@triton.jit
def place(m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return row and column of this program's tile: down eight rows of tiles, then to the next column of them.

    Programs of one moment then share their operands in the second-level cache.
    """
    rows, cols = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    program = tl.program_id(0)
    band = program // (8 * cols)
    height = tl.minimum(rows - band * 8, 8)
    within = program % (8 * cols)
    return band * 8 + within % height, within // height


@triton.jit
def product(
    total, a_ptr, b_ptr, row, col, m, n, k, a_row_stride, a_stride, b_stride, b_col_stride,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Return total plus a tile of a (m, k) times b (k, n), both at any strides, in float32; nothing past the end is added."""
    inner = tl.arange(0, BLOCK_K)
    a_ptr += row.to(tl.int64)[:, None] * a_row_stride + inner[None, :].to(tl.int64) * a_stride
    b_ptr += inner[:, None].to(tl.int64) * b_stride + col.to(tl.int64)[None, :] * b_col_stride
    row_mask, col_mask = (row < m)[:, None], (col < n)[None, :]
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_ptr, mask=row_mask & (inner < k - start)[None, :], other=0.0)
        b = tl.load(b_ptr, mask=(inner < k - start)[:, None] & col_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        a_ptr += BLOCK_K * a_stride
        b_ptr += BLOCK_K * b_stride
    return total
