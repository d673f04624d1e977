"""Select Traces of a skill by chip, workload and outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import get_args

from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.trace import FailedStatus, Trace
from kernel_skills.registry.evidence import current_digests
from kernel_skills.registry.models import Skill

STATUSES = ("PASSED", "LINT_REJECTED", "INCORRECT_NUMERICAL", "SKIPPED", *get_args(FailedStatus))


@dataclass(frozen=True)
class TraceQuery:
    """What is asked for; None takes all."""

    target: str | None = None
    workload: str | None = None
    status: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class FoundTrace:
    trace: Trace
    stale: bool
    """Of a variant that has changed since, or is gone."""


def select_traces(
    skill: Skill, traces: Iterable[Trace], query: TraceQuery
) -> tuple[FoundTrace, ...]:
    """Return the Traces that fit, newest first.

    Raises:
        NotFound: no such workload in the skill or its evidence, or no such status.
    """
    known = list(traces)
    _check(skill, known, query)
    digests = current_digests(skill)
    fitting = sorted((trace for trace in known if _fits(trace, query)), key=_when, reverse=True)
    return tuple(
        FoundTrace(trace, trace.skill is None or trace.skill.variant_digest not in digests)
        for trace in fitting[: query.limit]
    )


def _check(skill: Skill, traces: list[Trace], query: TraceQuery) -> None:
    if query.status is not None and query.status.upper() not in STATUSES:
        raise NotFound.named("status", query.status, STATUSES)
    workloads = {w.name for w in skill.manifest.workload} | {t.workload.name for t in traces}
    if query.workload is not None and query.workload not in workloads:
        raise NotFound.named(f"workload in {skill.name}", query.workload, workloads)


def _fits(trace: Trace, query: TraceQuery) -> bool:
    outcome = trace.evaluation
    return (
        query.workload in (None, trace.workload.name)
        and (
            query.target is None
            or (outcome is not None and outcome.environment.target == query.target)
        )
        and (
            query.status is None or (outcome is not None and outcome.status == query.status.upper())
        )
    )


def _when(trace: Trace) -> datetime:
    if trace.evaluation is None:
        return datetime.min.replace(tzinfo=UTC)
    moment = trace.evaluation.timestamp
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
