"""Flash attention forward for sm_90 in Gluon: one load warp, two or three matrix warpgroups.

Idea: a load warp streams K and V tiles with the bulk tensor copy engine through a ring of
shared-memory buffers. Each matrix warpgroup owns 64 query rows, keeps its scores, probabilities
and output accumulator in registers, and issues the score product of tile i+1 before the output
product of tile i, so that the softmax of tile i+1 runs while the tensor cores work on tile i.
With PINGPONG the warpgroups take turns at issuing, so one computes softmax while another multiplies.

FLOPs: 4 * batch * q_heads * q_len * kv_len * head_dim, half of it when causal and square.
Bytes moved at least: q, k, v and out once, plus 4 bytes a row for lse.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma, warpgroup_mma_wait
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from .portable import attention as portable_attention
from .shapes import LOG2_E, aligned, check_inputs, copy_engine_ready, heads_in_l2
from .warpgroup import apply, named_barrier, next_tile, pack, release, scores, softmax

ROWS = 64  # rows of one warpgroup: the M of one wgmma instruction
GL_DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}
# One binary serves all values of these. head_dim comes in eighths, so that its alignment is known.
_SIZES = ("q_blocks", "heads", "head_group", "q_heads", "share", "q_len", "kv_len", "octets")


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
    HEAD_GROUP: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(scale * q k^T) v and its log-sum-exp, in one pass over the keys.

    Args:
        q: (batch, q_heads, q_len, head_dim) in float16 or bfloat16; head_dim a multiple of 8 up to
            256. An input whose strides the copy engine cannot take (not a multiple of 16 bytes,
            or 0) is copied; a base that is not aligned to 16 bytes takes the portable kernel.
        k: (batch, kv_heads, kv_len, head_dim); v alike.
        causal: aligned to the bottom right: query i sees keys j <= i + kv_len - q_len. A row that
            sees no key gets out 0 and lse -inf.
        BLOCK_N: keys a tile: a multiple of 16.
        STAGES: K tiles, and as many V tiles, in flight.
        CONSUMERS: matrix warpgroups, 2 or 3: a program owns 64 rows for each.
        PINGPONG: they take turns at the tensor cores.
        OVERLAP: keep ptxas from waiting for the output product before the softmax.
        HEAD_GROUP: query heads that run at a time.

    Returns:
        out, shaped and typed like q and contiguous; lse (batch, q_heads, q_len), natural, float32.

    Raises:
        ValueError: shapes, dtypes or scale outside the contract.
    """
    check_inputs(q, k, v, scale)
    if q.dtype not in GL_DTYPES:
        raise ValueError(f"dtype must be float16 or bfloat16, got {q.dtype}")
    batch, q_heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    if kv_len == 0 or q.numel() == 0 or not aligned(q, k, v):
        # The copy engine describes no empty tensor, and none that starts off 16 bytes.
        return portable_attention(q, k, v, causal=causal, scale=scale)
    out = torch.empty((batch, q_heads, q_len, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, q_heads, q_len), dtype=torch.float32, device=q.device)

    block_d = 64 if head_dim <= 64 else 128 if head_dim <= 128 else 256
    block_n, stages, consumers, pingpong, overlap = _tile(block_d)
    block_n, stages, consumers = BLOCK_N or block_n, STAGES or stages, CONSUMERS or consumers
    q_blocks = -(-q_len // (ROWS * consumers))
    _forward[(q_blocks * batch * q_heads,)](
        _descriptor(q, ROWS, block_d),
        _descriptor(k, block_n, block_d),
        _descriptor(v, block_n, block_d),
        out,
        lse,
        q_blocks,
        batch * q_heads,
        HEAD_GROUP or heads_in_l2(q, k, causal),
        q_heads,
        q_heads // kv_heads,
        q_len,
        kv_len,
        head_dim // 8,
        scale * LOG2_E,
        CAUSAL=causal,
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        STAGES=stages,
        CONSUMERS=consumers,
        PINGPONG=pingpong if PINGPONG is None else PINGPONG,
        OVERLAP=overlap if OVERLAP is None else OVERLAP,
        num_warps=4,
    )
    return out, lse


def _tile(block_d: int) -> tuple[int, int, int, bool, bool]:
    """(BLOCK_N, STAGES, CONSUMERS, PINGPONG, OVERLAP), each the fastest on an H200 at 8192 keys."""
    if block_d == 64:
        # Three warpgroups hide each other's softmax: holding ptxas back as well costs 6 %.
        return 128, 3, 3, False, False
    if block_d == 128:
        return 128, 2, 2, True, True
    # Wider tiles do not fit twice into 227 KB; taking turns costs 3 % here.
    return 64, 2, 2, False, True


def _descriptor(x: torch.Tensor, rows: int, block_d: int) -> TensorDescriptor:
    """Return the tensor map of x in tiles of rows x block_d; what reaches past an edge reads 0."""
    x = copy_engine_ready(x)
    # The stride of a dimension of size 1 is free, but the tensor map wants 16-byte multiples.
    step = 16 // x.element_size()
    strides = [s if n > 1 else step for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True)]
    layout = gl.NVMMASharedLayout.get_default_for([1, 1, rows, block_d], GL_DTYPES[x.dtype])
    return TensorDescriptor(x, list(x.shape), [*strides, 1], [1, 1, rows, block_d], layout)


@gluon.jit
def _place(q_blocks, heads, head_group, CAUSAL: gl.constexpr):
    """This program's head and query block: heads in groups that share the L2, blocks outermost."""
    tile = gl.program_id(0)
    per_group = head_group * q_blocks
    group = tile // per_group
    rest = tile % per_group
    size = gl.minimum(head_group, heads - group * head_group)
    head = group * head_group + rest % size
    block = rest // size
    if CAUSAL:
        block = q_blocks - 1 - block  # longest first, so the last wave is short
    return head, block


@gluon.jit
def _kv_tiles(row_end, q_len, kv_len, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """KV tiles that rows below row_end see; at least 1, so that an empty row still gets written."""
    seen = kv_len
    if CAUSAL:
        seen = gl.minimum(kv_len, gl.minimum(row_end, q_len) + kv_len - q_len)
    return gl.maximum(gl.cdiv(seen, BLOCK_N), 1)


@gluon.jit
def _load(desc, bars, bufs, slot, batch, head, row, BYTES: gl.constexpr):
    bar = bars.index(slot)
    mbarrier.expect(bar, BYTES)
    tma.async_copy_global_to_shared(desc, [batch, head, row, 0], bar, bufs.index(slot))


@gluon.jit
def _await_free(bars, step, STAGES: gl.constexpr):
    mbarrier.wait(bars.index(step % STAGES), ((step // STAGES) & 1) ^ 1)


@gluon.jit
def _producer(
    descs, bufs, bars, dims,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr,
):  # fmt: skip
    """Loads Q, then K one tile ahead of V, from the last KV tile to the first."""
    q_desc, k_desc, v_desc = descs
    q_bufs, k_bufs, v_bufs = bufs
    q_full, k_full, k_empty, v_full, v_empty = bars
    q_blocks, heads, head_group, q_heads, share, q_len, kv_len = dims
    Q_BYTES: gl.constexpr = 64 * BLOCK_D * 2
    KV_BYTES: gl.constexpr = BLOCK_N * BLOCK_D * 2
    place, block = _place(q_blocks, heads, head_group, CAUSAL)
    batch = place // q_heads
    head = place % q_heads
    kv_head = head // share
    row = block * 64 * CONSUMERS
    count = _kv_tiles(row + 64 * CONSUMERS, q_len, kv_len, BLOCK_N, CAUSAL)
    col = (count - 1) * BLOCK_N
    for c in gl.static_range(CONSUMERS):
        _load(q_desc, q_full, q_bufs, c, batch, head, row + 64 * c, Q_BYTES)
        if c == 0:
            _load(k_desc, k_full, k_bufs, 0, batch, kv_head, col, KV_BYTES)
    for step in range(1, count):
        _await_free(k_empty, step, STAGES)
        slot = step % STAGES
        _load(k_desc, k_full, k_bufs, slot, batch, kv_head, col - BLOCK_N, KV_BYTES)
        _await_free(v_empty, step - 1, STAGES)
        slot = (step - 1) % STAGES
        _load(v_desc, v_full, v_bufs, slot, batch, kv_head, col, KV_BYTES)
        col -= BLOCK_N
    _await_free(v_empty, count - 1, STAGES)
    _load(v_desc, v_full, v_bufs, (count - 1) % STAGES, batch, kv_head, 0, KV_BYTES)


@gluon.jit
def _consumer(
    INDEX: gl.constexpr, out_ptr, lse_ptr, bufs, bars, dims, octets, scale_log2,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, PINGPONG: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    """64 rows of out and lse, from row 64 * INDEX of this program's block."""
    q_bufs, k_bufs, v_bufs = bufs
    q_full, k_full, k_empty, v_full, _ = bars
    q_blocks, heads, head_group, _, _, q_len, kv_len = dims
    dtype: gl.constexpr = out_ptr.dtype.element_ty
    S_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    O_LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    S_ROWS: gl.constexpr = gl.SliceLayout(1, S_LAYOUT)
    O_ROWS: gl.constexpr = gl.SliceLayout(1, O_LAYOUT)
    place, block = _place(q_blocks, heads, head_group, CAUSAL)
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

    q = q_bufs.index(INDEX).reshape([64, BLOCK_D])
    mbarrier.wait(q_full.index(INDEX), 0)
    if PINGPONG:
        if INDEX == CONSUMERS - 1:
            named_barrier(0, False)
        named_barrier(INDEX, True)
    s_flight = scores(q, k_bufs, k_full, 0, STAGES)
    if PINGPONG:
        named_barrier((INDEX + 1) % CONSUMERS, False)
    s = warpgroup_mma_wait(0, deps=[s_flight])
    release(k_empty, 0, STAGES)
    p, _, m, l = softmax(s, m, l, scale_log2, (count - 1) * BLOCK_N, limit, True)
    pairs = pack(p, dtype)
    last = count - 1
    masked = gl.maximum(last - whole, 0)
    for step in range(0, masked):
        pairs, m, l, acc = next_tile(
            q, pairs, m, l, acc, step, (last - 1 - step) * BLOCK_N, limit, scale_log2, bufs, bars,
            True, INDEX, STAGES, CONSUMERS, PINGPONG, OVERLAP,
        )  # fmt: skip
    for step in range(masked, last):
        pairs, m, l, acc = next_tile(
            q, pairs, m, l, acc, step, 0, limit, scale_log2, bufs, bars,
            False, INDEX, STAGES, CONSUMERS, PINGPONG, OVERLAP,
        )  # fmt: skip

    acc_flight = apply(pairs, acc, v_bufs, v_full, last, STAGES)
    seen = l > 0.0
    safe = gl.where(seen, l, 1.0)
    lse = gl.where(seen, m * (scale_log2 * 0.6931471805599453) + gl.log(safe), float("-inf"))
    at = place.to(gl.int64) * q_len
    gl.store(lse_ptr + at + rows, lse, mask=rows < q_len)
    acc = warpgroup_mma_wait(0, deps=[acc_flight])
    acc = acc * gl.convert_layout(1.0 / safe, O_ROWS)[:, None]
    head_dim = octets * 8
    o_rows = gl.arange(0, 64, layout=O_ROWS)
    o_cols = gl.arange(0, BLOCK_D, layout=gl.SliceLayout(0, O_LAYOUT))
    o_at = out_ptr + (at + row0) * head_dim + o_rows[:, None] * head_dim + o_cols[None, :]
    inside = (row0 + o_rows < q_len)[:, None] & (o_cols < head_dim)[None, :]
    gl.store(o_at, acc.to(dtype), mask=inside)


@gluon.jit(do_not_specialize=_SIZES)
def _forward(
    q_desc, k_desc, v_desc, out_ptr, lse_ptr, q_blocks, heads, head_group, q_heads, share,
    q_len, kv_len, octets, scale_log2,
    CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CONSUMERS: gl.constexpr, PINGPONG: gl.constexpr, OVERLAP: gl.constexpr,
):  # fmt: skip
    dtype: gl.constexpr = q_desc.dtype
    q_bufs = gl.allocate_shared_memory(dtype, [CONSUMERS, 1, 1, 64, BLOCK_D], q_desc.layout)
    k_bufs = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], k_desc.layout)
    v_bufs = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], v_desc.layout)
    BAR: gl.constexpr = mbarrier.MBarrierLayout()
    q_full = gl.allocate_shared_memory(gl.int64, [CONSUMERS, 1], BAR)
    k_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    k_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    v_full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    v_empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BAR)
    for i in gl.static_range(CONSUMERS):
        mbarrier.init(q_full.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(k_full.index(i), count=1)
        mbarrier.init(v_full.index(i), count=1)
        mbarrier.init(k_empty.index(i), count=CONSUMERS)
        mbarrier.init(v_empty.index(i), count=CONSUMERS)
    descs = (q_desc, k_desc, v_desc)
    bufs = (q_bufs, k_bufs, v_bufs)
    bars = (q_full, k_full, k_empty, v_full, v_empty)
    dims = (q_blocks, heads, head_group, q_heads, share, q_len, kv_len)
    # 12 warps have 168 registers a thread, 16 have 128: what the load warp gives up, the rest get.
    # The argument tuples stay inline: a tuple bound to a name loses its constexprs.
    if CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (0, out_ptr, lse_ptr, bufs, bars, dims, octets, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_consumer, (1, out_ptr, lse_ptr, bufs, bars, dims, octets, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_producer, (descs, bufs, bars, dims, CAUSAL, BLOCK_N, BLOCK_D, STAGES, CONSUMERS)),
            ],
            [4, 1],
            [240, 24],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (_consumer, (0, out_ptr, lse_ptr, bufs, bars, dims, octets, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_consumer, (1, out_ptr, lse_ptr, bufs, bars, dims, octets, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_consumer, (2, out_ptr, lse_ptr, bufs, bars, dims, octets, scale_log2, CAUSAL,
                             BLOCK_N, BLOCK_D, STAGES, CONSUMERS, PINGPONG, OVERLAP)),
                (_producer, (descs, bufs, bars, dims, CAUSAL, BLOCK_N, BLOCK_D, STAGES, CONSUMERS)),
            ],
            [4, 4, 1],
            [160, 160, 32],
        )  # fmt: skip
