"""activation(gate) * up and its gradients, from two tensors or from the halves of one, element by element.

The forward moves 3 elements of device memory for each of the output, the backward 5; 6 to 40 FLOPs for each. The gradient
needs the activation again, and computes it again: to have saved it would be a sixth element.
"""

import torch
import triton
import triton.language as tl

from .activations import activate, activate_both

ACTIVATIONS = ("silu", "gelu", "gelu_tanh")


def swiglu(
    gate: torch.Tensor,
    up: torch.Tensor,
    *,
    activation: str,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> torch.Tensor:
    """Return activation(gate) * up.

    Args:
        gate, up: (rows, cols) in float16, bfloat16 or float32, rows at any stride; copied first where
            the elements of a row do not lie next to each other.
        activation: `silu` (SwiGLU), `gelu` (GeGLU) or `gelu_tanh`.
        BLOCK: elements in one program, a power of two.
        WARPS: warps in one program.

    Returns:
        (rows, cols), contiguous, in the dtype of `gate`; computed in float32 and rounded once.

    Raises:
        ValueError: shapes or dtypes do not agree, or the activation is unknown.
    """
    _check(gate, (up,), activation)
    y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    _launch((gate, gate, up), (y, y), activation, False, BLOCK, WARPS)
    return y


def swiglu_backward(
    dy: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    *,
    activation: str,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the gradients of `swiglu` with respect to gate and up.

    Args:
        dy: (rows, cols), gradient of the output; strides as those of gate, 0 too.
        gate, up, activation, BLOCK, WARPS: as in `swiglu`.

    Returns:
        dgate and dup, (rows, cols), contiguous, in the dtype of `gate`.

    Raises:
        ValueError: as in `swiglu`.
    """
    _check(gate, (up, dy), activation)
    dgate = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    dup = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    _launch((dy, gate, up), (dgate, dup), activation, True, BLOCK, WARPS)
    return dgate, dup


def swiglu_packed(
    x: torch.Tensor, *, activation: str, BLOCK: int | None = None, WARPS: int | None = None
) -> torch.Tensor:
    """Return activation(left half) * right half of each row.

    Args:
        x: (rows, 2 * cols), as gate in `swiglu`.
        activation, BLOCK, WARPS: as in `swiglu`.

    Returns:
        (rows, cols), contiguous, in the dtype of `x`.

    Raises:
        ValueError: rows have no halves, or the activation is unknown.
    """
    gate, up = _halves(x)
    _check(gate, (up,), activation)
    y = torch.empty(gate.shape, dtype=x.dtype, device=x.device)
    _launch((gate, gate, up), (y, y), activation, False, BLOCK, WARPS)
    return y


def swiglu_packed_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    *,
    activation: str,
    BLOCK: int | None = None,
    WARPS: int | None = None,
) -> torch.Tensor:
    """Return the gradient of `swiglu_packed` with respect to x.

    Args:
        dy: (rows, cols), gradient of the output.
        x, activation, BLOCK, WARPS: as in `swiglu_packed`.

    Returns:
        (rows, 2 * cols), contiguous, in the dtype of `x`.

    Raises:
        ValueError: as in `swiglu_packed`, or shapes or dtypes do not agree.
    """
    gate, up = _halves(x)
    _check(gate, (up, dy), activation)
    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch((dy, gate, up), _halves(dx), activation, True, BLOCK, WARPS)
    return dx


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.ndim != 2 or x.shape[1] % 2:
        raise ValueError(f"x is {tuple(x.shape)}, not (rows, 2 * cols)")
    cols = x.shape[1] // 2
    return x.narrow(1, 0, cols), x.narrow(1, cols, cols)


def _check(gate: torch.Tensor, others: tuple[torch.Tensor, ...], activation: str) -> None:
    if gate.ndim != 2:
        raise ValueError(f"gate is {tuple(gate.shape)}, not (rows, cols)")
    for other in others:
        if other.shape != gate.shape or other.dtype != gate.dtype:
            raise ValueError(
                f"gate is {tuple(gate.shape)} {gate.dtype}, beside it {tuple(other.shape)} {other.dtype}"
            )
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation is {activation!r}; known: {', '.join(ACTIVATIONS)}")


def _adjacent(x: torch.Tensor) -> torch.Tensor:
    return x if x.shape[1] == 1 or x.stride(1) == 1 else x.contiguous()


def _launch(
    inputs: tuple[torch.Tensor, ...],
    outputs: tuple[torch.Tensor, ...],
    activation: str,
    backward: bool,
    block: int | None,
    warps: int | None,
) -> None:
    if not outputs[0].numel():
        return
    dy, gate, up = (_adjacent(x) for x in inputs)
    rows, cols = gate.shape
    if all(x.is_contiguous() for x in (dy, gate, up, *outputs)):
        # one long row, so that no block is cut short by the end of a narrow one
        rows, cols = 1, rows * cols
    # 16 bytes of each tensor a thread
    block = block or max(16, min(256 * 16 // gate.element_size(), triton.next_power_of_2(cols)))
    blocks = triton.cdiv(cols, block)
    _kernel[(rows * blocks,)](
        dy, gate, up, *outputs,
        dy.stride(0), gate.stride(0), up.stride(0), outputs[0].stride(0), cols, blocks,
        NAME=activation, BACKWARD=backward, BLOCK=block, WHOLE=cols % block == 0,
        num_warps=warps or max(1, min(8, block // 256)),
    )  # fmt: skip


@triton.jit
def _kernel(
    dy_ptr, gate_ptr, up_ptr, out_ptr, dup_ptr,
    dy_row_stride, gate_row_stride, up_row_stride, out_row_stride, cols, blocks,
    NAME: tl.constexpr,
    BACKWARD: tl.constexpr,
    BLOCK: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    # int64, because row * stride and block * BLOCK pass 2**31 on large inputs
    row = (program // blocks).to(tl.int64)
    col = (program % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # WHOLE makes the mask constant, and the compiler then drops it
    mask = (col < cols) | WHOLE
    gate = tl.load(gate_ptr + row * gate_row_stride + col, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_row_stride + col, mask=mask, other=0.0).to(tl.float32)
    out_at = row * out_row_stride + col
    if BACKWARD:
        dy = tl.load(dy_ptr + row * dy_row_stride + col, mask=mask, other=0.0).to(tl.float32)
        value, slope = activate_both(gate, NAME)
        tl.store(dup_ptr + out_at, (dy * value).to(dup_ptr.dtype.element_ty), mask=mask)
        out = dy * up * slope
    else:
        out = activate(gate, NAME) * up
    tl.store(out_ptr + out_at, out.to(out_ptr.dtype.element_ty), mask=mask)
