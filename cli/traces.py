"""`skills traces`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_skills.cli.options import AnyTarget, AsJson, SkillName
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.trace import Trace


def traces(
    context: typer.Context,
    name: SkillName,
    target: AnyTarget = None,
    workload: Annotated[
        str | None, typer.Option("--workload", "-w", metavar="NAME", help="Only this workload.")
    ] = None,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="STATUS", help="Only this outcome, e.g. PASSED."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """List the evidence of a skill, newest first.

    Reads the skill's own evidence and the data home; `stale` marks Traces of a variant that has changed since.

    Example: skills traces rms-norm --target h200 --status PASSED
    """
    from kernel_skills.cli.console import print_json, print_line, print_table
    from kernel_skills.executor.targets import find_target
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.evidence import evidence_of
    from kernel_skills.registry.trace_query import TraceQuery, select_traces

    skill = find_skill(name, settings_of(context).skills_dir)
    query = TraceQuery(
        target=find_target(target).name if target else None,
        workload=workload,
        status=status,
        limit=limit,
    )
    found = select_traces(skill, evidence_of(skill), query)
    if as_json:
        print_json([{"stale": item.stale, "trace": item.trace} for item in found])
    elif not found:
        print_line(f"no evidence of {skill.name} fits; `skills run {skill.name}` makes some")
    else:
        columns = (
            "when",
            "definition",
            "workload",
            "variant",
            "on",
            "status",
            "median ms",
            "ratio",
            "",
        )
        rows = [(*_cells(item.trace), "stale" if item.stale else "") for item in found]
        print_table(columns, rows, right=("median ms", "ratio"))
        if len(found) == limit:
            print_line(f"the newest {limit}; --limit shows more")


def _cells(trace: Trace) -> tuple[Any, ...]:
    from kernel_skills.executor.trace import Passed
    from kernel_skills.registry.figures import fastest_rival

    outcome = trace.evaluation
    performance = outcome.performance if isinstance(outcome, Passed) else None
    rival = fastest_rival(performance) if performance else None
    return (
        f"{outcome.timestamp:%Y-%m-%d %H:%M}" if outcome else "",
        trace.definition,
        trace.workload.name,
        trace.skill.variant if trace.skill else trace.solution,
        outcome.environment.target if outcome else "",
        outcome.status if outcome else "",
        f"{performance.latency_ms:.4f}" if performance else "",
        f"{rival.ratio:.2f}" if rival else "",
    )
