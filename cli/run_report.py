"""How a run is shown to a person: one table per variant, then what was quoted, then what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kernel_skills.cli.console import print_fields, print_line, print_table
from kernel_skills.executor.judgement import Judged
from kernel_skills.executor.trace import (
    Correctness,
    Evaluation,
    IncorrectNumerical,
    KernelReport,
    LintRejected,
    Passed,
    Performance,
    Skipped,
    Trace,
)
from kernel_skills.registry.run import SkillRun, VariantRun


def print_run(outcome: SkillRun) -> None:
    """Print everything that one `skills run` found."""
    print_fields(
        [
            ("skill", f"{outcome.skill} {outcome.version} ({outcome.source})"),
            ("target", f"{outcome.target.name}: {outcome.target.title}, {outcome.target.arch}"),
            ("here", outcome.note),
        ]
    )
    for run in outcome.runs:
        print_line()
        print_line(f"{run.definition}, variant {run.variant}: {run.why}")
        for rejection in run.rejected:
            print_line(f"  not {rejection.variant.id}: {rejection.reason}")
        for warning in run.judgement.warnings:
            print_line(f"  mind: {warning}")
        print_judged(run.judgement.judged)
        print_compiled(_distinct(run.judgement.judged))
        _print_checks(run)
        _print_quoted(run)
        _print_failures(run)
    print_line()
    print_line(outcome.verdict)


def print_judged(judged: Sequence[Judged]) -> None:
    """Print what was measured, then what was verified and not measured."""
    _print_measured(judged)
    _print_verified(judged)


# --- measured ---------------------------------------------------------------------------------


def _print_measured(items: Sequence[Judged]) -> None:
    rows = [
        _measured_row(judged.workload.name, judged.evaluation, judged.evaluation.performance)
        for judged in items
        if isinstance(judged.evaluation, Passed) and judged.evaluation.performance is not None
    ]
    if rows:
        print_line()
        print_table(_MEASURED, rows, right=_MEASURED[1:-1])


_MEASURED = (
    "measured", "median ms", "p20", "p80", "rate", "% ceiling", "% bound", "error/limit", "times as fast as",
)  # fmt: skip


def _measured_row(name: str, passed: Passed, performance: Performance | None) -> tuple[object, ...]:
    assert performance is not None
    timing = performance.timing
    return (
        name, f"{timing.median_ms:.4g}", f"{timing.p20_ms:.4g}", f"{timing.p80_ms:.4g}",
        rate(performance), f"{performance.percent_of_ceiling:.1f}", f"{performance.percent_of_bound:.1f}",
        _error(passed.correctness), ratios(performance),
    )  # fmt: skip


def rate(performance: Performance) -> str:
    """Return the rate that matters: TFLOP/s where compute binds, GB/s where memory does."""
    if performance.limited_by == "compute" and performance.tflops is not None:
        return f"{performance.tflops:.0f} TFLOP/s"
    return f"{performance.gbps:.0f} GB/s"


def ratios(performance: Performance) -> str:
    """Return every baseline with its ratio: above 1 the kernel is faster."""
    parts = [
        f"{b.name} {b.ratio:.3f}" if b.ratio is not None else f"{b.name} failed"
        for b in performance.baselines
    ]
    return ", ".join(parts) or "no baseline"


def _error(correctness: Correctness) -> str:
    share = correctness.extra.get("bound_share")
    largest = f"{correctness.max_absolute_error:.2g}"
    return f"{largest} ({float(share):.2f})" if share is not None else largest


# --- verified and compiled --------------------------------------------------------------------


def _print_verified(items: Sequence[Judged]) -> None:
    rows: list[tuple[str, str, str, str]] = []
    skipped: dict[str, list[str]] = {}
    for judged in items:
        evaluation = judged.evaluation
        if isinstance(evaluation, Skipped):
            skipped.setdefault(evaluation.reason, []).append(judged.workload.name)
        elif not (isinstance(evaluation, Passed) and evaluation.performance):
            rows.append((judged.workload.name, judged.workload.purpose, *_verdict(evaluation)))
    if rows:
        print_line()
        print_table(("workload", "purpose", "verdict", "error/limit or reason"), rows)
    if skipped:
        print_line()
    for reason, names in skipped.items():
        print_line(f"SKIPPED {len(names)} ({', '.join(names)}): {reason}")


def _verdict(evaluation: Evaluation) -> tuple[str, str]:
    if isinstance(evaluation, Passed):
        return evaluation.level, _error(evaluation.correctness)
    if isinstance(evaluation, IncorrectNumerical):
        return evaluation.status, _error(evaluation.correctness)
    if isinstance(evaluation, Skipped):
        return evaluation.status, evaluation.reason
    return evaluation.status, "see below"


def print_compiled(distinct: Sequence[tuple[KernelReport, list[str]]]) -> None:
    """Print compiled kernels, each with the names of the workloads that launch it."""
    if not distinct:
        return
    print_line()
    heads = (
        "compiled", "workloads", "warps", "regs", "spill B", "shared B", "occupancy", "machine code",
    )  # fmt: skip
    rows = [
        (
            report.kernel, _some(names), report.num_warps, report.registers,
            report.spill_bytes, report.shared_bytes, _percent(report.occupancy), _mix(report),
        )
        for report, names in distinct
    ]  # fmt: skip
    print_table(heads, rows, right=heads[2:7])
    # in words below: a warning of ptxas is longer than a terminal is wide
    for report, names in distinct:
        for warning in report.warnings:
            print_line(f"warning, {report.kernel}, {_some(names)}: {warning}")


def _distinct(judged: Iterable[Judged]) -> list[tuple[KernelReport, list[str]]]:
    """Return reports that differ in more than compile time and constants, with the workloads of each."""
    seen: dict[str, tuple[KernelReport, list[str]]] = {}
    for item in judged:
        for report in item.evaluation.kernels:
            shown = report.model_dump_json(exclude={"compile_seconds", "constants"})
            names = seen.setdefault(shown, (report, []))[1]
            if item.workload.name not in names:
                names.append(item.workload.name)
    return list(seen.values())


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


_TELLING = (
    "wgmma",
    "tcgen05",
    "mma",
    "mfma",
    "tma_load",
    "tma_store",
    "async_copy",
    "local_memory",
)


def _mix(report: KernelReport) -> str:
    counts = report.instructions
    return " ".join(f"{name}:{counts[name]}" for name in _TELLING if counts.get(name))


# --- checks, evidence, failures ---------------------------------------------------------------


def _print_checks(run: VariantRun) -> None:
    checks = run.judgement.checks
    if checks:
        counts = Counter(check.outcome for check in checks)
        line = f"checks of validate.py: {counts['passed']} of {len(checks)} passed"
        skipped = counts["skipped"]
        print_line(f"{line}, {skipped} outside what the variant takes" if skipped else line)


def _print_quoted(run: VariantRun) -> None:
    not_measured = [
        judged.workload
        for judged in run.judgement.judged
        if judged.workload.purpose == "bench" and judged.evaluation.status == "SKIPPED"
    ]
    if not not_measured:
        return
    print_line()
    if not run.quoted:
        print_line(
            f"no evidence of {run.variant} on this architecture: nothing is known of its speed"
        )
        return
    rows_by_place: dict[str, list[tuple[object, ...]]] = {}
    for workload in not_measured:
        if workload.uuid in run.quoted:
            place, row = _quoted_row(workload.name, run.quoted[workload.uuid])
            rows_by_place.setdefault(place, []).append(row)
    for place, rows in rows_by_place.items():
        print_line(f"evidence, measured on {place}")
        columns = ("evidence", "median ms", "rate", "times as fast as")
        print_table(columns, rows, right=columns[1:2])


def _quoted_row(name: str, trace: Trace) -> tuple[str, tuple[object, ...]]:
    """Return where and when it was measured, and the row."""
    evaluation = trace.evaluation
    assert isinstance(evaluation, Passed) and evaluation.performance is not None
    environment, performance = evaluation.environment, evaluation.performance
    libs = environment.libs
    place = (
        f"{environment.hardware} on {evaluation.timestamp:%Y-%m-%d} "
        f"with torch {libs.get('torch')}, Triton {libs.get('triton')}"
    )
    row = (name, f"{performance.latency_ms:.4g}", rate(performance), ratios(performance))
    return place, row


def _print_failures(run: VariantRun) -> None:
    """Print each thing that went wrong once, with the names of all that it struck."""
    struck: dict[str, list[str]] = {}
    for judged in run.judgement.judged:
        evaluation = judged.evaluation
        if isinstance(evaluation, LintRejected):
            for finding in evaluation.findings:
                struck.setdefault(str(finding), [])
        elif not isinstance(evaluation, Passed | Skipped):
            what = f"{evaluation.status}: {evaluation.log}"
            struck.setdefault(what, []).append(judged.workload.name)
    for check in run.judgement.checks:
        if check.outcome == "failed":
            struck.setdefault(check.log, []).append(check.name)
    if struck:
        print_line()
    for what, names in struck.items():
        print_line(f"{_struck(names, run)}: {what}" if names else what)
    if any("TIMEOUT: " in what for what in struck):
        print_line("a call gets more time by --timeout SECONDS")


def _struck(names: list[str], run: VariantRun) -> str:
    every = [judged.workload.name for judged in run.judgement.judged]
    return f"all {len(every)} workloads" if names == every and len(every) > 1 else ", ".join(names)
