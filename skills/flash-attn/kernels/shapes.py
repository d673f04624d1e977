"""Input checks shared by the attention variants."""

import torch


def check_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> None:
    """Raises ValueError unless q, k and v fit the attention contract.

    q (batch, q_heads, q_len, head_dim), k and v (batch, kv_heads, kv_len, head_dim): one dtype, one
    device, last dimension contiguous, q_heads a multiple of kv_heads, head_dim a multiple of 8 from
    16 to 256, scale positive (the row maximum is taken before scaling).
    """
    if q.dim() != 4 or k.dim() != 4 or v.shape != k.shape:
        raise ValueError(
            "q, k and v must have 4 dimensions and k the shape of v, got "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"q and k differ in batch or head_dim: {tuple(q.shape)}, {tuple(k.shape)}"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"q_heads {q.shape[1]} is not a multiple of kv_heads {k.shape[1]}")
    if q.shape[3] % 8 or not 16 <= q.shape[3] <= 256:
        raise ValueError(f"head_dim must be a multiple of 8 from 16 to 256, got {q.shape[3]}")
    if not (q.dtype == k.dtype == v.dtype and q.device == k.device == v.device):
        raise ValueError("q, k and v must share one dtype and one device")
    if any(x.stride(3) != 1 for x in (q, k, v)):
        raise ValueError("the last dimension of q, k and v must be contiguous")
    if not scale > 0:
        raise ValueError(f"scale must be positive, got {scale}")


def copy_engine_ready(x: torch.Tensor) -> torch.Tensor:
    """x itself when the tensor copy engine can address it, else a contiguous copy.

    The engine takes 16-byte-aligned bases and outer strides that are positive multiples of 16
    bytes; the stride of a dimension of size 1 does not matter.
    """
    step = 16 // x.element_size()
    strides = [s for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True) if n > 1]
    if x.data_ptr() % 16 or any(s <= 0 or s % step for s in strides):
        return x.contiguous()
    return x
