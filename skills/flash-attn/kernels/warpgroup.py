"""What one matrix warpgroup of the sm_90 kernel does with a tile: products, softmax, barriers.

A warpgroup is four warps. Shared-memory tiles are (1, 1, rows, cols) boxes of the copy engine.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Renamed from thread_barrier to barrier in triton 3.7.
_meet = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier


@gluon.jit
def named_barrier(ID: gl.constexpr, WAIT: gl.constexpr):
    """bar.sync (WAIT) or bar.arrive of two warpgroups on hardware barrier ID, once in each thread.

    The compiler keeps barriers 0 to 7 for itself; 8 + i is warpgroup i's turn at the tensor cores.
    """
    lanes: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    name: gl.constexpr = "sync" if WAIT else "arrive"
    asm: gl.constexpr = f"bar.{name} {8 + ID}, 256; mov.b32 $0, $1;"
    gl.inline_asm_elementwise(
        asm, "=r,r", [gl.arange(0, 128, layout=lanes)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def scores(q, k_bufs, k_full, step, STAGES: gl.constexpr):
    """Waits for K tile `step` and issues q @ k^T; the result is in flight."""
    slot = step % STAGES
    mbarrier.wait(k_full.index(slot), (step // STAGES) & 1)
    BLOCK_N: gl.constexpr = k_bufs.shape[3]
    k = k_bufs.index(slot).reshape([BLOCK_N, k_bufs.shape[4]])
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    zero = gl.zeros([64, BLOCK_N], gl.float32, layout)
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def apply(pairs, acc, v_bufs, v_full, step, STAGES: gl.constexpr):
    """Waits for V tile `step` and issues acc += p @ v; the result is in flight."""
    p = _unpack(pairs, v_bufs.dtype, gl.DotOperandLayout(0, acc.type.layout, 2))
    slot = step % STAGES
    mbarrier.wait(v_full.index(slot), (step // STAGES) & 1)
    v = v_bufs.index(slot).reshape([v_bufs.shape[3], v_bufs.shape[4]])
    return warpgroup_mma(p, v, acc, is_async=True)


@gluon.jit
def release(bars, step, STAGES: gl.constexpr):
    # The four warps of the group finish a wgmma on their own: meet before one thread arrives.
    _meet()
    mbarrier.arrive(bars.index(step % STAGES))


@gluon.jit
def softmax(s, m, l, scale_log2, col, limit, MASKED: gl.constexpr):
    """One online-softmax step in base 2: probabilities, rescale factor, new row max and row sum.

    s (64, BLOCK_N) raw scores whose first key is col; limit (64,) counts the keys a row may see.
    """
    if MASKED:
        cols = col + gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, s.type.layout))
        s = gl.where(cols[None, :] < limit[:, None], s, float("-inf"))
    m_new = gl.maximum(m, gl.max(s, 1))
    shift = m_new
    if MASKED:
        # A row that has seen no key yet has max -inf; -inf - -inf would be NaN.
        shift = gl.where(m_new == float("-inf"), 0.0, m_new)
    shift = shift * scale_log2
    p = gl.exp2(s * scale_log2 - shift[:, None])
    alpha = gl.exp2(m * scale_log2 - shift)
    l = l * alpha + gl.sum(p, 1)
    return p, alpha, m_new, l


@gluon.jit
def pack(p, dtype: gl.constexpr):
    """Pairs of neighbouring columns of p (64, N) as one int32 (64, N / 2).

    Carried round the loop as 16-bit values, each pair costs two PRMT (64 of 522 instructions at
    head_dim 128).
    """
    kind: gl.constexpr = "bf16x2" if dtype == gl.bfloat16 else "f16x2"
    asm: gl.constexpr = f"cvt.rn.{kind}.f32 $0, $2, $1;"
    low, high = gl.split(gl.reshape(p, [64, p.shape[1] // 2, 2]))
    return gl.inline_asm_elementwise(
        asm, "=r,f,f", [low, high], dtype=gl.int32, is_pure=True, pack=1
    )


@gluon.jit
def _unpack(pairs, dtype: gl.constexpr, LAYOUT: gl.constexpr):
    """The (64, N) tensor that pack took, in 16 bits and in LAYOUT; moves no register."""
    low = pairs.to(gl.int16).to(dtype, bitcast=True)
    high = (pairs >> 16).to(gl.int16).to(dtype, bitcast=True)
    p = gl.reshape(gl.join(low, high), [64, pairs.shape[1] * 2])
    return gl.convert_layout(p, LAYOUT, assert_trivial=True)


@gluon.jit
def next_tile(
    q, pairs, m, l, acc, step, col, limit, scale_log2, bufs, bars,
    MASKED: gl.constexpr, INDEX: gl.constexpr, STAGES: gl.constexpr, CONSUMERS: gl.constexpr,
    PINGPONG: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    """Adds tile `step`, whose probabilities are `pairs`, to acc; the softmax of the next beside it."""
    _, k_bufs, v_bufs = bufs
    _, k_full, k_empty, v_full, v_empty = bars
    dtype: gl.constexpr = v_bufs.dtype
    if PINGPONG:
        named_barrier(INDEX, True)
    s_flight = scores(q, k_bufs, k_full, step + 1, STAGES)
    acc_flight = apply(pairs, acc, v_bufs, v_full, step, STAGES)
    if PINGPONG:
        named_barrier((INDEX + 1) % CONSUMERS, False)
    s = warpgroup_mma_wait(1, deps=[s_flight])
    release(k_empty, step + 1, STAGES)
    p, alpha, m, l = softmax(s, m, l, scale_log2, col, limit, MASKED)
    if OVERLAP:
        # V tile `step` came long ago, but this wait's spin loop ends a basic block. ptxas schedules
        # within blocks, and would raise the wgmma wait below above the whole softmax.
        mbarrier.wait(v_full.index(step % STAGES), (step // STAGES) & 1)
    # Packing before this wait would overwrite what the product still reads (C7513).
    acc, p = warpgroup_mma_wait(0, deps=[acc_flight, p])
    pairs = pack(p, dtype)
    release(v_empty, step, STAGES)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, acc.type.layout))[:, None]
    return pairs, m, l, acc
