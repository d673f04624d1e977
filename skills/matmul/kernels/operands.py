"""What every variant asks of its operands: the checks, and whether TMA can address a matrix."""

import torch

ACTIVATIONS = ("none", "relu", "gelu", "silu")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def check_matmul(a: torch.Tensor, b: torch.Tensor) -> None:
    """Raise ValueError unless `a` (m, k) and `b` (k, n) can be multiplied."""
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"cannot multiply shapes {tuple(a.shape)} and {tuple(b.shape)}")
    if a.dtype not in DTYPES or b.dtype != a.dtype:
        raise ValueError(f"dtypes {a.dtype} and {b.dtype}: want one of {DTYPES} for both")
    if a.device != b.device:
        raise ValueError(f"operands on {a.device} and {b.device}")


def check_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, activation: str
) -> None:
    """Raise ValueError unless `activation(x @ weight.T + bias)` is defined."""
    check_matmul(x, weight.T)
    if tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, want ({weight.shape[0]},)")
    if bias.dtype != x.dtype or bias.device != x.device:
        raise ValueError(f"bias is {bias.dtype} on {bias.device}, x {x.dtype} on {x.device}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation {activation!r}: want one of {ACTIVATIONS}")


def is_tma_operand(x: torch.Tensor) -> bool:
    """Whether TMA can address `x`, as it is or transposed.

    One dimension must be contiguous, the other a multiple of 16 bytes apart, and the first
    element aligned to 16 bytes. Descriptors hold no empty dimension.
    """
    if 0 in x.shape or x.data_ptr() % 16:
        return False
    return any(
        x.stride(inner) == 1
        and x.stride(outer) >= x.shape[inner]
        and x.stride(outer) * x.element_size() % 16 == 0
        for inner, outer in ((1, 0), (0, 1))
    )


def multiprocessors(x: torch.Tensor) -> int:
    """Multiprocessors of the GPU that holds `x`; 2 in the interpreter, which has none to count."""
    if x.device.type != "cuda":
        return 2
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count)
