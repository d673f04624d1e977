"""The roofline of a run: measured points, else quoted ones, each with its baselines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.models import Definition, Workload
from kernel_skills.executor.roofline import rate_dtype, roofline
from kernel_skills.executor.roofline_plot import RooflinePoint, draw_roofline
from kernel_skills.executor.targets import Target, find_target
from kernel_skills.executor.trace import Passed, Performance
from kernel_skills.registry.discovery import load_skill
from kernel_skills.registry.home import data_home
from kernel_skills.registry.run import SkillRun, VariantRun


def draw_run(outcome: SkillRun, path: Path) -> Path:
    """Draw what was measured, or the evidence that was quoted, and return the file.

    Raises:
        UsageError: there is no figure to draw.
    """
    target = outcome.device.target if outcome.device else outcome.target
    definitions = {d.name: d for d in load_skill(outcome.path, outcome.source).manifest.definition}
    points: list[RooflinePoint] = []
    for run in outcome.runs:
        for workload, performance, chip in _performances(run, target):
            points.extend(
                _points(definitions[run.definition], workload, performance, run.variant, chip)
            )
            target = chip
    if not points:
        raise UsageError("--plot: nothing was measured and there is no evidence to draw")
    # matplotlib's list of fonts would else go to ~/.cache, where nothing of this project is written
    os.environ.setdefault("MPLCONFIGDIR", str(data_home() / "matplotlib"))
    draw_roofline(points, target, path)
    return path


def _performances(
    run: VariantRun, target: Target
) -> Iterator[tuple[Workload, Performance, Target]]:
    for judged in run.judgement.judged:
        if isinstance(judged.evaluation, Passed) and judged.evaluation.performance:
            yield judged.workload, judged.evaluation.performance, target
    for trace in run.quoted.values():
        evaluation = trace.evaluation
        if isinstance(evaluation, Passed) and evaluation.performance:
            yield trace.workload, evaluation.performance, find_target(evaluation.environment.target)


def _points(
    definition: Definition,
    workload: Workload,
    performance: Performance,
    variant: str,
    target: Target,
) -> Iterator[RooflinePoint]:
    line = roofline(definition, workload, target)
    dtype = rate_dtype(definition, workload)
    yield RooflinePoint(
        workload.name, variant, line.intensity, line.flops / (performance.latency_ms * 1e9), dtype
    )
    for baseline in performance.baselines:
        if baseline.is_rival and baseline.timing is not None:
            rate = line.flops / (baseline.timing.median_ms * 1e9)
            yield RooflinePoint(
                workload.name, baseline.name, line.intensity, rate, dtype, baseline=True
            )
