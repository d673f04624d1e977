"""The earned tolerance: how far an output may stray from the float64 reference.

Let `honest` be the same reference run in the candidate's dtype. Element by element,
|out - ref| <= k max|honest - ref| + 2 eps |ref|, and in norm ||out - ref|| <= k ||honest - ref|| + eps ||ref||, with
eps of the output's dtype. A reordered sum passes; fewer bits than the task's own do not.

Large tensors are compared a piece at a time, and the device is waited for once: a softmax of 6 GB needs no float64
temporary of its own size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from kernel_skills.executor.models import Tolerance

_FACTOR_BY_BYTES = {8: 20.0, 4: 20.0, 2: 3.0, 1: 2.0}
_PIECE = 1 << 25
"""Elements: 256 MB as float64, five times L2, so that few launches are needed and temporaries stay small."""
_TINY = torch.finfo(torch.float64).tiny
_ASSERT_CLOSE = {
    torch.float64: (1e-7, 1e-7), torch.float32: (1.3e-6, 1e-5), torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}  # fmt: skip
"""(relative, absolute), as `torch.testing.assert_close` has them; other dtypes must be equal there."""


@dataclass(frozen=True)
class HonestError:
    """How far the honest computation strays: what the tolerance is earned from."""

    largest: float
    norm: float


@dataclass(frozen=True)
class Comparison:
    """Errors of one output against its reference."""

    passed: bool
    max_absolute_error: float
    max_relative_error: float
    bound_share: float
    """Largest error over what the tolerance allows: 1.0 is the limit."""
    honest_share: float
    """The same for the honest computation, where the reference is zero: elsewhere it is less."""
    assert_close: bool
    """PyTorch's own per-dtype verdict, for the record; it decides nothing."""
    reason: str = ""


def factor(dtypes: list[torch.dtype], tolerance: Tolerance) -> float:
    """Return k: the tolerance's own, or that of the coarsest floating dtype among inputs and output."""
    if tolerance.k is not None:
        return tolerance.k
    sizes = [dtype.itemsize for dtype in dtypes if dtype.is_floating_point]
    return _FACTOR_BY_BYTES[min(sizes, default=4)]


def honest_error(honest: torch.Tensor, reference: torch.Tensor) -> HonestError:
    """Return the error of the honest computation over the elements where both sides are finite.

    Args:
        honest: in the dtype of the output.
        reference: same shape, float64 (or the exact integers).
    """
    if not honest.dtype.is_floating_point or not honest.numel():
        return HonestError(0.0, 0.0)
    largest, squares = [], []
    for piece, ref in _pieces(honest, reference):
        error = piece.to(torch.float64).sub_(ref).abs_()
        # what the dtype cannot hold is infinite on both sides, or is no measure of rounding
        error = error.nan_to_num_(nan=0.0, posinf=0.0)
        error = torch.where(torch.isfinite(ref.to(honest.dtype).to(torch.float64)), error, 0.0)
        largest.append(error.max())
        squares.append(error.square().sum())
    return HonestError(float(torch.stack(largest).max()), math.sqrt(float(sum(squares))))


def compare(
    out: torch.Tensor,
    reference: torch.Tensor,
    honest: torch.Tensor | HonestError,
    tolerance: Tolerance,
    k: float,
) -> Comparison:
    """Compare an output with its reference.

    Args:
        out: in the dtype of the definition.
        reference: same shape, float64 (or the exact integers).
        honest: same shape, in the dtype of `out`, or its error.
    """
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0, 0.0, 0.0, True)
    if not out.dtype.is_floating_point:
        return _compare_exactly(out, reference, tolerance)
    fair = honest if isinstance(honest, HonestError) else honest_error(honest, reference)
    eps = torch.finfo(out.dtype).eps
    totals = _totals(out, reference, k * fair.largest, eps)
    if int(totals[:, _STRAY].sum()):
        reason = _describe_stray(out, reference, int(totals[:, _STRAY].sum()))
        return Comparison(False, math.inf, math.inf, math.inf, 0.0, False, reason)
    error, relative, share, beyond = (float(value) for value in totals[:, :4].amax(0))
    missed, squares, ref_squares = (float(value) for value in totals[:, 4:7].sum(0))
    bound = k * fair.norm + eps * math.sqrt(ref_squares)
    norm_share = _ratio(math.sqrt(squares), bound)
    passed = missed <= tolerance.mismatch_fraction * out.numel() and norm_share <= 1
    return Comparison(
        passed=passed,
        max_absolute_error=error,
        max_relative_error=relative,
        bound_share=max(share, norm_share),
        honest_share=1 / k if fair.largest else 0.0,
        assert_close=beyond <= 0,
        reason="" if passed else _describe(out, reference, k * fair.largest, eps, norm_share),
    )


_STRAY, _SIZE = 7, 8


def _totals(out: torch.Tensor, reference: torch.Tensor, floor: float, eps: float) -> torch.Tensor:
    """Return one row of `_errors` per piece; pieces with anything but plain numbers are looked at more closely."""
    quick = [_errors(piece, ref, None, floor, eps) for piece, ref in _pieces(out, reference)]
    totals = torch.stack(quick).cpu()
    # an infinity or NaN on either side leaves one here, and what rounds to infinity is larger than the dtype holds
    plain = torch.isfinite(totals).all(1) & (totals[:, _SIZE] <= torch.finfo(out.dtype).max)
    if bool(plain.all()):
        return totals
    rows = []
    for row, usual, (piece, ref) in zip(totals, plain, _pieces(out, reference), strict=True):
        rows.append(row if usual else _closely(piece, ref, floor, eps).cpu())
    return torch.stack(rows)


def _errors(
    out: torch.Tensor, ref: torch.Tensor, finite: torch.Tensor | None, floor: float, eps: float
) -> torch.Tensor:
    """Return what a piece adds, as one row on the device.

    Largest absolute error, largest relative error, largest share of the bound, how far PyTorch's tolerance is passed,
    elements that miss the bound, sum of squared errors, sum of squared references, 0 for elements that are not finite
    as the reference is, largest reference.

    Args:
        finite: where to look; None is everywhere.
    """
    rtol, atol = _ASSERT_CLOSE.get(out.dtype, (0.0, eps))
    size = ref.abs() if finite is None else torch.where(finite, ref, 0.0).abs_()
    error = out.to(torch.float64).sub_(ref).abs_()
    if finite is not None:
        error = torch.where(finite, error, 0.0)
    share = error / size.mul(2 * eps).add_(floor).clamp_(min=_TINY)
    largest, missed = share.max(), (share > 1).sum()
    relative = torch.div(error, size.clamp(min=eps), out=share).max()
    beyond = torch.sub(error, size, alpha=rtol, out=share).max() - atol
    found = (
        error.max(), relative, largest, beyond, missed, torch.linalg.vector_norm(error).square(),
        torch.linalg.vector_norm(size).square(), torch.zeros_like(largest), size.max(),
    )  # fmt: skip
    return torch.stack([value.to(torch.float64) for value in found])


def _closely(out: torch.Tensor, ref: torch.Tensor, floor: float, eps: float) -> torch.Tensor:
    """Return the row of a piece in which something is not finite, as it may be where the reference is not."""
    finite, stray = _non_finite(out, ref)
    row = _errors(out, ref, finite, floor, eps)
    row[_STRAY] = stray.sum()
    return row


def _non_finite(out: torch.Tensor, ref: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where the reference is finite, and where the output is not what it should be in that respect."""
    # what the output's dtype itself cannot hold is infinite in the reference, too; float8_e4m3fn has no
    # infinity and rounds one to its largest number
    wide, rounded = out.to(torch.float64), ref.to(out.dtype).to(torch.float64)
    finite = torch.isfinite(rounded) & torch.isfinite(ref)
    same = (wide == rounded) | (wide.isnan() & rounded.isnan())
    return finite, torch.where(finite, ~torch.isfinite(wide), ~same)


def _pieces(
    out: torch.Tensor, reference: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield both as flat pieces, the reference in float64."""
    flat, exact = out.reshape(-1), reference.reshape(-1)
    for start in range(0, flat.numel(), _PIECE):
        yield flat[start : start + _PIECE], exact[start : start + _PIECE].to(torch.float64)


def _ratio(value: float, bound: float) -> float:
    return 0.0 if value == 0 else value / bound if bound else math.inf


def _index(out: torch.Tensor, at: int) -> tuple[int, ...]:
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(at), out.shape))


def _describe_stray(out: torch.Tensor, reference: torch.Tensor, count: int) -> str:
    """Say where an output is not finite as the reference is: the first such element."""
    start = 0
    for piece, ref in _pieces(out, reference):
        _, stray = _non_finite(piece, ref)
        if bool(stray.any()):
            at = int(stray.nonzero()[0])
            got, want = float(piece[at]), float(ref[at].to(out.dtype))
            return (
                f"{count} of {out.numel()} elements are {got} where the reference is {want}; "
                f"first at {_index(out, start + at)}"
            )
        start += piece.numel()
    raise AssertionError("counted, but not found again")


def _describe(
    out: torch.Tensor, reference: torch.Tensor, floor: float, eps: float, norm_share: float
) -> str:
    """Say where an output misses the tolerance: how often, the first element and the worst."""
    missed, start, first, worst = 0, 0, -1, (0.0, 0.0, 0.0)
    for piece, ref in _pieces(out, reference):
        finite, _ = _non_finite(piece, ref)
        error = torch.where(finite, piece.to(torch.float64) - ref, 0.0).abs_()
        bound = (floor + 2 * eps * torch.where(finite, ref, 0.0).abs_()).clamp_(min=_TINY)
        share = error / bound
        beyond = share > 1
        if count := int(beyond.sum()):
            missed += count
            first = start + int(beyond.nonzero()[0]) if first < 0 else first
            at = int(share.argmax())
            worst = max(worst, (share[at].item(), float(piece[at]), ref[at].item()))
        start += piece.numel()
    if not missed:
        return f"the error in norm is {norm_share:.3g} times what the tolerance allows"
    return (
        f"{missed} of {out.numel()} elements miss the tolerance, first at {_index(out, first)}; worst: got "
        f"{worst[1]:.6g}, reference {worst[2]:.6g}, {worst[0]:.3g} times the bound"
    )


def _compare_exactly(
    out: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> Comparison:
    """Integers and booleans match exactly, or lie one apart in the share that the tolerance grants."""
    difference = (out.to(torch.int64) - reference.to(torch.int64)).abs()
    missed, largest = int((difference > 0).sum()), int(difference.max())
    passed = missed == 0 or (largest <= 1 and missed <= tolerance.mismatch_fraction * out.numel())
    reason = "" if passed else f"{missed} of {out.numel()} elements differ, by up to {largest}"
    share = 0.0 if passed else math.inf
    return Comparison(passed, float(largest), float(largest), share, 0.0, missed == 0, reason)
