"""The earned tolerance: how far an output may stray from the float64 reference.

Let `honest` be the same reference run in the candidate's dtype. Element by element,
|out - ref| <= k max|honest - ref| + 2 eps |ref|, and in norm ||out - ref|| <= k ||honest - ref|| + eps ||ref||, with
eps of the output's dtype. A reordered sum passes; fewer bits than the task's own do not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernel_skills.executor.models import Tolerance

_FACTOR_BY_BYTES = {8: 20.0, 4: 20.0, 2: 3.0, 1: 2.0}


@dataclass(frozen=True)
class Comparison:
    """Errors of one output against its reference."""

    passed: bool
    max_absolute_error: float
    max_relative_error: float
    bound_share: float
    """Largest error over what the tolerance allows: 1.0 is the limit."""
    honest_share: float
    """The same for the honest computation."""
    assert_close: bool
    """PyTorch's own per-dtype verdict, for the record; it decides nothing."""
    reason: str = ""


def factor(dtypes: list[torch.dtype], tolerance: Tolerance) -> float:
    """Return k: the tolerance's own, or that of the coarsest floating dtype among inputs and output."""
    if tolerance.k is not None:
        return tolerance.k
    sizes = [dtype.itemsize for dtype in dtypes if dtype.is_floating_point]
    return _FACTOR_BY_BYTES[min(sizes, default=4)]


def compare(
    out: torch.Tensor,
    reference: torch.Tensor,
    honest: torch.Tensor,
    tolerance: Tolerance,
    k: float,
) -> Comparison:
    """Compare an output with its reference.

    Args:
        out: in the dtype of the definition.
        reference: same shape, float64 (or the exact integers).
        honest: same shape, in the dtype of `out`.
    """
    if not out.dtype.is_floating_point:
        return _compare_exactly(out, reference, tolerance)
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0, 0.0, 0.0, True)
    # what the output's dtype itself cannot hold is infinite in the reference, too
    rounded = reference.to(out.dtype).to(torch.float64)
    # float8_e4m3fn has no infinity: it rounds one to its largest number
    finite = torch.isfinite(rounded) & torch.isfinite(reference.to(torch.float64))
    if reason := _compare_non_finite(out.to(torch.float64), rounded, finite):
        return Comparison(False, float("inf"), float("inf"), float("inf"), 0.0, False, reason)
    eps = torch.finfo(out.dtype).eps
    ref = torch.where(finite, reference, 0.0)
    error = _error(out, ref, finite)
    honest_error = _error(honest, ref, finite & torch.isfinite(honest.to(torch.float64)))
    scale = float(honest_error.max())
    bound = k * scale + 2 * eps * ref.abs()
    share = error / bound.clamp(min=torch.finfo(torch.float64).tiny)
    missed = int((share > 1).sum())
    norm_share = _ratio(
        float(error.norm()), k * float(honest_error.norm()) + eps * float(ref.norm())
    )
    passed = missed <= tolerance.mismatch_fraction * out.numel() and norm_share <= 1
    return Comparison(
        passed=passed,
        max_absolute_error=float(error.max()),
        max_relative_error=float((error / ref.abs().clamp(min=eps)).max()),
        bound_share=max(float(share.max()), norm_share),
        honest_share=float((honest_error / bound.clamp(min=1e-300)).max()),
        assert_close=_assert_close(out, rounded.to(out.dtype)),
        reason="" if passed else _describe(out, reference, share, missed, norm_share),
    )


def _error(out: torch.Tensor, ref: torch.Tensor, finite: torch.Tensor) -> torch.Tensor:
    return torch.where(finite, out.to(torch.float64) - ref, 0.0).abs()


def _ratio(value: float, bound: float) -> float:
    return 0.0 if value == 0 else value / bound if bound else float("inf")


def _compare_non_finite(out: torch.Tensor, rounded: torch.Tensor, finite: torch.Tensor) -> str:
    """Return what is wrong where either side is not finite; non-finite matches only the same non-finite."""
    same = (out == rounded) | (out.isnan() & rounded.isnan())
    stray = torch.where(finite, ~torch.isfinite(out), ~same)
    count = int(stray.sum())
    if not count:
        return ""
    at = int(stray.flatten().nonzero()[0])
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), out.shape))
    got, want = out.flatten()[at].item(), rounded.flatten()[at].item()
    return f"{count} of {out.numel()} elements are {got} where the reference is {want}; first at {index}"


def _describe(
    out: torch.Tensor, ref: torch.Tensor, share: torch.Tensor, missed: int, norm_share: float
) -> str:
    if not missed:
        return f"the error in norm is {norm_share:.3g} times what the tolerance allows"
    worst = int(share.flatten().argmax())
    first = int((share.flatten() > 1).nonzero()[0])
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), out.shape))
    return (
        f"{missed} of {out.numel()} elements miss the tolerance, first at {index}; worst: got "
        f"{out.flatten()[worst].item():.6g}, reference {ref.flatten()[worst].item():.6g}, "
        f"{share.flatten()[worst].item():.3g} times the bound"
    )


def _assert_close(out: torch.Tensor, rounded: torch.Tensor) -> bool:
    try:
        torch.testing.assert_close(out, rounded, equal_nan=True)
    except AssertionError:
        return False
    return True


def _compare_exactly(
    out: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> Comparison:
    """Integers and booleans match exactly, or lie one apart in the share that the tolerance grants."""
    if out.numel() == 0:
        return Comparison(True, 0.0, 0.0, 0.0, 0.0, True)
    difference = (out.to(torch.int64) - reference.to(torch.int64)).abs()
    missed, largest = int((difference > 0).sum()), int(difference.max())
    passed = missed == 0 or (largest <= 1 and missed <= tolerance.mismatch_fraction * out.numel())
    reason = "" if passed else f"{missed} of {out.numel()} elements differ, by up to {largest}"
    share = 0.0 if passed else float("inf")
    return Comparison(passed, float(largest), float(largest), share, 0.0, missed == 0, reason)
