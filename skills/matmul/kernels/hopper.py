"""Persistent matmul for Hopper: TMA descriptors, one flattened loop over tiles and slices of k.

As many programs as multiprocessors walk the output tiles in groups of GROUP_M along m. The loop
over tiles and the loop over k are flattened into one, so that the slices of the next tile are
already loading while this one is written. The output goes through shared memory in SUBTILES
pieces, which leaves room for the stages.

One tile moves (BLOCK_M + BLOCK_N) * k elements in and BLOCK_M * BLOCK_N out for
2 * BLOCK_M * BLOCK_N * k FLOP; the product needs at least m*k + k*n reads and m*n writes.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from . import portable
from .operands import check_linear, check_matmul, is_tma_operand, multiprocessors
from .portable import activate

# BLOCK_M, BLOCK_N, BLOCK_K, stages, warps, subtiles, and speed relative to the first. Large tiles
# load less for each product. Shared memory of each is below 227 KiB.
TILES = (
    (128, 256, 64, 4, 8, 2, 1.0),
    (128, 128, 64, 4, 8, 1, 0.85),
    (64, 128, 128, 4, 4, 1, 0.7),
    (64, 64, 128, 6, 4, 1, 0.5),
)
# up to here the portable kernel is faster: its tiles are 16 rows high, and b is all there is to
# read; 16 x 8192 x 8192 took 43 us there on an H200 and 50 us with tiles of 64 rows
FEW_ROWS = 16


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
    SUBTILES: int | None = None,
    GROUP_M: int | None = None,
    BALANCED: bool | None = None,
) -> torch.Tensor:
    """Return `a @ b`, accumulated in float32.

    Args:
        a: (m, k) bfloat16, float16 or float32, any strides.
        b: (k, n) in the dtype of `a`, any strides.
        BLOCK_M, BLOCK_N, BLOCK_K: sizes of a tile, powers of two, BLOCK_M at least 64.
        STAGES, WARPS: slices of k in flight, and warps of a program.
        SUBTILES: pieces in which a tile is written; 1 or 2.
        GROUP_M: tiles along m walked before the next tile along n, for L2 reuse.
        BALANCED: start as few programs as finish in the same number of rounds.

    Returns:
        (m, n) in the dtype of `a`. At most `FEW_ROWS` rows, and what TMA cannot address (float32,
        rows that are not a multiple of 16 bytes apart, operands contiguous in neither direction),
        go to the portable kernel.

    Raises:
        ValueError: shapes, dtypes or devices do not match.
    """
    sizes = (BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS, SUBTILES)
    return _product(a, b, sizes, GROUP_M, BALANCED)


def matmul_backward(
    dout: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
    SUBTILES: int | None = None,
    GROUP_M: int | None = None,
    BALANCED: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `a @ b`: `dout @ b.T` and `a.T @ dout`, two launches on views.

    Args:
        dout: (m, n), the gradient of the product; a: (m, k); b: (k, n); one dtype, any strides.
        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS, SUBTILES, GROUP_M, BALANCED: as for `matmul`.

    Returns:
        da (m, k) and db (k, n) in the dtype of `dout`.

    Raises:
        ValueError: shapes, dtypes or devices do not match.
    """
    sizes = (BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS, SUBTILES)
    da = _product(dout, b.T, sizes, GROUP_M, BALANCED)
    return da, _product(a.T, dout, sizes, GROUP_M, BALANCED)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    activation: str,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
    SUBTILES: int | None = None,
    GROUP_M: int | None = None,
    BALANCED: bool | None = None,
) -> torch.Tensor:
    """Return `activation(x @ weight.T + bias)`; bias and activation in float32.

    Args:
        x: (m, k); weight: (n, k); bias: (n,); one dtype, any strides.
        activation: none, relu, gelu (with erf) or silu.
        BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS, SUBTILES, GROUP_M, BALANCED: as for `matmul`.

    Returns:
        (m, n) in the dtype of `x`; what TMA cannot address goes to the portable kernel.

    Raises:
        ValueError: shapes, dtypes or devices do not match, or the activation is not known.
    """
    check_linear(x, weight, bias, activation)
    if not fits_tma(x, weight.T):
        return portable.linear(x, weight, bias, activation=activation)
    if x.shape[0] <= FEW_ROWS:
        depth = _depth_for_few_rows(x, weight.T)
        return portable.linear(x, weight, bias, activation=activation, BLOCK_K=depth)
    sizes = (BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS, SUBTILES)
    return launch(x, weight.T, bias, activation, sizes, GROUP_M, BALANCED)


def _product(
    a: torch.Tensor,
    b: torch.Tensor,
    sizes: tuple[int | None, ...],
    group_m: int | None,
    balanced: bool | None,
) -> torch.Tensor:
    check_matmul(a, b)
    if not fits_tma(a, b):
        return portable.matmul(a, b)
    if a.shape[0] <= FEW_ROWS:
        return portable.matmul(a, b, BLOCK_K=_depth_for_few_rows(a, b))
    return launch(a, b, None, "none", sizes, group_m, balanced)


def fits_tma(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether TMA can read `a` and `b` and write their product, in 16-bit floats."""
    return (
        a.dtype in (torch.bfloat16, torch.float16)
        and is_tma_operand(a)
        and is_tma_operand(b)
        and b.shape[1] * b.element_size() % 16 == 0
    )


def _depth_for_few_rows(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """Slice of k for `portable`: 256 where loads are asynchronous, else its own choice.

    Triton knows sizes as multiples of 16 or not at all; element by element, 256 spills 12 KB a thread.
    """
    return 256 if a.shape[1] % 16 == 0 and b.shape[1] % 16 == 0 else None


def launch(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    sizes: tuple[int | None, ...],
    group_m: int | None,
    balanced: bool | None,
) -> torch.Tensor:
    """Start the kernel on operands that TMA can address; `sizes` as in `TILES`, None for its own."""
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    sms = multiprocessors(a)
    block_m, block_n, block_k, stages, warps, subtiles = (
        given or own for given, own in zip(sizes, choose_tile(m, n, sms), strict=True)
    )
    tiles = triton.cdiv(m, block_m) * triton.cdiv(n, block_n)
    programs = min(sms, tiles)
    if balanced is None or balanced:
        programs = triton.cdiv(tiles, triton.cdiv(tiles, programs))
    a_transposed, b_transposed = a.stride(1) != 1, b.stride(1) != 1
    matmul_kernel[(programs,)](
        _describe(a, a_transposed, block_m, block_k),
        _describe(b, b_transposed, block_k, block_n),
        _describe(out, False, block_m, block_n // subtiles),
        out if bias is None else bias,
        0 if bias is None else bias.stride(0),
        m,
        n,
        k,
        A_TRANSPOSED=a_transposed,
        B_TRANSPOSED=b_transposed,
        HAS_BIAS=bias is not None,
        ACTIVATION=activation,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        SUBTILES=subtiles,
        GROUP_M=group_m or 16,
        num_stages=stages,
        num_warps=warps,
    )
    return out


def choose_tile(m: int, n: int, sms: int) -> tuple[int, int, int, int, int, int]:
    """The tile of `TILES` whose rounds over all multiprocessors take the least time."""

    def rounds_time(tile: tuple[int, int, int, int, int, int, float]) -> float:
        tiles = triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1])
        return triton.cdiv(tiles, sms) * tile[0] * tile[1] / tile[6]

    return min(TILES, key=rounds_time)[:6]


def _describe(x: torch.Tensor, transposed: bool, rows: int, cols: int) -> TensorDescriptor:
    """A descriptor over the storage of `x`, whose contiguous dimension must come last."""
    view, block = (x.T, [cols, rows]) if transposed else (x, [rows, cols])
    return TensorDescriptor(view, list(view.shape), [view.stride(0), 1], block)


@triton.jit
def tile_origin(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Row and column of an output tile, walking GROUP_M tiles down before one to the right."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    group_tiles = GROUP_M * tiles_n
    first_m = tile // group_tiles * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    within = tile % group_tiles
    return (first_m + within % rows) * BLOCK_M, (within // rows) * BLOCK_N


@triton.jit
def finish(
    acc, bias_ptr, bias_stride, col, n, DTYPE: tl.constexpr, HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    """`acc` with bias and activation, in the output's dtype."""
    if HAS_BIAS:
        cols = col + tl.arange(0, acc.shape[1])
        # columns past n are not stored, so any number does
        bias = tl.load(bias_ptr + cols.to(tl.int64) * bias_stride, mask=cols < n, other=0.0)
        acc += bias.to(tl.float32)[None, :]
    return activate(acc, ACTIVATION, False).to(DTYPE)


# sizes steer loops and descriptors alone: one compilation serves all shapes
@triton.jit(do_not_specialize=["bias_stride", "m", "n", "k"])
def matmul_kernel(
    a_desc,
    b_desc,
    out_desc,
    bias_ptr,
    bias_stride,
    m,
    n,
    k,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SUBTILES: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    DTYPE: tl.constexpr = out_desc.dtype
    HALF_N: tl.constexpr = BLOCK_N // 2
    start = tl.program_id(0)
    programs = tl.num_programs(0)
    tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
    slices = tl.cdiv(k, BLOCK_K)
    # a second counter for the epilogue, so that the pipeliner may run the first one ahead
    written = start
    for tile in tl.range(start, tiles, programs, flatten=True):
        row, col = tile_origin(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for i in range(slices):
            offset = i * BLOCK_K
            a = a_desc.load([offset, row]).T if A_TRANSPOSED else a_desc.load([row, offset])
            b = b_desc.load([col, offset]).T if B_TRANSPOSED else b_desc.load([offset, col])
            acc = tl.dot(a, b, acc)

        row, col = tile_origin(written, m, n, BLOCK_M, BLOCK_N, GROUP_M)
        written += programs
        if SUBTILES == 1:
            out = finish(acc, bias_ptr, bias_stride, col, n, DTYPE, HAS_BIAS, ACTIVATION)
            out_desc.store([row, col], out)
        else:
            parts = tl.permute(tl.reshape(acc, (BLOCK_M, 2, HALF_N)), (0, 2, 1))
            left, right = tl.split(parts)
            out = finish(left, bias_ptr, bias_stride, col, n, DTYPE, HAS_BIAS, ACTIVATION)
            out_desc.store([row, col], out)
            col += HALF_N
            out = finish(right, bias_ptr, bias_stride, col, n, DTYPE, HAS_BIAS, ACTIVATION)
            out_desc.store([row, col], out)
