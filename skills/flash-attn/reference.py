"""Attention in plain PyTorch, and inputs with the storage order of a projection layer."""

import torch

# scores of a slice of heads: 1 GiB in float64
_SCORES_AT_ONCE = 1 << 27


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return out, shaped like q, and lse (batch, q_heads, q_len).

    q (batch, q_heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim). Products are
    in the dtype of the inputs, softmax in at least float32. A row that sees no key gives out 0 and
    lse -inf. A few heads at a time: float64 scores of 64 heads of 8192 x 8192 take 34 GB.
    """
    batch, q_heads, q_len, _ = q.shape
    kv_heads, kv_len = k.shape[1], k.shape[2]
    heads = batch * q_heads
    share = q_heads // kv_heads
    # query head h reads key head h // share
    key_head = torch.arange(heads, device=q.device) // share
    q_rows, k_rows, v_rows = (x.flatten(0, 1) for x in (q, k, v))
    row = torch.arange(q_len, device=q.device)[:, None]
    key = torch.arange(kv_len, device=q.device)[None, :]
    hidden = key > row + (kv_len - q_len) if causal else None

    at_once = max(1, _SCORES_AT_ONCE // max(1, q_len * kv_len))
    outs, lses = [], []
    for first in range(0, heads, at_once):
        mine = slice(first, min(first + at_once, heads))
        keys, values = k_rows[key_head[mine]], v_rows[key_head[mine]]
        out, lse = _attend(q_rows[mine], keys, values, hidden, scale)
        outs.append(out)
        lses.append(lse)
    if not outs:
        return q * 0, q.sum(-1)
    return torch.cat(outs).reshape(q.shape), torch.cat(lses).reshape(batch, q_heads, q_len)


def _attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    hidden: torch.Tensor | None,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of (heads, q_len, head_dim) over as many (heads, kv_len, head_dim)."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q @ k.transpose(1, 2)).to(wide) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    # -inf - -inf would be NaN in a row that sees no key
    shift = torch.where(lse == float("-inf"), 0.0, lse)
    weights = torch.exp(scores - shift[..., None])
    return weights.to(v.dtype) @ v, lse


def make_inputs_bshd(
    axes: dict[str, int], dtypes: dict[str, str], seed: int, device: str
) -> dict[str, torch.Tensor]:
    """Return q, k and v as a fused projection leaves them: (batch, len, heads, head_dim) in memory."""
    generator = torch.Generator(device=device).manual_seed(seed)
    dtype = getattr(torch, dtypes["T"])

    def draw(heads: int, length: int) -> torch.Tensor:
        shape = (axes["batch"], length, heads, axes["head_dim"])
        values = torch.randn(shape, generator=generator, device=device)
        return values.to(dtype).transpose(1, 2)

    q = draw(axes["q_heads"], axes["q_len"])
    k, v = (draw(axes["kv_heads"], axes["kv_len"]) for _ in range(2))
    return {"q": q, "k": k, "v": v}
