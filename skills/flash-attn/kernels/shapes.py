"""Checks and host arithmetic shared by the attention kernels."""

import torch

LOG2_E = 1.4426950408889634
# K and V of one head group should stay in a 40 to 50 MB L2 beside Q and out.
_L2_KV_BYTES = 32 << 20


def check_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> None:
    """Raise ValueError unless q, k and v fit the attention contract.

    q (batch, q_heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim): one dtype, one
    device, q_heads a multiple of kv_heads, head_dim a multiple of 8 from 8 to 256, scale positive
    (the row maximum is taken before scaling).
    """
    if q.dim() != 4 or k.dim() != 4 or v.shape != k.shape:
        raise ValueError(
            "q, k and v must have 4 dimensions and k the shape of v, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(f"q and k differ in batch or head_dim: {tuple(q.shape)}, {tuple(k.shape)}")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q_heads {q.shape[1]} is not a multiple of kv_heads {k.shape[1]}")
    if q.shape[3] % 8 or not 8 <= q.shape[3] <= 256:
        raise ValueError(f"head_dim must be a multiple of 8 from 8 to 256, got {q.shape[3]}")
    if not (q.dtype == k.dtype == v.dtype and q.device == k.device == v.device):
        raise ValueError("q, k and v must share one dtype and one device")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")


def heads_in_l2(q: torch.Tensor, k: torch.Tensor, causal: bool) -> int:
    """Return how many query heads run at a time, so that their K and V stay in the L2 cache.

    Full attention takes one: all blocks of a head take equally long and share it anyway. Causal
    blocks run longest first over a group of heads (653 TF/s grouped, 593 with one head at a time,
    611 with 32; head_dim 128, 8192 keys, H200).
    """
    heads = q.shape[0] * q.shape[1]
    if not causal:
        return 1
    kv_bytes = 2 * k.shape[2] * k.shape[3] * k.element_size()
    per_q_head = max(1, kv_bytes * k.shape[1] // q.shape[1])
    return max(1, min(heads, _L2_KV_BYTES // per_q_head))


def dense_rows(x: torch.Tensor) -> torch.Tensor:
    """Return x itself when the elements of a row are adjacent, else a contiguous copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def aligned(*tensors: torch.Tensor) -> bool:
    """Return whether every tensor starts at a multiple of 16 bytes, as the copy engine asks."""
    return all(x.data_ptr() % 16 == 0 for x in tensors)


def copy_engine_ready(x: torch.Tensor) -> torch.Tensor:
    """Return x itself when its strides suit the tensor copy engine, else a contiguous copy.

    The engine takes adjacent elements and outer strides that are positive multiples of 16 bytes;
    the stride of a dimension of size 1 does not matter.
    """
    step = 16 // x.element_size()
    strides = [s for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True) if n > 1]
    fits = x.stride(-1) == 1 and all(s > 0 and s % step == 0 for s in strides)
    return x if fits else x.contiguous()
