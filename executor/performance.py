"""Turn samples into a Performance: rates, share of the roofs, ratios to the baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernel_skills.executor.models import Definition, Scalar, Workload
from kernel_skills.executor.roofline import achieved, percent_of_ceiling, roofline
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import BaselineTiming, Performance, Speed, Timing

_EQUAL_WITHIN = 0.02
_CLOCK_SLACK = 0.97
"""Events tick in half microseconds and boost clocks pass the data sheet's a little."""


def assess_performance(
    definition: Definition,
    workload: Workload,
    target: Target,
    answer: Mapping[str, Any],
    config: Mapping[str, Scalar],
) -> Performance | str:
    """Return the Performance of a measurement, or why the measurement cannot be true.

    Args:
        answer: what `Measurement.to_json` returned.
    """
    timing = Timing(**answer["timing"])
    line = roofline(definition, workload, target)
    if timing.median_ms < _CLOCK_SLACK * line.data_sheet_ms:
        return (
            f"{timing.median_ms:.4g} ms is less than the {line.data_sheet_ms:.4g} ms that the data sheet of "
            f"{target.name} allows: the work was not done, or not all of it"
        )
    baselines = _baselines(answer, timing.median_ms)
    rates = achieved(line, timing.median_ms)
    eager = next((b.timing for b in baselines if b.name == "eager"), None)
    # 0.0 is unknown, to FlashInfer-Bench, too
    reference_ms = eager.median_ms if eager else 0.0
    return Performance(
        latency_ms=timing.median_ms,
        reference_latency_ms=reference_ms,
        speedup_factor=reference_ms / timing.median_ms,
        timing=timing,
        method=answer["method"],
        baselines=baselines,
        tflops=rates["tflops"] if line.flops else None,
        gbps=rates["gbps"],
        bound_ms=line.bound_ms,
        percent_of_bound=100 * line.bound_ms / timing.median_ms,
        percent_of_ceiling=percent_of_ceiling(line, timing.median_ms),
        limited_by=line.limited_by,
        speed=_speed(baselines),
        config=config,
    )


def _baselines(answer: Mapping[str, Any], median_ms: float) -> tuple[BaselineTiming, ...]:
    measured = [
        BaselineTiming(name=name, timing=Timing(**timing), ratio=timing["median_ms"] / median_ms)
        for name, timing in answer["baselines"].items()
        if timing
    ]
    failed = [BaselineTiming(name=name, error=error) for name, error in answer["errors"].items()]
    return tuple(measured + failed)


def _speed(baselines: tuple[BaselineTiming, ...]) -> Speed:
    """Against the fastest that computes the same; a copy computes nothing."""
    ratios = [b.ratio for b in baselines if b.is_rival and b.ratio is not None]
    if not ratios:
        return "unmeasured"
    if min(ratios) >= 1 + _EQUAL_WITHIN:
        return "faster"
    return "slower" if min(ratios) <= 1 - _EQUAL_WITHIN else "equal"
