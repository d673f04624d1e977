"""Warp-specialised matmul for Hopper, in Gluon: one loader warp feeds warpgroups of tensor cores.

The loader warp walks the same list of output tiles as the consumers and keeps `STAGES` slices of
A and B on their way into shared memory (TMA, one mbarrier pair per stage). Each consumer
warpgroup owns 64 rows of the tile and 64 x 256 accumulators in its own 240 registers a thread.
A consumer that finishes a tile writes it through shared memory with TMA while the loader already
fills the stages of the next tile, and the other consumer keeps the tensor cores busy.

One tile moves (BLOCK_M + 256) * k elements in and BLOCK_M * 256 out for 2 * BLOCK_M * 256 * k FLOP;
the whole product needs at least m*k + k*n reads and m*n writes of memory.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from . import hopper
from .operands import check_linear, check_matmul, multiprocessors

# Each of two consumer warpgroups holds 64 x 256 float32 accumulators: 128 registers a thread, for
# the widest instruction (m64n256k16), which reads shared memory at 80 of its 128 bytes per clock.
CONSUMERS = gl.constexpr(2)
TILE_ROWS = gl.constexpr(128)
TILE_COLS = gl.constexpr(256)
TILE_DEPTH = gl.constexpr(64)


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    STAGES: int | None = None,
    SUBTILES: int | None = None,
    OUT_BUFFERS: int | None = None,
    GROUP_M: int | None = None,
    LAG: int | None = None,
    BALANCED: bool | None = None,
) -> torch.Tensor:
    """Return `a @ b`, accumulated in float32.

    Args:
        a: (m, k) bfloat16, float16 or float32, any strides.
        b: (k, n) in the dtype of `a`, any strides.
        STAGES: slices of 64 along k held in shared memory, 48 KiB each.
        SUBTILES: pieces in which a consumer writes its 64 x 256 outputs; 1, 2 or 4.
        OUT_BUFFERS: pieces of output a consumer keeps on their way to memory.
        GROUP_M: tiles along m walked before the next tile along n, for L2 reuse.
        LAG: stages by which the second consumer starts behind the first, so that one multiplies
            while the other writes.
        BALANCED: start as few programs as finish in the same number of rounds.

    Returns:
        (m, n) in the dtype of `a`. Outputs for which smaller tiles fill the GPU better, and what
        TMA cannot address, go to the kernels of `hopper.py`.

    Raises:
        ValueError: shapes, dtypes or devices do not match.
    """
    return _product(a, b, STAGES, SUBTILES, OUT_BUFFERS, GROUP_M, LAG, BALANCED)


def matmul_backward(
    dout: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    *,
    STAGES: int | None = None,
    SUBTILES: int | None = None,
    OUT_BUFFERS: int | None = None,
    GROUP_M: int | None = None,
    LAG: int | None = None,
    BALANCED: bool | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `a @ b`: `dout @ b.T` and `a.T @ dout`, two launches on views.

    Args:
        dout: (m, n), the gradient of the product; a: (m, k); b: (k, n); one dtype, any strides.
        STAGES, SUBTILES, OUT_BUFFERS, GROUP_M, LAG, BALANCED: as for `matmul`.

    Returns:
        da (m, k) and db (k, n) in the dtype of `dout`.

    Raises:
        ValueError: shapes, dtypes or devices do not match.
    """
    tuning = (STAGES, SUBTILES, OUT_BUFFERS, GROUP_M, LAG, BALANCED)
    return _product(dout, b.T, *tuning), _product(a.T, dout, *tuning)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    *,
    activation: str,
    STAGES: int | None = None,
    SUBTILES: int | None = None,
    OUT_BUFFERS: int | None = None,
    GROUP_M: int | None = None,
    LAG: int | None = None,
    BALANCED: bool | None = None,
) -> torch.Tensor:
    """Return `activation(x @ weight.T + bias)`; bias and activation in float32.

    Args:
        x: (m, k); weight: (n, k); bias: (n,); one dtype, any strides.
        activation: none, relu, gelu (with erf) or silu.
        STAGES, SUBTILES, OUT_BUFFERS, GROUP_M, LAG, BALANCED: as for `matmul`.

    Returns:
        (m, n) in the dtype of `x`.

    Raises:
        ValueError: shapes, dtypes or devices do not match, or the activation is not known.
    """
    check_linear(x, weight, bias, activation)
    if not _fits(x, weight.T):
        return hopper.linear(x, weight, bias, activation=activation)
    tuning = (STAGES, SUBTILES, OUT_BUFFERS, GROUP_M, LAG, BALANCED)
    return _launch(x, weight.T, bias, activation, *tuning)


def _product(a: torch.Tensor, b: torch.Tensor, *tuning: int | None) -> torch.Tensor:
    check_matmul(a, b)
    return _launch(a, b, None, "none", *tuning) if _fits(a, b) else hopper.matmul(a, b)


def _fits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether TMA can address both and 128 x 256 is the tile that fills the GPU best."""
    if not hopper.fits_tma(a, b):
        return False
    m, n = a.shape[0], b.shape[1]
    tile = hopper.choose_tile(m, n, multiprocessors(a))
    return m > hopper.FEW_ROWS and tile[:2] == (TILE_ROWS.value, TILE_COLS.value)


def _launch(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    *tuning: int | None,
) -> torch.Tensor:
    stages, subtiles, out_buffers, group_m, lag, balanced = tuning
    (m, k), n = a.shape, b.shape[1]
    out = torch.empty((m, n), device=a.device, dtype=a.dtype)
    # 4 stages of 48 KiB and output buffers of 32 KiB are 224 of the 227 KiB; with a bias, pieces
    # of 64 columns leave it the registers (8192 x 4096 x 4096 on an H200: 347 us, 352 of 128)
    subtiles = subtiles or (2 if bias is None else 4)
    out_buffers = out_buffers or max(subtiles // 2, 1)
    rows, cols, depth = TILE_ROWS.value, TILE_COLS.value, TILE_DEPTH.value
    consumer_rows = rows // CONSUMERS.value
    tiles = triton.cdiv(m, rows) * triton.cdiv(n, cols)
    programs = min(multiprocessors(a), tiles)
    if balanced is None or balanced:
        programs = triton.cdiv(tiles, triton.cdiv(tiles, programs))

    a_transposed, b_transposed = a.stride(1) != 1, b.stride(1) != 1
    matmul_kernel[(programs,)](
        _describe(a, a_transposed, (consumer_rows, depth)),
        _describe(b, b_transposed, (depth, cols)),
        _describe(out, False, (consumer_rows, cols // subtiles)),
        out if bias is None else bias,
        0 if bias is None else bias.stride(0),
        m,
        n,
        k,
        A_TRANSPOSED=a_transposed,
        B_TRANSPOSED=b_transposed,
        HAS_BIAS=bias is not None,
        ACTIVATION=activation,
        STAGES=stages or 4,
        SUBTILES=subtiles,
        OUT_BUFFERS=out_buffers,
        GROUP_M=group_m or 16,
        LAG=lag or 0,
        num_warps=4,
    )
    return out


def _describe(x: torch.Tensor, transposed: bool, block: tuple[int, int]) -> TensorDescriptor:
    """A descriptor over the storage of `x`, whose contiguous dimension must come last."""
    view, shape = (x.T, list(block)[::-1]) if transposed else (x, list(block))
    dtype = gl.bfloat16 if x.dtype == torch.bfloat16 else gl.float16
    layout = gl.NVMMASharedLayout.get_default_for(shape, dtype)
    strides = [view.stride(0), 1]
    return TensorDescriptor(view, list(view.shape), strides, shape, layout)


@gluon.jit
def tile_origin(tile, m, n, GROUP_M: gl.constexpr):
    """Row and column of an output tile, walking GROUP_M tiles down before one to the right."""
    tiles_m = gl.cdiv(m, TILE_ROWS)
    tiles_n = gl.cdiv(n, TILE_COLS)
    group_tiles = GROUP_M * tiles_n
    first_m = tile // group_tiles * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    within = tile % group_tiles
    return (first_m + within % rows) * TILE_ROWS, (within // rows) * TILE_COLS


@gluon.jit
def load_tiles(
    a_desc, b_desc, a_bufs, b_bufs, full, empty, m, n, k, A_TRANSPOSED: gl.constexpr,
    B_TRANSPOSED: gl.constexpr, STAGES: gl.constexpr, GROUP_M: gl.constexpr,
):  # fmt: skip
    """The loader warp: fill the stages, tile after tile, as the consumers empty them."""
    ROWS: gl.constexpr = TILE_ROWS // CONSUMERS
    stage_bytes: gl.constexpr = a_desc.block_type.nbytes * CONSUMERS + b_desc.block_type.nbytes
    tiles = gl.cdiv(m, TILE_ROWS) * gl.cdiv(n, TILE_COLS)
    stage = 0
    # a fresh barrier counts as having completed the odd phase: the first waits pass
    phase = 1
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        row, col = tile_origin(tile, m, n, GROUP_M)
        for offset in range(0, k, TILE_DEPTH):
            mbarrier.wait(empty.index(stage), phase)
            ready = full.index(stage)
            mbarrier.expect(ready, stage_bytes)
            for i in gl.static_range(CONSUMERS):
                buf = a_bufs.index(stage * CONSUMERS + i)
                if A_TRANSPOSED:
                    tma.async_copy_global_to_shared(a_desc, [offset, row + i * ROWS], ready, buf)
                else:
                    tma.async_copy_global_to_shared(a_desc, [row + i * ROWS, offset], ready, buf)
            if B_TRANSPOSED:
                tma.async_copy_global_to_shared(b_desc, [col, offset], ready, b_bufs.index(stage))
            else:
                tma.async_copy_global_to_shared(b_desc, [offset, col], ready, b_bufs.index(stage))
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


@gluon.jit
def multiply_tiles(
    out_desc, bias_ptr, bias_stride, a_bufs, b_bufs, out_bufs, full, empty, m, n, k,
    CONSUMER: gl.constexpr, LAG: gl.constexpr, A_TRANSPOSED: gl.constexpr,
    B_TRANSPOSED: gl.constexpr, HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr,
    STAGES: gl.constexpr, SUBTILES: gl.constexpr, OUT_BUFFERS: gl.constexpr,
    GROUP_M: gl.constexpr,
):  # fmt: skip
    """A consumer: multiply and write rows [64 * CONSUMER, 64 * CONSUMER + 64) of each tile."""
    ROWS: gl.constexpr = TILE_ROWS // CONSUMERS
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE_COLS, 16])
    tiles = gl.cdiv(m, TILE_ROWS) * gl.cdiv(n, TILE_COLS)
    acc = gl.zeros([ROWS, TILE_COLS], gl.float32, layout)
    stage = 0
    phase = 0
    if LAG > 0:
        # a product shorter than LAG slices fills no such stage
        mbarrier.wait(full.index(LAG), 0, pred=k > LAG * TILE_DEPTH)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        for offset in range(0, k, TILE_DEPTH):
            mbarrier.wait(full.index(stage), phase)
            a_buf = a_bufs.index(stage * CONSUMERS + CONSUMER)
            b_buf = b_bufs.index(stage)
            if A_TRANSPOSED:
                a_buf = a_buf.permute((1, 0))
            if B_TRANSPOSED:
                b_buf = b_buf.permute((1, 0))
            token = warpgroup_mma(a_buf, b_buf, acc, use_acc=offset > 0, is_async=True)
            # With this product alone in flight, the one before it is done with its stage. That stage
            # is computed, not kept in a variable: Triton 3.6 takes `previous = stage` for unchanged
            # by the loop, and every arrival went to the barrier of a tile's first stage (deadlock).
            acc = warpgroup_mma_wait(1, deps=(token,))
            mbarrier.arrive(empty.index((stage + STAGES - 1) % STAGES), pred=offset > 0)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
        acc = warpgroup_mma_wait(0, deps=(acc,))
        mbarrier.arrive(empty.index((stage + STAGES - 1) % STAGES))
        row, col = tile_origin(tile, m, n, GROUP_M)
        write_tile(
            acc, out_desc, bias_ptr, bias_stride, out_bufs, row + CONSUMER * ROWS, col, n,
            CONSUMER, HAS_BIAS, ACTIVATION, SUBTILES, OUT_BUFFERS,
        )  # fmt: skip
    tma.store_wait(0)


@gluon.jit
def write_tile(
    acc, out_desc, bias_ptr, bias_stride, out_bufs, row, col, n, CONSUMER: gl.constexpr,
    HAS_BIAS: gl.constexpr, ACTIVATION: gl.constexpr, SUBTILES: gl.constexpr,
    OUT_BUFFERS: gl.constexpr,
):  # fmt: skip
    """Add the bias, apply the activation and store, SUBTILES pieces along n one after another."""
    COLS: gl.constexpr = TILE_COLS // SUBTILES
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    pieces = split_columns(acc, SUBTILES)
    for i in gl.static_range(SUBTILES):
        piece = gl.convert_layout(pieces[i], layout)
        if HAS_BIAS:
            cols = col + i * COLS + gl.arange(0, COLS, gl.SliceLayout(0, layout))
            # columns past n are not stored, so any number does
            bias = gl.load(bias_ptr + cols.to(gl.int64) * bias_stride, mask=cols < n, other=0.0)
            piece += bias.to(gl.float32)[None, :]
        piece = activate(piece, ACTIVATION).to(out_desc.dtype)
        out_buf = out_bufs.index(CONSUMER * OUT_BUFFERS + i % OUT_BUFFERS)
        # TMA has read what this buffer held once at most OUT_BUFFERS - 1 stores are pending
        tma.store_wait(OUT_BUFFERS - 1)
        out_buf.store(piece)
        fence_async_shared()
        tma.async_copy_shared_to_global(out_desc, [row, col + i * COLS], out_buf)


@gluon.jit
def split_columns(x, PIECES: gl.constexpr):
    """`x` cut into 1, 2 or 4 pieces of equal width."""
    if PIECES == 1:
        pieces = (x,)
    else:
        rows: gl.constexpr = x.shape[0]
        half: gl.constexpr = x.shape[1] // 2
        left, right = x.reshape([rows, 2, half]).permute(0, 2, 1).split()
        pieces = split_columns(left, PIECES // 2) + split_columns(right, PIECES // 2)
    return pieces


@gluon.jit
def activate(x, ACTIVATION: gl.constexpr):
    """`x` after the named activation, in float32."""
    if ACTIVATION == "relu":
        # a maximum would turn NaN into 0
        x = gl.where(x < 0, 0.0, x)
    elif ACTIVATION == "gelu":
        # Abramowitz and Stegun 7.1.26, within 1.5e-7 of erf; with erf, 8192 x 4096 x 4096 took 599 us
        # on an H200, where SiLU took 381
        size = gl.abs(x)
        t = 1.0 / (1.0 + 0.23164189 * size)
        series = t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))
        series = t * (0.254829592 + t * (-0.284496736 + series))
        tail = 0.5 * series * gl.exp2(-0.72134752 * size * size)
        x = x * gl.where(x < 0, tail, 1.0 - tail)
    elif ACTIVATION == "silu":
        x = x / (1.0 + gl.exp(-x))
    return x


# sizes steer loops and descriptors alone: one compilation serves all shapes
@gluon.jit(do_not_specialize=["bias_stride", "m", "n", "k"])
def matmul_kernel(
    a_desc, b_desc, out_desc, bias_ptr, bias_stride, m, n, k,
    A_TRANSPOSED: gl.constexpr, B_TRANSPOSED: gl.constexpr, HAS_BIAS: gl.constexpr,
    ACTIVATION: gl.constexpr, STAGES: gl.constexpr, SUBTILES: gl.constexpr,
    OUT_BUFFERS: gl.constexpr, GROUP_M: gl.constexpr, LAG: gl.constexpr,
):  # fmt: skip
    a_shape: gl.constexpr = a_desc.block_type.shape
    b_shape: gl.constexpr = b_desc.block_type.shape
    out_shape: gl.constexpr = out_desc.block_type.shape
    a_bufs = gl.allocate_shared_memory(
        a_desc.dtype, [STAGES * CONSUMERS, a_shape[0], a_shape[1]], a_desc.layout
    )
    b_bufs = gl.allocate_shared_memory(
        b_desc.dtype, [STAGES, b_shape[0], b_shape[1]], b_desc.layout
    )
    out_bufs = gl.allocate_shared_memory(
        out_desc.dtype, [CONSUMERS * OUT_BUFFERS, out_shape[0], out_shape[1]], out_desc.layout
    )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)

    gl.warp_specialize(
        [
            (multiply_tiles, (
                out_desc, bias_ptr, bias_stride, a_bufs, b_bufs, out_bufs, full, empty, m, n, k,
                0, 0, A_TRANSPOSED, B_TRANSPOSED, HAS_BIAS, ACTIVATION, STAGES, SUBTILES,
                OUT_BUFFERS, GROUP_M,
            )),
            (multiply_tiles, (
                out_desc, bias_ptr, bias_stride, a_bufs, b_bufs, out_bufs, full, empty, m, n, k,
                1, LAG, A_TRANSPOSED, B_TRANSPOSED, HAS_BIAS, ACTIVATION, STAGES, SUBTILES,
                OUT_BUFFERS, GROUP_M,
            )),
            (load_tiles, (
                a_desc, b_desc, a_bufs, b_bufs, full, empty, m, n, k, A_TRANSPOSED, B_TRANSPOSED,
                STAGES, GROUP_M,
            )),
        ],
        [4, 1],
        # of 504 registers for the threads of three warpgroups, 240 stay with the first consumer
        [240, 24],
    )  # fmt: skip
