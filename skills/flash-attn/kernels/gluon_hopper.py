"""Flash attention forward for sm_90 in Gluon: one load warp, two or three matrix warpgroups.

Idea: a producer warp streams K and V tiles with the bulk tensor copy engine through a ring of
shared-memory buffers. Each consumer warpgroup owns 64 query rows, keeps its scores, probabilities
and output accumulator in registers, and issues the score product of tile i+1 before the output
product of tile i, so that the softmax of tile i+1 runs while the tensor cores work on tile i.
With PINGPONG the consumers take turns at issuing, so one computes softmax while another multiplies.

FLOPs: 4 * batch * q_heads * q_len * kv_len * head_dim, half of it when causal and square.
Bytes moved at least: q, k, v and out once, plus 4 bytes a row for lse.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .portable import attention as portable_attention
from .shapes import check_inputs, copy_engine_ready

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453
ROWS = 64  # rows of one warpgroup: the M of one wgmma instruction
L2_KV_BYTES = 32 << 20  # K and V of one head group should stay in the 50 MB L2 beside Q and out
GL_DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}
# Renamed from thread_barrier to barrier in triton 3.7.
_meet = gl.thread_barrier if hasattr(gl, "thread_barrier") else gl.barrier
# Sizes that only feed loop bounds and masks: one binary serves all of their values.
_SIZES = ("tiles", "q_blocks", "heads", "head_group", "q_heads", "share", "q_len", "kv_len")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    BLOCK_N: int | None = None,
    STAGES: int | None = None,
    CONSUMERS: int | None = None,
    PINGPONG: bool | None = None,
    OVERLAP: bool | None = None,
    PERSISTENT: bool | None = None,
    HEAD_GROUP: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q over k and v, one pass over the keys.

    q (batch, q_heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim).
    Returns out, shaped and typed like q, and lse (batch, q_heads, q_len), natural log, fp32.
    causal aligns to the bottom right: query i sees keys j <= i + kv_len - q_len. A row that sees no
    key gets out 0 and lse -inf. Inputs fp16 or bf16, head_dim a multiple of 8 up to 256.
    A tensor whose strides the copy engine cannot take (not a multiple of 16 bytes, or 0) is copied.
    Raises ValueError on shapes, dtypes, strides or scale outside the contract.
    """
    check_inputs(q, k, v, scale)
    batch, q_heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    if q.dtype not in GL_DTYPES:
        raise ValueError(f"dtype must be float16 or bfloat16, got {q.dtype}")
    if kv_len == 0 or q.numel() == 0:
        return portable_attention(q, k, v, causal=causal, scale=scale)
    out = torch.empty((batch, q_heads, q_len, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, q_heads, q_len), dtype=torch.float32, device=q.device)

    block_d = 64 if head_dim <= 64 else 128 if head_dim <= 128 else 256
    block_n = BLOCK_N or (64 if block_d == 256 else 128)
    consumers = CONSUMERS or (3 if block_d == 64 else 2)
    stages = STAGES or 2
    pingpong = block_d >= 128 if PINGPONG is None else PINGPONG
    persistent = (not causal) if PERSISTENT is None else PERSISTENT

    q_blocks = -(-q_len // (ROWS * consumers))
    tiles = q_blocks * batch * q_heads
    head_bytes = 2 * kv_len * head_dim * q.element_size() * kv_heads // q_heads
    head_group = HEAD_GROUP or (max(1, L2_KV_BYTES // head_bytes) if causal else 1)
    sms = torch.cuda.get_device_properties(q.device).multi_processor_count
    grid = (min(tiles, sms) if persistent else tiles,)
    _forward[grid](
        _descriptor(q, ROWS, block_d),
        _descriptor(k, block_n, block_d),
        _descriptor(v, block_n, block_d),
        out,
        lse,
        tiles,
        q_blocks,
        batch * q_heads,
        min(head_group, batch * q_heads),
        q_heads,
        q_heads // kv_heads,
        q_len,
        kv_len,
        head_dim,
        scale * LOG2_E,
        CAUSAL=causal,
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        STAGES=stages,
        CONSUMERS=consumers,
        PINGPONG=pingpong,
        OVERLAP=True if OVERLAP is None else OVERLAP,
        num_warps=4,
    )
    return out, lse


def _descriptor(x: torch.Tensor, rows: int, block_d: int) -> TensorDescriptor:
    """Tensor map of x in tiles of rows x block_d; x is copied when its strides do not fit."""
    x = copy_engine_ready(x)
    # The stride of a dimension of size 1 is free, but the tensor map wants 16-byte multiples.
    step = 16 // x.element_size()
    strides = [s if n > 1 else step for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True)]
    layout = gl.NVMMASharedLayout.get_default_for([1, 1, rows, block_d], GL_DTYPES[x.dtype])
    return TensorDescriptor(x, list(x.shape), [*strides, 1], [1, 1, rows, block_d], layout)


@gluon.jit
def _tile_place(tile, q_blocks, heads, head_group, CAUSAL: gl.constexpr):
    """Head index and query block of a tile: heads in groups that share the L2, blocks outermost."""
    per_group = head_group * q_blocks
    group = tile // per_group
    rest = tile % per_group
    size = gl.minimum(head_group, heads - group * head_group)
    head = group * head_group + rest % size
    block = rest // size
    if CAUSAL:
        block = q_blocks - 1 - block  # longest tiles first, so the last wave is short
    return head, block


@gluon.jit
def _kv_tiles(row_end, q_len, kv_len, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """KV tiles that rows below row_end see; at least 1, so that an empty row still gets written."""
    seen = kv_len
    if CAUSAL:
        seen = gl.minimum(kv_len, gl.minimum(row_end, q_len) + kv_len - q_len)
    return gl.maximum(gl.cdiv(seen, BLOCK_N), 1)


@gluon.jit
def _named_barrier(ID: gl.constexpr, THREADS: gl.constexpr, WAIT: gl.constexpr):
    """bar.sync (WAIT) or bar.arrive on hardware barrier ID, once in every thread of 4 warps."""
    lanes: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    name: gl.constexpr = "sync" if WAIT else "arrive"
    asm: gl.constexpr = f"bar.{name} {ID}, {THREADS}; mov.b32 $0, $1;"
    gl.inline_asm_elementwise(
        asm, "=r,r", [gl.arange(0, 128, layout=lanes)], dtype=gl.int32, is_pure=False, pack=1
    )


@gluon.jit
def _load(desc, bars, bufs, slot, batch, head, row, BYTES: gl.constexpr):
    bar = bars.index(slot)
    mbarrier.expect(bar, BYTES)
    tma.async_copy_global_to_shared(desc, [batch, head, row, 0], bar, bufs.index(slot))


@gluon.jit
def _producer(
    q_desc, k_desc, v_desc, bufs, bars, dims,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
):  # fmt: skip
    q_bufs, k_bufs, v_bufs = bufs
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    tiles, q_blocks, heads, head_group, q_heads, share, q_len, kv_len = dims
    Q_BYTES: gl.constexpr = 64 * BLOCK_D * 2
    KV_BYTES: gl.constexpr = BLOCK_N * BLOCK_D * 2
    step = 0
    turn = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        place, block = _tile_place(tile, q_blocks, heads, head_group, CAUSAL)
        batch = place // q_heads
        head = place % q_heads
        kv_head = head // share
        row = block * 64 * CONSUMERS
        count = _kv_tiles(row + 64 * CONSUMERS, q_len, kv_len, BLOCK_N, CAUSAL)
        for c in gl.static_range(CONSUMERS):
            mbarrier.wait(q_empty.index(c), (turn & 1) ^ 1)
            _load(q_desc, q_full, q_bufs, c, batch, head, row + 64 * c, Q_BYTES)
            if c == 0:
                slot = step % STAGES
                mbarrier.wait(k_empty.index(slot), ((step // STAGES) & 1) ^ 1)
                _load(k_desc, k_full, k_bufs, slot, batch, kv_head, (count - 1) * BLOCK_N, KV_BYTES)
        for i in range(1, count):
            slot = (step + 1) % STAGES
            mbarrier.wait(k_empty.index(slot), (((step + 1) // STAGES) & 1) ^ 1)
            col = (count - 1 - i) * BLOCK_N
            _load(k_desc, k_full, k_bufs, slot, batch, kv_head, col, KV_BYTES)
            slot = step % STAGES
            mbarrier.wait(v_empty.index(slot), ((step // STAGES) & 1) ^ 1)
            _load(v_desc, v_full, v_bufs, slot, batch, kv_head, col + BLOCK_N, KV_BYTES)
            step += 1
        slot = step % STAGES
        mbarrier.wait(v_empty.index(slot), ((step // STAGES) & 1) ^ 1)
        _load(v_desc, v_full, v_bufs, slot, batch, kv_head, 0, KV_BYTES)
        step += 1
        turn += 1


@gluon.jit
def _scores(
    q, k_bufs, k_full, step, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    S_LAYOUT: gl.constexpr,
):  # fmt: skip
    """Waits for K tile `step` and issues q @ k^T; the result is in flight."""
    slot = step % STAGES
    mbarrier.wait(k_full.index(slot), (step // STAGES) & 1)
    k = k_bufs.index(slot).reshape([BLOCK_N, BLOCK_D])
    zero = gl.zeros([64, BLOCK_N], gl.float32, S_LAYOUT)
    return warpgroup_mma(q, k.permute((1, 0)), zero, use_acc=False, is_async=True)


@gluon.jit
def _apply(
    p, acc, v_bufs, v_full, step, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Waits for V tile `step` and issues acc += p @ v; the result is in flight."""
    slot = step % STAGES
    mbarrier.wait(v_full.index(slot), (step // STAGES) & 1)
    v = v_bufs.index(slot).reshape([BLOCK_N, BLOCK_D])
    return warpgroup_mma(p, v, acc, is_async=True)


@gluon.jit
def _release(bars, step, STAGES: gl.constexpr):
    # The four warps of the group finish a wgmma on their own: meet before one thread arrives.
    _meet()
    mbarrier.arrive(bars.index(step % STAGES))


@gluon.jit
def _stay(v_full, step, STAGES: gl.constexpr):
    """Waits once more for V tile `step`, which came long ago: its spin loop ends a basic block.

    ptxas schedules within basic blocks and would raise the wgmma wait that follows above the whole
    softmax, so that nothing overlaps the product in flight.
    """
    mbarrier.wait(v_full.index(step % STAGES), (step // STAGES) & 1)


@gluon.jit
def _softmax(s, m, l, scale_log2, col, limit, MASKED: gl.constexpr, P_LAYOUT: gl.constexpr):
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
def _pack(p, dtype: gl.constexpr):
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
    """The (64, N) tensor that _pack took, in 16 bits and in LAYOUT; moves no register."""
    low = pairs.to(gl.int16).to(dtype, bitcast=True)
    high = (pairs >> 16).to(gl.int16).to(dtype, bitcast=True)
    p = gl.reshape(gl.join(low, high), [64, pairs.shape[1] * 2])
    return gl.convert_layout(p, LAYOUT, assert_trivial=True)


@gluon.jit
def _consumer(
    INDEX: gl.constexpr, out_ptr, lse_ptr, bufs, bars, dims, head_dim, scale_log2,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, PINGPONG: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    q_bufs, k_bufs, v_bufs = bufs
    q_full, q_empty, k_full, k_empty, v_full, v_empty = bars
    tiles, q_blocks, heads, head_group, q_heads, share, q_len, kv_len = dims
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    P_LAYOUT: gl.constexpr = gl.DotOperandLayout(0, O_LAYOUT, 2)
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    # Hardware barriers 0 to 7 are the compiler's own; 8.. hand the tensor cores round the ring.
    MINE: gl.constexpr = 8 + INDEX
    NEXT: gl.constexpr = 8 + (INDEX + 1) % CONSUMERS
    dtype: gl.constexpr = out_ptr.dtype.element_ty
    q = q_bufs.index(INDEX).reshape([64, BLOCK_D])
    step = 0
    turn = 0
    if PINGPONG and INDEX == CONSUMERS - 1:
        _named_barrier(NEXT, 256, False)
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        place, block = _tile_place(tile, q_blocks, heads, head_group, CAUSAL)
        first_row = block * 64 * CONSUMERS
        count = _kv_tiles(first_row + 64 * CONSUMERS, q_len, kv_len, BLOCK_N, CAUSAL)
        row0 = first_row + 64 * INDEX
        rows = row0 + gl.arange(0, 64, layout=S_ROWS)
        limit = gl.full([64], kv_len, gl.int32, S_ROWS)
        whole = kv_len // BLOCK_N  # tiles that no row of this warpgroup has to mask
        if CAUSAL:
            limit = gl.minimum(limit, rows + 1 + kv_len - q_len)
            whole = gl.minimum(whole, gl.maximum(row0 + 1 + kv_len - q_len, 0) // BLOCK_N)
        m = gl.full([64], float("-inf"), gl.float32, S_ROWS)
        l = gl.zeros([64], gl.float32, S_ROWS)
        acc = gl.zeros([64, BLOCK_D], gl.float32, O_LAYOUT)

        mbarrier.wait(q_full.index(INDEX), turn & 1)
        if PINGPONG:
            _named_barrier(MINE, 256, True)
        s_flight = _scores(q, k_bufs, k_full, step, BLOCK_N, BLOCK_D, STAGES, S_LAYOUT)
        if PINGPONG:
            _named_barrier(NEXT, 256, False)
        s = warpgroup_mma_wait(0, deps=[s_flight])
        _release(k_empty, step, STAGES)
        col = (count - 1) * BLOCK_N
        p32, alpha, m, l = _softmax(s, m, l, scale_log2, col, limit, True, P_LAYOUT)
        pairs = _pack(p32, dtype)

        masked = count - whole
        for _ in range(1, masked):
            col -= BLOCK_N
            if PINGPONG:
                _named_barrier(MINE, 256, True)
            s_flight = _scores(q, k_bufs, k_full, step + 1, BLOCK_N, BLOCK_D, STAGES, S_LAYOUT)
            p = _unpack(pairs, dtype, P_LAYOUT)
            acc_flight = _apply(p, acc, v_bufs, v_full, step, BLOCK_N, BLOCK_D, STAGES)
            if PINGPONG:
                _named_barrier(NEXT, 256, False)
            s = warpgroup_mma_wait(1, deps=[s_flight])
            _release(k_empty, step + 1, STAGES)
            p32, alpha, m, l = _softmax(s, m, l, scale_log2, col, limit, True, P_LAYOUT)
            if OVERLAP:
                _stay(v_full, step, STAGES)
            # Packing before this wait would overwrite what the product still reads (C7513).
            acc, p32 = warpgroup_mma_wait(0, deps=[acc_flight, p32])
            pairs = _pack(p32, dtype)
            _release(v_empty, step, STAGES)
            acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
            step += 1
        for _ in range(0, gl.minimum(whole, count - 1)):
            col -= BLOCK_N
            if PINGPONG:
                _named_barrier(MINE, 256, True)
            s_flight = _scores(q, k_bufs, k_full, step + 1, BLOCK_N, BLOCK_D, STAGES, S_LAYOUT)
            p = _unpack(pairs, dtype, P_LAYOUT)
            acc_flight = _apply(p, acc, v_bufs, v_full, step, BLOCK_N, BLOCK_D, STAGES)
            if PINGPONG:
                _named_barrier(NEXT, 256, False)
            s = warpgroup_mma_wait(1, deps=[s_flight])
            _release(k_empty, step + 1, STAGES)
            p32, alpha, m, l = _softmax(s, m, l, scale_log2, col, limit, False, P_LAYOUT)
            if OVERLAP:
                _stay(v_full, step, STAGES)
            # Packing before this wait would overwrite what the product still reads (C7513).
            acc, p32 = warpgroup_mma_wait(0, deps=[acc_flight, p32])
            pairs = _pack(p32, dtype)
            _release(v_empty, step, STAGES)
            acc = acc * gl.convert_layout(alpha, O_ROWS)[:, None]
            step += 1
        _meet()
        mbarrier.arrive(q_empty.index(INDEX))
        p = _unpack(pairs, dtype, P_LAYOUT)
        acc_flight = _apply(p, acc, v_bufs, v_full, step, BLOCK_N, BLOCK_D, STAGES)
        seen = l > 0.0
        safe = gl.where(seen, l, 1.0)
        lse = gl.where(seen, m * (scale_log2 * 0.6931471805599453) + gl.log(safe), float("-inf"))
        lse_at = lse_ptr + place.to(gl.int64) * q_len + rows
        gl.store(lse_at, lse, mask=rows < q_len)
        acc = warpgroup_mma_wait(0, deps=[acc_flight])
        _release(v_empty, step, STAGES)
        acc = acc * gl.convert_layout(1.0 / safe, O_ROWS)[:, None]
        o_rows = row0 + gl.arange(0, 64, layout=O_ROWS)
        o_cols = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, O_LAYOUT))
        o_base = out_ptr + (place.to(gl.int64) * q_len + row0) * head_dim
        o_at = o_base + (o_rows - row0)[:, None] * head_dim + o_cols[None, :]
        inside = (o_rows < q_len)[:, None] & (o_cols < head_dim)[None, :]
        gl.store(o_at, acc.to(dtype), mask=inside)
        step += 1
        turn += 1


@gluon.jit(do_not_specialize=_SIZES)
def _forward(
    q_desc, k_desc, v_desc, out_ptr, lse_ptr, tiles, q_blocks, heads, head_group, q_heads, share,
    q_len, kv_len, head_dim, scale_log2,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, PINGPONG: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    q_bufs = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, 64, BLOCK_D], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_bufs = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], v_desc.layout)
    BAR: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BAR)
    q_empty = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BAR)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=CONSUMERS)
        mbarrier.init(v_empty.index(i), count=CONSUMERS)
    bufs = (q_bufs, k_bufs, v_bufs)
    bars = (q_full, q_empty, k_full, k_empty, v_full, v_empty)
    dims = (tiles, q_blocks, heads, head_group, q_heads, share, q_len, kv_len)
    # 12 warps have 168 registers a thread, 16 have 128: what the load warp gives up, the rest get.
    # The argument tuples stay inline: a tuple bound to a name loses its constexprs.
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (0, out_ptr, lse_ptr, bufs, bars, dims, head_dim, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_consumer, (1, out_ptr, lse_ptr, bufs, bars, dims, head_dim, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_producer, (q_desc, k_desc, v_desc, bufs, bars, dims, CAUSAL, BLOCK_N, BLOCK_D,
                             STAGES, CONSUMERS)),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consumer, (0, out_ptr, lse_ptr, bufs, bars, dims, head_dim, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_consumer, (1, out_ptr, lse_ptr, bufs, bars, dims, head_dim, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_consumer, (2, out_ptr, lse_ptr, bufs, bars, dims, head_dim, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_producer, (q_desc, k_desc, v_desc, bufs, bars, dims, CAUSAL, BLOCK_N, BLOCK_D,
                             STAGES, CONSUMERS)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )  # fmt: skip
