"""Rotary position embedding of queries and keys in one launch, forward and backward.

    a' = a cos - b sin        b' = b cos + a sin

for the pairs (a, b) of each head; the backward is the same with -sin. One program takes all heads of a token, so that a row of the
tables is read once for all of them, and everything is loaded before anything is stored. Device memory: each element of q and
k read once and written once, and the tables; 3 FLOPs for each element.
"""

import torch
import triton
import triton.language as tl

Pair = tuple[torch.Tensor, torch.Tensor]


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    pairing: str,
    GROUPS: int | None = None,
    WARPS: int | None = None,
) -> Pair:
    """Return q and k, the first 2 * half elements of each head rotated pair by pair, the others as they are.

    Args:
        q: (batch, tokens, q_heads, dim) in float16, bfloat16 or float32, at any strides; copied first where
            the elements of a head do not lie next to each other.
        k: (batch, tokens, kv_heads, dim), as q.
        cos, sin: (positions, half) of any floating dtype, rows at any stride; token t takes row t.
        pairing: `half` pairs element i with i + half, `interleaved` 2 i with 2 i + 1.
        GROUPS: programs that share the heads of a token.
        WARPS: warps in one program.

    Returns:
        Two tensors of the shapes of q and k, contiguous; computed in float32 and rounded once.

    Raises:
        ValueError: shapes or dtypes do not agree, or the pairing is unknown.
    """
    return _rotate(q, k, cos, sin, None, pairing, False, GROUPS, WARPS)


def rope_backward(
    dq: torch.Tensor,
    dk: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    pairing: str,
    GROUPS: int | None = None,
    WARPS: int | None = None,
) -> Pair:
    """Return the gradients of `rope` with respect to q and k.

    Args:
        dq, dk: gradients of its outputs, at any strides, 0 too.
        cos, sin, pairing, GROUPS, WARPS: as in `rope`.

    Returns:
        As `rope`.

    Raises:
        ValueError: as `rope`.
    """
    return _rotate(dq, dk, cos, sin, None, pairing, True, GROUPS, WARPS)


def rope_at_positions(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: torch.Tensor,
    *,
    pairing: str,
    GROUPS: int | None = None,
    WARPS: int | None = None,
) -> Pair:
    """Return what `rope` returns, token t of sequence b with row position[b, t] of the tables.

    Args:
        position: (batch, tokens), integers in [0, positions), at any strides; others make the token NaN.
        q, k, cos, sin, pairing, GROUPS, WARPS: as in `rope`.

    Returns:
        As `rope`.

    Raises:
        ValueError: as `rope`.
    """
    return _rotate(q, k, cos, sin, position, pairing, False, GROUPS, WARPS)


def rope_at_positions_backward(
    dq: torch.Tensor,
    dk: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: torch.Tensor,
    *,
    pairing: str,
    GROUPS: int | None = None,
    WARPS: int | None = None,
) -> Pair:
    """Return the gradients of `rope_at_positions` with respect to q and k.

    Args:
        dq, dk: as in `rope_backward`.
        cos, sin, position, pairing, GROUPS, WARPS: as in `rope_at_positions`.

    Returns:
        As `rope`.

    Raises:
        ValueError: as `rope`.
    """
    return _rotate(dq, dk, cos, sin, position, pairing, True, GROUPS, WARPS)


def _check(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: torch.Tensor | None,
    pairing: str,
) -> None:
    if q.ndim != 4 or k.ndim != 4 or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q is {tuple(q.shape)}, k is {tuple(k.shape)}, not (batch, tokens, heads, dim)"
        )
    if q.dtype != k.dtype:
        raise ValueError(f"q is {q.dtype}, k is {k.dtype}")
    if cos.ndim != 2 or cos.shape != sin.shape or 2 * cos.shape[1] > q.shape[3]:
        raise ValueError(
            f"cos is {tuple(cos.shape)}, sin {tuple(sin.shape)}; heads have {q.shape[3]}"
        )
    if position is None and cos.shape[0] < q.shape[1]:
        raise ValueError(f"tables have {cos.shape[0]} positions for {q.shape[1]} tokens")
    if position is not None and position.shape != q.shape[:2]:
        raise ValueError(f"position is {tuple(position.shape)}, q is {tuple(q.shape)}")
    if pairing not in ("half", "interleaved"):
        raise ValueError(f"pairing is {pairing!r}; known: half, interleaved")


def _adjacent(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[-1] == 1 or x.stride(-1) == 1 else x.contiguous()


def _rotate(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    position: torch.Tensor | None,
    pairing: str,
    backward: bool,
    groups: int | None,
    warps: int | None,
) -> Pair:
    _check(q, k, cos, sin, position, pairing)
    q, k, cos, sin = _adjacent(q), _adjacent(k), _adjacent(cos), _adjacent(sin)
    batch, tokens, q_heads, dim = q.shape
    kv_heads, half = k.shape[2], cos.shape[1]
    q_out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    k_out = torch.empty(k.shape, dtype=k.dtype, device=k.device)
    if batch * tokens == 0 or dim == 0:
        return q_out, k_out
    width = triton.next_power_of_2(dim)
    if groups is None:
        # 64 KB of 16-bit elements in one program at most
        groups = max(1, triton.next_power_of_2(q_heads + kv_heads) * width // 32768)
    q_block = triton.next_power_of_2(max(1, triton.cdiv(q_heads, groups)))
    k_block = triton.next_power_of_2(max(1, triton.cdiv(kv_heads, groups)))
    # 32 elements of q a thread
    warps = warps or max(1, min(8, q_block * width // 1024))
    positions = q if position is None else position
    strides = (0, 0) if position is None else (position.stride(0), position.stride(1))
    _rope_kernel[(batch * tokens * groups,)](
        q, k, cos, sin, positions, q_out, k_out,
        *q.stride()[:3], *k.stride()[:3], cos.stride(0), sin.stride(0), *strides,
        tokens, groups, q_heads, kv_heads, dim, half, cos.shape[0],
        Q_BLOCK=q_block, K_BLOCK=k_block, HALF=triton.next_power_of_2(max(half, 1)),
        REST=triton.next_power_of_2(dim - 2 * half) if dim > 2 * half else 0,
        INTERLEAVED=pairing == "interleaved", BACKWARD=backward, LISTED=position is not None,
        num_warps=warps,
    )  # fmt: skip
    return q_out, k_out


@triton.jit
def _rope_kernel(
    q_ptr, k_ptr, cos_ptr, sin_ptr, position_ptr, q_out_ptr, k_out_ptr,
    q_batch_stride, q_token_stride, q_head_stride, k_batch_stride, k_token_stride, k_head_stride,
    cos_stride, sin_stride, position_batch_stride, position_token_stride,
    tokens, groups, q_heads, kv_heads, dim, half, positions,
    Q_BLOCK: tl.constexpr,
    K_BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACKWARD: tl.constexpr,
    LISTED: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    group = program % groups
    place = program // groups
    # int64, because token * stride passes 2**31 on large inputs; after the divisions, which are slow in 64 bits
    sequence = (place // tokens).to(tl.int64)
    token = (place % tokens).to(tl.int64)
    place = place.to(tl.int64)
    at = token
    if LISTED:
        listed_at = sequence * position_batch_stride + token * position_token_stride
        at = tl.load(position_ptr + listed_at).to(tl.int64)
    lane = tl.arange(0, HALF)
    # never read outside of the tables; the token shows it
    mask = (lane < half) & (at >= 0) & (at < positions)
    nan = float("nan")
    cos = tl.load(cos_ptr + at * cos_stride + lane, mask=mask, other=nan).to(tl.float32)[None, :]
    sin = tl.load(sin_ptr + at * sin_stride + lane, mask=mask, other=nan).to(tl.float32)[None, :]
    if BACKWARD:
        sin = -sin

    q_ptr += sequence * q_batch_stride + token * q_token_stride
    k_ptr += sequence * k_batch_stride + token * k_token_stride
    q_out_ptr += place * q_heads * dim
    k_out_ptr += place * kv_heads * dim
    q_head = (group * Q_BLOCK + tl.arange(0, Q_BLOCK)).to(tl.int64)
    k_head = (group * K_BLOCK + tl.arange(0, K_BLOCK)).to(tl.int64)
    # all loads before the first store: nothing tells the compiler that the outputs are not the inputs
    q_a, q_b = _pairs(q_ptr, q_head, q_heads, q_head_stride, half, Q_BLOCK, HALF, INTERLEAVED)
    k_a, k_b = _pairs(k_ptr, k_head, kv_heads, k_head_stride, half, K_BLOCK, HALF, INTERLEAVED)
    if REST:
        rest = 2 * half + tl.arange(0, REST)[None, :]
        q_mask = (q_head < q_heads)[:, None] & (rest < dim)
        k_mask = (k_head < kv_heads)[:, None] & (rest < dim)
        q_rest = tl.load(q_ptr + q_head[:, None] * q_head_stride + rest, mask=q_mask)
        k_rest = tl.load(k_ptr + k_head[:, None] * k_head_stride + rest, mask=k_mask)
        tl.store(q_out_ptr + q_head[:, None] * dim + rest, q_rest, mask=q_mask)
        tl.store(k_out_ptr + k_head[:, None] * dim + rest, k_rest, mask=k_mask)
    _store(q_out_ptr, q_head, q_heads, dim, half, q_a, q_b, cos, sin, Q_BLOCK, HALF, INTERLEAVED)
    _store(k_out_ptr, k_head, kv_heads, dim, half, k_a, k_b, cos, sin, K_BLOCK, HALF, INTERLEAVED)


@triton.jit
def _pairs(
    x_ptr, head, heads, head_stride, half,
    BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Return the first and the second elements of the pairs, [BLOCK, HALF] each."""
    x_ptr += head[:, None] * head_stride
    if INTERLEAVED:
        # read as they lie, and parted in registers
        col = tl.arange(0, 2 * HALF)[None, :]
        x = tl.load(x_ptr + col, mask=(head < heads)[:, None] & (col < 2 * half), other=0.0)
        return tl.split(tl.reshape(x, (BLOCK, HALF, 2)))
    lane = tl.arange(0, HALF)[None, :]
    mask = (head < heads)[:, None] & (lane < half)
    a = tl.load(x_ptr + lane, mask=mask, other=0.0)
    return a, tl.load(x_ptr + half + lane, mask=mask, other=0.0)


@triton.jit
def _store(
    out_ptr, head, heads, dim, half, a, b, cos, sin,
    BLOCK: tl.constexpr,
    HALF: tl.constexpr,
    INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Rotate the pairs and write them."""
    a, b = a.to(tl.float32), b.to(tl.float32)
    first = (a * cos - b * sin).to(out_ptr.dtype.element_ty)
    second = (b * cos + a * sin).to(out_ptr.dtype.element_ty)
    out_ptr += head[:, None] * dim
    if INTERLEAVED:
        col = tl.arange(0, 2 * HALF)[None, :]
        both = tl.reshape(tl.join(first, second), (BLOCK, 2 * HALF))
        tl.store(out_ptr + col, both, mask=(head < heads)[:, None] & (col < 2 * half))
    else:
        lane = tl.arange(0, HALF)[None, :]
        mask = (head < heads)[:, None] & (lane < half)
        tl.store(out_ptr + lane, first, mask=mask)
        tl.store(out_ptr + half + lane, second, mask=mask)
