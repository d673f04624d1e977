"""Matmul by pointers, for every architecture: masked edges, any strides, float32 in full precision.

One program computes one BLOCK_M x BLOCK_N tile of the output and walks k in slices of BLOCK_K.
Programs are ordered in groups of GROUP_M tiles along m, so that those running together share rows
of `a` and columns of `b` in L2. A tile moves (BLOCK_M + BLOCK_N) * k elements in and
BLOCK_M * BLOCK_N out for 2 * BLOCK_M * BLOCK_N * k FLOP; the product needs at least
m*k + k*n elements read and m*n written.
"""

import torch
import triton
import triton.language as tl

from .operands import check_linear, check_matmul


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    GROUP_M: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
    PRECISION: str | None = None,
) -> torch.Tensor:
    """Return `a @ b`, accumulated in float32.

    Args:
        a: (m, k) bfloat16, float16 or float32, any strides.
        b: (k, n) in the dtype of `a`, any strides.
        BLOCK_M, BLOCK_N, BLOCK_K: sizes of a tile, powers of two of at least 16.
        GROUP_M: tiles along m walked before the next tile along n.
        STAGES, WARPS: slices of k in flight, and warps of a program.
        PRECISION: how float32 is multiplied: ieee (exact products) or tf32x3.

    Returns:
        (m, n) in the dtype of `a`.

    Raises:
        ValueError: shapes, dtypes or devices do not match.
    """
    check_matmul(a, b)
    blocks = (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, WARPS)
    return _launch(a, b, None, "none", blocks, PRECISION)


def matmul_backward(
    dout: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    GROUP_M: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
    PRECISION: str | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `a @ b`: `dout @ b.T` and `a.T @ dout`, two launches on views.

    Args:
        dout: (m, n), the gradient of the product; a: (m, k); b: (k, n); one dtype, any strides.
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, WARPS, PRECISION: as for `matmul`, for both.

    Returns:
        da (m, k) and db (k, n) in the dtype of `dout`.

    Raises:
        ValueError: shapes, dtypes or devices do not match.
    """
    blocks = (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, WARPS)
    check_matmul(dout, b.T)
    check_matmul(a.T, dout)
    da = _launch(dout, b.T, None, "none", blocks, PRECISION)
    return da, _launch(a.T, dout, None, "none", blocks, PRECISION)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    activation: str,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    BLOCK_K: int | None = None,
    GROUP_M: int | None = None,
    STAGES: int | None = None,
    WARPS: int | None = None,
    PRECISION: str | None = None,
) -> torch.Tensor:
    """Return `activation(x @ weight.T + bias)`; bias and activation in float32.

    Args:
        x: (m, k); weight: (n, k); bias: (n,); one dtype, any strides.
        activation: none, relu, gelu (with erf) or silu.
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, WARPS, PRECISION: as for `matmul`.

    Returns:
        (m, n) in the dtype of `x`.

    Raises:
        ValueError: shapes, dtypes or devices do not match, or the activation is not known.
    """
    check_linear(x, weight, bias, activation)
    blocks = (BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, STAGES, WARPS)
    return _launch(x, weight.T, bias, activation, blocks, PRECISION)


def _launch(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    blocks: tuple[int | None, ...],
    precision: str | None,
) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    if 0 in out.shape:
        return out
    chosen = _choose(m, n, a.dtype)
    block_m, block_n, block_k, group_m, stages, warps = (
        given or own for given, own in zip(blocks, chosen, strict=True)
    )
    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    matmul_kernel[grid](
        a,
        b,
        out if bias is None else bias,
        out,
        m,
        n,
        k,
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        0 if bias is None else bias.stride(0),
        out.stride(0),
        HAS_BIAS=bias is not None,
        ACTIVATION=activation,
        PRECISION=precision or "ieee",
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP_M=group_m,
        num_stages=stages,
        num_warps=warps,
    )
    return out


def _choose(m: int, n: int, dtype: torch.dtype) -> tuple[int, int, int, int, int, int]:
    """BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, stages and warps for an (m, n) output.

    A stage of the largest tile is 32 KiB, so that three fit the 99 KiB of sm_89.
    """
    if dtype == torch.float32:
        # ieee products run on the ordinary cores; slices of 32 gave 43.3 TFLOP/s on an H200, of 16 39.5
        return (128, 128, 32, 8, 3, 8) if min(m, n) > 64 else (32, 64, 32, 8, 3, 4)
    if m <= 16:
        # a few rows: bound by reading b, so many programs with long slices in flight
        return 16, 64, 128, 8, 4, 4
    if m <= 64 or n <= 64:
        return 64, 64, 64, 8, 4, 4
    # below about one 128 x 128 tile for each multiprocessor, smaller tiles keep more of them busy
    if triton.cdiv(m, 128) * triton.cdiv(n, 128) < 96:
        return 64, 64, 64, 8, 4, 4
    return 128, 128, 64, 8, 3, 8


@triton.jit
def activate(x, ACTIVATION: tl.constexpr, EXACT: tl.constexpr):
    """`x` after the named activation, in float32; EXACT takes GELU by erf to the last bits."""
    if ACTIVATION == "relu":
        # a maximum would turn NaN into 0
        x = tl.where(x < 0, 0.0, x)
    elif ACTIVATION == "gelu":
        if EXACT:
            x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
        else:
            # Abramowitz and Stegun 7.1.26, within 1.5e-7 of erf: a third of its instructions
            size = tl.abs(x)
            t = 1.0 / (1.0 + 0.23164189 * size)
            series = t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))
            series = t * (0.254829592 + t * (-0.284496736 + series))
            tail = 0.5 * series * tl.exp2(-0.72134752 * size * size)
            x = x * tl.where(x < 0, tail, 1.0 - tail)
    elif ACTIVATION == "silu":
        x = x / (1.0 + tl.exp(-x))
    return x


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    bias_ptr,
    out_ptr,
    m,
    n,
    k,
    a_row_stride,
    a_col_stride,
    b_row_stride,
    b_col_stride,
    bias_stride,
    out_row_stride,
    HAS_BIAS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    tile = tl.program_id(0)
    group_tiles = GROUP_M * tiles_n
    first_m = tile // group_tiles * GROUP_M
    group_rows = min(tiles_m - first_m, GROUP_M)
    within = tile % group_tiles
    row = (first_m + within % group_rows) * BLOCK_M + tl.arange(0, BLOCK_M)
    col = (within // group_rows) * BLOCK_N + tl.arange(0, BLOCK_N)

    # Rows past the edge wrap to rows that exist: they are never stored, and the loads need no mask
    # for them. The remainder keeps what the compiler knows of contiguity, so that 16 bytes load at
    # once; a select loses it. int64, because index * stride passes 2**31 on large operands.
    a_rows = (row % m).to(tl.int64)
    b_cols = (col % n).to(tl.int64)
    depth = tl.arange(0, BLOCK_K)
    wide = depth.to(tl.int64)
    a_ptrs = a_ptr + a_rows[:, None] * a_row_stride + wide[None, :] * a_col_stride
    b_ptrs = b_ptr + wide[:, None] * b_row_stride + b_cols[None, :] * b_col_stride
    a_step = BLOCK_K * tl.cast(a_col_stride, tl.int64)
    b_step = BLOCK_K * tl.cast(b_row_stride, tl.int64)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for offset in range(0, k, BLOCK_K):
        # 0 adds nothing to the products
        a = tl.load(a_ptrs, mask=depth[None, :] < k - offset, other=0.0)
        b = tl.load(b_ptrs, mask=depth[:, None] < k - offset, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += a_step
        b_ptrs += b_step

    if HAS_BIAS:
        bias = tl.load(bias_ptr + col.to(tl.int64) * bias_stride, mask=col < n, other=0.0)
        acc += bias.to(tl.float32)[None, :]
    EXACT: tl.constexpr = out_ptr.dtype.element_ty == tl.float32
    acc = activate(acc, ACTIVATION, EXACT)
    out_ptrs = out_ptr + row.to(tl.int64)[:, None] * out_row_stride + col[None, :]
    inside = (row < m)[:, None] & (col < n)[None, :]
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=inside)
