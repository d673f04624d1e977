"""Flash attention forward in plain Triton, for any GPU and for the interpreter.

Idea: one program owns BLOCK_M query rows and walks the keys once with an online softmax in base 2,
so the score matrix never reaches memory. The walk is split in two loops: tiles that every row sees
whole run without a mask, the tiles on the diagonal and at the end of the keys run masked.

FLOPs: 4 * batch * q_heads * q_len * kv_len * head_dim, half of it when causal and square.
Bytes moved at least: q, k, v and out once, plus 4 bytes a row for lse.
"""

import math

import torch
import triton
import triton.language as tl

from .shapes import LOG2_E, check_inputs, dense_rows, heads_in_l2

# One binary serves all values of these. Strides and head_dim come in units of ALIGN, at best 8 (16 bytes
# of a 16-bit dtype): by itself Triton knows multiples of 16 or nothing, and head_dim 72 loads element
# by element (spills 2136 bytes).
_SIZES = (
    "q_batch", "q_head", "q_row", "k_batch", "k_head", "k_row", "v_batch", "v_head", "v_row",
    "q_blocks", "heads", "head_group", "q_heads", "share", "q_len", "kv_len", "head_dim",
)  # fmt: skip


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
    scale: float,
    BLOCK_M: int | None = None,
    BLOCK_N: int | None = None,
    WARPS: int | None = None,
    STAGES: int | None = None,
    HEAD_GROUP: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return softmax(scale * q k^T) v and its log-sum-exp, in one pass over the keys.

    Args:
        q: (batch, q_heads, q_len, head_dim) in float16, bfloat16 or float32 (multiplied in full
            float32); head_dim a multiple of 8 up to 256. An input whose rows are not dense is
            copied; other strides are taken as they are.
        k: (batch, kv_heads, kv_len, head_dim); v alike.
        causal: aligned to the bottom right: query i sees keys j <= i + kv_len - q_len. A row that
            sees no key gets out 0 and lse -inf.
        BLOCK_M: query rows a program.
        BLOCK_N: keys a tile.
        HEAD_GROUP: query heads that run at a time.

    Returns:
        out, shaped and typed like q and contiguous; lse (batch, q_heads, q_len), natural, float32.

    Raises:
        ValueError: shapes, dtypes or scale outside the contract.
    """
    check_inputs(q, k, v, scale)
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"dtype must be float16, bfloat16 or float32, got {q.dtype}")
    batch, q_heads, q_len, head_dim = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    out = torch.empty((batch, q_heads, q_len, head_dim), dtype=q.dtype, device=q.device)
    lse = torch.empty((batch, q_heads, q_len), dtype=torch.float32, device=q.device)
    if q.numel() == 0:
        return out, lse
    q, k, v = dense_rows(q), dense_rows(k), dense_rows(v)
    block_d = max(16, triton.next_power_of_2(head_dim))
    rows, cols, warps, stages = _tile(block_d, q, causal)
    rows, cols = BLOCK_M or rows, BLOCK_N or cols
    q_blocks = triton.cdiv(q_len, rows)
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
    align = math.gcd(8, head_dim, *strides)
    _forward[(q_blocks * batch * q_heads,)](
        q, k, v, out, lse, *(stride // align for stride in strides),
        q_blocks, batch * q_heads, HEAD_GROUP or heads_in_l2(q, k, causal), q_heads,
        q_heads // kv_heads, q_len, kv_len, head_dim // align, scale * LOG2_E,
        CAUSAL=causal, BLOCK_M=rows, BLOCK_N=cols, BLOCK_D=block_d, WHOLE_D=block_d == head_dim,
        ALIGN=align,
        WIDE=max(k.stride(2), v.stride(2)) * cols >= 2**31, EDGES=causal or kv_len % cols != 0,
        num_warps=WARPS or warps, num_stages=STAGES or stages,
    )  # fmt: skip
    return out, lse


def _tile(block_d: int, q: torch.Tensor, causal: bool) -> tuple[int, int, int, int]:
    """(BLOCK_M, BLOCK_N, warps, stages) for a padded head_dim: the largest tile that fits the chip.

    Those for 227 KB are the fastest of those measured on an H200; the others compile without
    heavy spills for their chips and were not measured.
    """
    shared = _shared_bytes(q.device)
    if q.element_size() == 4:
        return (32, 32, 4, 1) if block_d > 128 else (64, 32, 4, 1)
    if shared < 96 << 10:
        # 64 KB: an AMD compute unit, and the interpreter, where small tiles let small inputs span many.
        return (64, 32, 4, 1) if block_d > 128 else (64, 64, 4, 1)
    if block_d <= 64:
        # Eight warps are 1 % faster than four on full attention, and 22 % slower on causal.
        return (128, 64, 4, 3) if causal or shared < 160 << 10 else (128, 64, 8, 3)
    if shared < 160 << 10:
        return (64, 32, 8, 2) if block_d > 128 else (128, 32, 8, 2)
    if shared < 224 << 10:
        return (64, 64, 8, 2) if block_d > 128 else (128, 64, 8, 2)
    return (128, 64, 8, 2) if block_d > 128 else (128, 128, 8, 3)


def _shared_bytes(device: torch.device) -> int:
    """Return the shared memory that a program may have; 64 KB where the device does not say."""
    if device.type != "cuda" or torch.version.hip:
        return 64 << 10
    properties = torch.cuda.get_device_properties(device)
    # An AMD chip compiled for elsewhere takes the tiles that it would take when there.
    return 64 << 10 if properties.warp_size == 64 else properties.shared_memory_per_block_optin


@triton.jit
def _tile_place(pid, q_blocks, heads, head_group, CAUSAL: tl.constexpr):
    """Head index and query block of a program: heads in groups that share L2, blocks outermost."""
    per_group = head_group * q_blocks
    group = pid // per_group
    rest = pid % per_group
    size = tl.minimum(head_group, heads - group * head_group)
    head = group * head_group + rest % size
    block = rest // size
    if CAUSAL:
        block = q_blocks - 1 - block  # longest programs first, so the last wave is short
    return head, block


@triton.jit
def _tile_step(
    q, k_base, v_base, k_off, v_off, m, l, acc, col, limit, dims_in, scale_log2,
    BLOCK_N: tl.constexpr, WHOLE_D: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One KV tile of the online softmax; k_off (BLOCK_D, BLOCK_N), v_off (BLOCK_N, BLOCK_D).

    limit (BLOCK_M,) counts the keys a row may see and is used only when MASKED.
    """
    cols = col + tl.arange(0, BLOCK_N)
    if MASKED:
        last = tl.max(limit, 0)
        k = tl.load(k_base + k_off, mask=dims_in[:, None] & (cols < last)[None, :], other=0.0)
    elif WHOLE_D:
        k = tl.load(k_base + k_off)
    else:
        k = tl.load(k_base + k_off, mask=dims_in[:, None], other=0.0)
    s = tl.dot(q, k, input_precision="ieee")
    if MASKED:
        s = tl.where(cols[None, :] < limit[:, None], s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    shift = m_new
    if MASKED:
        # A row that has seen no key yet has max -inf; -inf - -inf would be NaN.
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
    shift = shift * scale_log2
    p = tl.exp2(s * scale_log2 - shift[:, None])
    alpha = tl.exp2(m * scale_log2 - shift)
    l = l * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None]
    if MASKED:
        v = tl.load(v_base + v_off, mask=(cols < last)[:, None] & dims_in[None, :], other=0.0)
    elif WHOLE_D:
        v = tl.load(v_base + v_off)
    else:
        v = tl.load(v_base + v_off, mask=dims_in[None, :], other=0.0)
    acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
    return m_new, l, acc


@triton.jit(do_not_specialize=_SIZES)
def _forward(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    q_blocks, heads, head_group, q_heads, share, q_len, kv_len, head_dim, scale_log2,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    WHOLE_D: tl.constexpr, ALIGN: tl.constexpr, WIDE: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    q_row, k_row, v_row, head_dim = q_row * ALIGN, k_row * ALIGN, v_row * ALIGN, head_dim * ALIGN
    place, block = _tile_place(tl.program_id(0), q_blocks, heads, head_group, CAUSAL)
    batch = (place // q_heads).to(tl.int64)
    head = place % q_heads
    kv_head = (head // share).to(tl.int64)
    row0 = block * BLOCK_M
    rows = row0 + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, BLOCK_D)
    dims_in = dims < head_dim
    tile_cols = tl.arange(0, BLOCK_N)

    q_base = q_ptr + batch * q_batch * ALIGN + head.to(tl.int64) * q_head * ALIGN
    q_at = q_base + rows.to(tl.int64)[:, None] * q_row + dims[None, :]
    q = tl.load(q_at, mask=(rows < q_len)[:, None] & dims_in[None, :], other=0.0)
    k_base = k_ptr + batch * k_batch * ALIGN + kv_head * k_head * ALIGN
    v_base = v_ptr + batch * v_batch * ALIGN + kv_head * v_head * ALIGN
    # The loop moves one 64-bit scalar; 64-bit offsets per element would spill (2.5 KB at 128x128).
    if WIDE:
        tile_cols = tile_cols.to(tl.int64)
    k_off = tile_cols[None, :] * k_row + dims[:, None]
    v_off = tile_cols[:, None] * v_row + dims[None, :]

    # Keys that the last and the first row of the tile see; a padded row past q_len sees none.
    limit = tl.where(rows < q_len, kv_len, 0)
    seen = kv_len
    whole = kv_len // BLOCK_N * BLOCK_N
    if CAUSAL:
        shift = kv_len - q_len
        limit = tl.minimum(limit, tl.maximum(rows + 1 + shift, 0))
        seen = tl.maximum(tl.minimum(row0 + BLOCK_M, q_len) + shift, 0)
        whole = tl.maximum(tl.minimum(kv_len, row0 + 1 + shift), 0) // BLOCK_N * BLOCK_N

    k_step = tl.cast(k_row, tl.int64)
    v_step = tl.cast(v_row, tl.int64)
    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for col in range(0, whole, BLOCK_N):
        m, l, acc = _tile_step(
            q, k_base + col * k_step, v_base + col * v_step, k_off, v_off, m, l, acc, col,
            limit, dims_in, scale_log2, BLOCK_N, WHOLE_D, False,
        )  # fmt: skip
    # Compiled away where no tile needs a mask: its presence alone serialises wgmma (ptxas C7515).
    if EDGES:
        for col in range(whole, seen, BLOCK_N):
            m, l, acc = _tile_step(
                q, k_base + col * k_step, v_base + col * v_step, k_off, v_off, m, l, acc, col,
                limit, dims_in, scale_log2, BLOCK_N, WHOLE_D, True,
            )  # fmt: skip

    seen_any = l > 0.0
    safe = tl.where(seen_any, l, 1.0)
    out = acc / safe[:, None]
    lse = tl.where(seen_any, (m * scale_log2 + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    at = place.to(tl.int64) * q_len + rows
    tl.store(lse_ptr + at, lse, mask=rows < q_len)
    out_at = out_ptr + at[:, None] * head_dim + dims[None, :]
    tl.store(out_at, out.to(q.dtype), mask=(rows < q_len)[:, None] & dims_in[None, :])
