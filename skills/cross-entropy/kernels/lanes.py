"""What the kernels share: the checks, and the two passes over a row of logits.

The first pass keeps a maximum and a sum for each lane of VECTOR adjacent elements, which lie in one
thread: VECTOR + 1 exponentials and no exchange for VECTOR elements. One maximum for each element would
take 2 * VECTOR exponentials, and at 16 results a clock the special function unit would set the pace; one for each
block would cross the warps in every turn of the loop.
"""

import torch
import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)
INF = tl.constexpr(float("inf"))


def check(logits: torch.Tensor, target: torch.Tensor, vocab: int) -> None:
    """Raise ValueError where the shapes do not agree."""
    if logits.ndim != 2:
        raise ValueError(f"logits are {tuple(logits.shape)}, not (rows, cols)")
    if not 1 <= vocab <= logits.shape[1]:
        raise ValueError(f"vocab is {vocab}; logits have {logits.shape[1]} columns")
    if target.shape != (logits.shape[0],):
        raise ValueError(f"target is {tuple(target.shape)}, logits are {tuple(logits.shape)}")


def adjacent(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, copied where the elements of its last dimension do not lie next to each other."""
    if tensor.shape[-1] == 1 or tensor.stride(-1) == 1:
        return tensor
    return tensor.contiguous()


def most_warps(device: torch.device) -> int:
    """Return how many warps have the 1024 threads that a program may have."""
    if device.type == "cpu":  # Triton's interpreter
        return 32
    return 1024 // torch.cuda.get_device_properties(device).warp_size


def lane_elements(logits: torch.Tensor) -> int:
    """Return how many elements of a row one load brings to a thread, at most.

    Where rows start anywhere it is 1: Triton spreads adjacent elements over threads, and sums of lanes of eight would be
    exchanged between them, 206 shuffles in place of 20 (counted in the PTX for 33000 columns, sm_90).
    """
    return 1 if logits.stride(0) % 16 else 16 // logits.element_size()


@triton.jit
def row_sums(row_ptr, vocab, BLOCK: tl.constexpr, VECTOR: tl.constexpr, SMOOTH: tl.constexpr):
    """Return the logarithm of the sum of exponentials of a row, and its plain sum if SMOOTH."""
    LANES: tl.constexpr = BLOCK // VECTOR
    col = tl.arange(0, LANES)[:, None] * VECTOR + tl.arange(0, VECTOR)[None, :]
    largest = tl.full([LANES], -INF, tl.float32)
    total = tl.zeros([LANES], tl.float32)
    plain = tl.zeros([LANES], tl.float32)
    # whole blocks without a mask: one that ends anywhere would cut 16-byte loads into elements
    whole = vocab // BLOCK * BLOCK
    for start in range(0, whole, BLOCK):
        x = tl.load(row_ptr + start + col, eviction_policy="evict_last").to(tl.float32)
        largest, total = absorb(x, largest, total)
        if SMOOTH:
            plain += tl.sum(x, axis=1)
    if whole < vocab:
        mask = whole + col < vocab
        x = tl.load(row_ptr + whole + col, mask=mask, other=-INF).to(tl.float32)
        largest, total = absorb(x, largest, total)
        if SMOOTH:
            # a logit of -inf is part of the sum, a column past the last is not
            plain += tl.sum(tl.where(mask, x, 0.0), axis=1)
    top = tl.max(largest, axis=0)
    origin = tl.where(tl.abs(top) == INF, 0.0, top)
    lse = origin + tl.log(tl.sum(total * tl.exp2((largest - origin) * LOG2E), axis=0))
    return lse, tl.sum(plain, axis=0)


@triton.jit
def absorb(x, largest, total):
    """Add a tile, [LANES, VECTOR], to the running maximum and sum of each lane."""
    grown = tl.maximum(largest, tl.max(x, axis=1))
    # inf - inf is NaN; 0 keeps exp(-inf) at 0 and exp(inf) at inf
    origin = tl.where(tl.abs(grown) == INF, 0.0, grown)
    added = tl.sum(tl.exp2((x - origin[:, None]) * LOG2E), axis=1)
    return grown, total * tl.exp2((largest - origin) * LOG2E) + added


@triton.jit
def row_loss(
    row_ptr, target, lse, plain, vocab, smoothing, z_loss,
    SMOOTH: tl.constexpr,
    SQUARE: tl.constexpr,
):  # fmt: skip
    """Return the loss of a row from its sums; NaN where the target is no class."""
    inside = (target >= 0) & (target < vocab)
    picked = tl.load(row_ptr + tl.where(inside, target, 0)).to(tl.float32)
    loss = lse - (1 - smoothing) * picked
    if SMOOTH:
        loss -= smoothing * (plain / vocab)
    if SQUARE:
        loss += z_loss * lse * lse
    return tl.where(inside, loss, float("nan"))


@triton.jit
def gradient(
    x, col, target, lse, scale, vocab, smoothing, z_loss,
    SMOOTH: tl.constexpr,
    SQUARE: tl.constexpr,
):  # fmt: skip
    """Return scale times the derivative of the loss by each of the logits `x` in float32."""
    dx = tl.exp2((x - lse) * LOG2E)
    if SQUARE:
        dx *= 1 + 2 * z_loss * lse
    if SMOOTH:
        dx -= smoothing / vocab
    dx = tl.where(col == target, dx - (1 - smoothing), dx)
    inside = (target >= 0) & (target < vocab)
    return dx * tl.where(inside, scale, float("nan"))
