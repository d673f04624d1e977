"""Measured figures of a skill, taken from its evidence: what tables, pages and listings quote."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.models import Definition, Record
from kernel_skills.executor.roofline import roofline
from kernel_skills.executor.targets import find_target
from kernel_skills.executor.trace import COPY, BaselineTiming, Passed, Performance, Trace
from kernel_skills.registry.evidence import current_evidence
from kernel_skills.registry.models import Skill


class Figure(Record):
    """One measurement of a variant as it is now."""

    definition: str
    workload: str
    variant: str
    target: str
    """The chip that it ran on, whatever was asked for."""
    hardware: str
    latency_ms: float
    p20_ms: float
    p80_ms: float
    tflops: float | None
    gbps: float
    limited_by: str
    percent_of_ceiling: float
    percent_of_bound: float
    rival: str = ""
    """The fastest baseline; empty where none was timed."""
    ratio: float | None = None
    """Its median over the variant's: above 1 the variant is faster."""
    share_of_copy: float | None = None
    """Median of a device copy of the same bytes over the variant's."""
    max_relative_error: float
    toolchain: str
    """`torch 2.11.0, triton 3.6.0`."""
    measured: datetime

    @property
    def headline(self) -> str:
        """The figure of the ceiling that binds, e.g. `4105 GB/s, 96 % of ceiling, h200`."""
        compute = self.limited_by == "compute" and self.tflops is not None
        rate = f"{self.tflops:.3g} TFLOP/s" if compute else f"{self.gbps:.0f} GB/s"
        return f"{rate}, {self.percent_of_ceiling:.0f} % of ceiling, {self.target}"


def figures_of(skill: Skill, traces: Iterable[Trace] | None = None) -> tuple[Figure, ...]:
    """Return the newest measurement of each definition, workload, variant and chip.

    Args:
        traces: evidence to read; default: everything current of the skill.
    """
    newest: dict[tuple[str, ...], Figure] = {}
    definitions = {definition.name: definition for definition in skill.manifest.definition}
    for trace in current_evidence(skill) if traces is None else traces:
        figure = _figure(trace, definitions.get(trace.definition))
        if figure is None:
            continue
        key = (figure.definition, trace.workload.uuid, figure.variant, figure.target)
        if key not in newest or figure.measured >= newest[key].measured:
            newest[key] = figure
    return tuple(
        sorted(newest.values(), key=lambda f: (f.definition, f.workload, f.target, f.variant))
    )


def best_figure(figures: Iterable[Figure]) -> Figure | None:
    """Return the figure that comes closest to its ceiling."""
    return max(figures, key=lambda figure: figure.percent_of_ceiling, default=None)


def fastest_rival(performance: Performance) -> BaselineTiming | None:
    """Return the baseline that ran fastest in the same run; the copy is none."""
    timed = [b for b in performance.baselines if b.is_rival and b.ratio is not None]
    return min(timed, key=lambda baseline: baseline.ratio or 0.0, default=None)


def _shares(
    trace: Trace, performance: Performance, definition: Definition | None, target: str
) -> tuple[float, float]:
    """Return percent of ceiling and of bound by the ceilings as they are known now.

    A Trace keeps those of its day: where a higher ceiling has been measured since, a kernel stood at 111 % of it.
    """
    try:
        chip = find_target(target)
    except NotFound:
        chip = None
    if definition is None or chip is None:
        return performance.percent_of_ceiling, performance.percent_of_bound
    line = roofline(definition, trace.workload, chip)
    rate, ceiling = performance.gbps, line.ceiling_gbps
    if line.limited_by == "compute" and performance.tflops and line.ceiling_tflops:
        rate, ceiling = performance.tflops, line.ceiling_tflops
    return 100 * rate / ceiling, 100 * line.bound_ms / performance.latency_ms


def _figure(trace: Trace, definition: Definition | None) -> Figure | None:
    outcome = trace.evaluation
    if not isinstance(outcome, Passed) or outcome.performance is None or trace.skill is None:
        return None
    performance = outcome.performance
    copies = [b.ratio for b in performance.baselines if b.name == COPY]
    rival = fastest_rival(performance)
    libs = outcome.environment.libs
    target = outcome.environment.target
    of_ceiling, of_bound = _shares(trace, performance, definition, target)
    return Figure(
        definition=trace.definition,
        workload=trace.workload.name,
        variant=trace.skill.variant,
        target=target,
        hardware=outcome.environment.hardware,
        latency_ms=performance.latency_ms,
        p20_ms=performance.timing.p20_ms,
        p80_ms=performance.timing.p80_ms,
        tflops=performance.tflops,
        gbps=performance.gbps,
        limited_by=performance.limited_by,
        percent_of_ceiling=of_ceiling,
        percent_of_bound=of_bound,
        rival=rival.name if rival else "",
        ratio=rival.ratio if rival else None,
        share_of_copy=copies[0] if copies else None,
        max_relative_error=outcome.correctness.max_relative_error,
        toolchain=", ".join(f"{name} {libs[name]}" for name in ("torch", "triton") if name in libs),
        measured=outcome.timestamp,
    )
