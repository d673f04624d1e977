"""Flash attention forward for sm_90 in Triton with a warp-specialised key loop.

Idea: as in the portable kernel, but K and V arrive through tensor descriptors and the compiler
splits the loop into one load warpgroup and two matrix warpgroups of 64 query rows each. It does so
only for num_warps=4, descriptors made on the device, and one loop: diagonal tiles share that loop
and are masked in it.

FLOPs: 4 * batch * q_heads * q_len * kv_len * head_dim, half of it when causal and square.
Bytes moved at least: q, k, v and out once, plus 4 bytes a row for lse.
"""

import torch
import triton
import triton.language as tl

from .portable import _tile_place
from .portable import attention as portable_attention
from .shapes import check_inputs, copy_engine_ready

LOG2_E = 1.4426950408889634
L2_KV_BYTES = 32 << 20  # K and V of one head group should stay in the 50 MB L2
# Sizes that only feed loop bounds and masks: one binary serves all of their values.
_SIZES = ("q_blocks", "heads", "head_group", "q_heads", "share", "q_len", "kv_len")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    BLOCK_N: int | None = None,
    STAGES: int | None = None,
    HEAD_GROUP: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of q over k and v, one pass over the keys.

    q (batch, q_heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim).
    Returns out, shaped and typed like q, and lse (batch, q_heads, q_len), natural log, fp32.
    causal aligns to the bottom right: query i sees keys j <= i + kv_len - q_len. A row that sees no
    key gets out 0 and lse -inf. fp16 or bf16. head_dim above 128 goes to the portable kernel: its
    tiles do not fit twice in shared memory. A tensor whose strides the copy engine cannot take (not
    a multiple of 16 bytes, or 0) is copied.
    Raises ValueError on shapes, dtypes, strides or scale outside the contract.
    """
    check_inputs(q, k, v, scale)
    batch, q_heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"dtype must be float16 or bfloat16, got {q.dtype}")
    if kv_len == 0 or q.numel() == 0 or head_dim > 128:
        return portable_attention(q, k, v, causal=causal, scale=scale)
    q, k, v = copy_engine_ready(q), copy_engine_ready(k), copy_engine_ready(v)
    out = torch.empty((batch, q_heads, q_len, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, q_heads, q_len), dtype=torch.float32, device=q.device)
    block_n = BLOCK_N or 128
    q_blocks = triton.cdiv(q_len, 128)
    head_bytes = 2 * kv_len * head_dim * q.element_size() * kv_heads // q_heads
    head_group = HEAD_GROUP or (max(1, L2_KV_BYTES // head_bytes) if causal else 1)
    triton.set_allocator(_allocate)
    _forward[(q_blocks * batch * q_heads,)](
        q, k, v, out, lse,
        q.stride(0), q.stride(1), q.stride(2),
        k.stride(0), k.stride(1), k.stride(2),
        v.stride(0), v.stride(1), v.stride(2),
        q_blocks, batch * q_heads, min(head_group, batch * q_heads), q_heads, q_heads // kv_heads,
        q_len, kv_len, head_dim, scale * LOG2_E,
        CAUSAL=causal, BLOCK_M=128, BLOCK_N=block_n, BLOCK_D=64 if head_dim <= 64 else 128,
        MASKED=causal or kv_len % block_n != 0,
        # 3 stages gave NaN on an H200 (triton 3.6.0); 2 fit and are right.
        num_warps=4, num_stages=STAGES or 2,
    )  # fmt: skip
    return out, lse


def _allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Device workspace for the descriptors that the kernel builds."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


@triton.jit(do_not_specialize=_SIZES)
def _forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    q_blocks, heads, head_group, q_heads, share, q_len, kv_len, head_dim, scale_log2,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    place, block = _tile_place(tl.program_id(0), q_blocks, heads, head_group, CAUSAL)
    batch = (place // q_heads).to(tl.int64)
    head = place % q_heads
    kv_head = (head // share).to(tl.int64)
    row0 = block * BLOCK_M
    rows = row0 + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)

    q_desc = tl.make_tensor_descriptor(
        q_ptr + batch * q_batch + head.to(tl.int64) * q_head,
        [q_len, head_dim], [q_row, 1], [BLOCK_M, BLOCK_D],
    )  # fmt: skip
    k_desc = tl.make_tensor_descriptor(
        k_ptr + batch * k_batch + kv_head * k_head,
        [kv_len, head_dim], [k_row, 1], [BLOCK_N, BLOCK_D],
    )  # fmt: skip
    v_desc = tl.make_tensor_descriptor(
        v_ptr + batch * v_batch + kv_head * v_head,
        [kv_len, head_dim], [v_row, 1], [BLOCK_N, BLOCK_D],
    )  # fmt: skip
    q = q_desc.load([row0, 0])

    seen = kv_len
    if CAUSAL:
        shift = kv_len - q_len
        seen = tl.maximum(tl.minimum(row0 + BLOCK_M, q_len) + shift, 0)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for col in tl.range(0, seen, BLOCK_N, warp_specialize=True):
        k = k_desc.load([col, 0])
        s = tl.dot(q, k.T)
        if MASKED:
            cols = col + tl.arange(0, BLOCK_N)
            keep = (cols < kv_len)[None, :]
            if CAUSAL:
                keep = keep & (cols[None, :] <= (rows + shift)[:, None])
            # Finite, so that a row without keys gives no NaN; its sum is dropped below.
            s = tl.where(keep, s, -1e30)
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s * scale_log2 - (m_new * scale_log2)[:, None])
        alpha = tl.exp2((m - m_new) * scale_log2)
        l = l * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = v_desc.load([col, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        m = m_new

    # Every row's first tile holds its first key, so m stays at the mask value only without keys.
    seen_any = m > -1e29
    safe = tl.where(seen_any, l, 1.0)
    out = tl.where(seen_any[:, None], acc / safe[:, None], 0.0)
    lse = tl.where(seen_any, (m * scale_log2 + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    at = place.to(tl.int64) * q_len + rows
    tl.store(lse_ptr + at, lse, mask=rows < q_len)
    out_at = out_ptr + at[:, None] * head_dim + dims[None, :]
    tl.store(out_at, out.to(q.dtype), mask=(rows < q_len)[:, None] & (dims < head_dim)[None, :])
