"""How `skills judge` shows a verdict: what was found, where, the mend, then the figures as `skills run` prints them."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_skills.cli.console import print_fields, print_line, print_table
from kernel_skills.cli.run_report import print_compiled, print_judged
from kernel_skills.executor.opinfo import OpInfoVerdict
from kernel_skills.executor.problem_batch import Line
from kernel_skills.executor.problem_judge import Verdict
from kernel_skills.executor.trace import Finding


def print_verdict(verdict: Verdict) -> None:
    """Print everything that is said of one solution."""
    level = f" at level {verdict.level}" if verdict.level else ""
    print_line(f"{verdict.verdict}: {verdict.solution} for {verdict.problem}{level}")
    print_fields(
        [
            ("outcome", verdict.outcome),
            ("why", "" if verdict.findings else verdict.log.strip()),
            ("policy", verdict.policy),
            ("target", verdict.target),
            ("sandbox", verdict.sandbox.level if verdict.sandbox else ""),
            ("seconds", ", ".join(f"{name} {s:.1f}" for name, s in verdict.seconds.items())),
        ]
    )
    for finding in verdict.findings:
        _print_finding(finding)
    if isinstance(verdict, OpInfoVerdict):
        _print_coverage(verdict)
    else:
        print_judged(verdict.workloads)
    print_compiled([(kernel, [verdict.solution]) for kernel in verdict.figures.kernels])
    _print_torch_share(verdict)
    print_line()
    for warning in verdict.warnings:
        print_line(f"mind: {warning}")
    for check in verdict.checks_not_run:
        print_line(f"not checked: {check}")
    if verdict.outcome == "TIMEOUT":
        print_line("a call gets more time by --timeout SECONDS")


def print_lines(lines: Iterable[Line]) -> None:
    """Print a folder's verdicts, one a row."""
    rows = []
    for line in lines:
        performance = line.verdict.figures.performance
        rows.append(
            (
                line.file, line.verdict.verdict, line.verdict.outcome,
                f"{performance.latency_ms:.4g}" if performance else "",
                f"{performance.speedup_factor:.3g}" if performance else "",
                line.verdict.log.strip().split("\n")[-1][:120],
            )
        )  # fmt: skip
    columns = ("file", "verdict", "outcome", "ms", "speed-up", "why")
    print_table(columns, rows, right=("ms", "speed-up"))


def _print_finding(finding: Finding) -> None:
    print_line(f"  {finding.path}:{finding.line}: {finding.rule}: {finding.reason}")
    if finding.mend:
        print_line(f"    mend: {finding.mend}")


def _print_torch_share(verdict: Verdict) -> None:
    """Under `assist`, say how much of the device time was torch's own, where it was measured."""
    share = getattr(verdict.figures, "torch_share", None)
    if share is not None:
        print_line(f"torch's own operators took {100 * share:.1f} % of the device time")


def _print_coverage(verdict: OpInfoVerdict) -> None:
    print_line()
    heads = ("dtype", "samples", "passed", "telling", "refused", "failed", "skipped", "not run")
    rows = [
        (c.dtype, c.samples, c.passed, c.telling, c.refused, c.failed, c.skipped, c.not_run)
        for c in verdict.coverage
    ]
    if rows:
        print_table(heads, rows, right=heads[1:])
    for text, count in verdict.refusals.items():
        print_line(f"refused {count}: {text}")
    for one in verdict.coverage:
        for reason, count in one.left_out.items():
            print_line(f"left out {count} of {one.dtype}: {reason}")
    failed = [j for j in verdict.workloads if j.evaluation.status not in ("PASSED", "SKIPPED")]
    for judged in failed[:5]:
        headline = judged.evaluation.log.strip().split("\n")[-1]
        if not headline.startswith("ValueError"):
            print_line(f"{judged.workload.name}: {judged.evaluation.status}: {headline}")
