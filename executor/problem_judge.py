"""Judge solutions to a Problem: admit its Workloads once, then each solution by the one judge there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.judge import JudgeRequest
from kernel_skills.executor.judgement import Judged, Judgement
from kernel_skills.executor.lint import Policy
from kernel_skills.executor.models import Record, Solution
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.problem import Problem
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import (
    Failed,
    Finding,
    IncorrectNumerical,
    KernelReport,
    Passed,
    Performance,
    Sandbox,
    Skipped,
)

Level = Literal["verified-cpu", "verified-gpu"]

_ADMIT_TIMEOUT_S = 300.0


class TaskRefused(InvalidPackage):
    """The problem cannot tell a kernel from nothing, so no verdict on a kernel means anything."""


class Figures(Record):
    """What was found in numbers; speed only where there was a device."""

    max_relative_error: float | None = None
    max_absolute_error: float | None = None
    bound_share: float | None = None
    """Largest error over what the tolerance allows."""
    comparisons: int = 0
    performance: Performance | None = None
    torch_share: float | None = None
    """Of a call's device time, what torch's operators take; none where there was no device."""
    torch_operators: Mapping[str, int] = {}
    """Operators of torch that computed in one call, with how often; empty under `strict`."""
    kernels: tuple[KernelReport, ...] = ()


class Verdict(Record):
    """What `skills judge` says of one solution."""

    problem: str
    solution: str
    verdict: Literal["accepted", "rejected"]
    outcome: str
    """A status of `trace.Evaluation`, or TASK_REFUSED."""
    log: str = ""
    findings: tuple[Finding, ...] = ()
    checks_not_run: tuple[str, ...] = ()
    figures: Figures = Figures()
    policy: Policy = "strict"
    level: Level | None = None
    """How far an accepted solution was verified; none where it was not."""
    target: str
    workloads: tuple[Judged, ...] = ()
    warnings: tuple[str, ...] = ()
    seconds: Mapping[str, float] = {}
    """Wall time by phase, where the caller kept it."""
    sandbox: Sandbox | None = None
    """What held the workers; none where the task was refused."""

    @property
    def accepted(self) -> bool:
        return self.verdict == "accepted"


def admit(problem: Problem, pool: Pool, place: str, seed: int) -> tuple[str, ...]:
    """Check that the problem's Workloads tell a kernel from nothing; return what is to be said of the others.

    A `smoke` Workload must tell. An `edge` one need not: where every key is masked out, zeros are the right answer.

    Raises:
        TaskRefused: zeros, the mean, an input or another output pass, or an input has no influence.
        InvalidPackage: the reference does not load or run.
    """
    worker = pool.start("task")
    notes = []
    try:
        _asked(
            worker, {"op": "open", "device": place, "task": problem.task.model_dump(mode="json")}
        )
        for workload in problem.workloads:
            # the kinds of values of a problem are made from one draw, which is admitted
            if workload.purpose == "bench" or (
                problem.form != "skill" and workload.purpose == "edge"
            ):
                continue
            message = {"op": "admit", "workload": workload.model_dump(mode="json"), "seed": seed}
            refusal = _asked(worker, message)["refusal"]
            if refusal and workload.purpose == "smoke":
                raise TaskRefused(
                    f"the task {problem.name} is refused: {refusal} ({workload.name})"
                )
            if refusal:
                notes.append(f"{workload.name} tells nothing apart: {refusal}")
    except ChannelError as error:
        raise InvalidPackage(
            f"the reference of {problem.name} ended its process: {error}"
        ) from error
    finally:
        worker.end(0.1)
    return tuple(notes)


def _asked(worker: Any, message: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = worker.request(message, timeout_s=_ADMIT_TIMEOUT_S)
    if "failed" in answer:
        raise InvalidPackage(f"the problem does not run: {answer['log']}")
    return answer


def refused(problem: Problem, solution: str, target: Target, policy: Policy, why: str) -> Verdict:
    """Return the verdict where the task was refused: nothing can be accepted against it."""
    finding = Finding(
        rule="R-problem", path="problem", line=1, reason=why,
        mend="let the output depend on every input by more than the tolerance",
    )  # fmt: skip
    return Verdict(
        problem=problem.name, solution=solution, verdict="rejected", outcome="TASK_REFUSED",
        log=why, findings=(finding,), policy=policy, target=target.name,
    )  # fmt: skip


def request_of(
    problem: Problem,
    solution: Solution,
    calling: Calling,
    target: Target,
    seed: int,
    timeout_s: float,
    policy: Policy,
) -> JudgeRequest:
    return JudgeRequest(
        task=problem.task, solution=solution, workloads=problem.workloads, target=target,
        calling=calling, dtypes=problem.dtypes, seed=seed, timeout_s=timeout_s, policy=policy,
    )  # fmt: skip


def rejected_early(
    problem: Problem, request: JudgeRequest, prepared: Judgement, policy: Policy
) -> Verdict | None:
    """Return the verdict where lint or compiler said no; None where verification may go on."""
    if any(item.evaluation.status != "SKIPPED" for item in prepared.judged):
        return verdict_of(problem, request, prepared, policy)
    return None


def verdict_of(
    problem: Problem,
    request: JudgeRequest,
    judgement: Judgement,
    policy: Policy,
    notes: Sequence[str] = (),
    prepared: Judgement | None = None,
) -> Verdict:
    """Sum a Judgement up: accepted where all that ran passed and every verification ran.

    Args:
        notes: what admission had to say; goes into `checks_not_run`.
        prepared: the Judgement of lint and compile, for its kernel reports.
    """
    outcome, log = _outcome(judgement)
    passed = [j.evaluation for j in judgement.judged if isinstance(j.evaluation, Passed)]
    accepted = outcome == "PASSED"
    not_run = dict.fromkeys((*problem.checks_not_run, *notes))
    for item in judgement.judged:
        not_run.update(dict.fromkeys(item.evaluation.checks_not_run))
        if isinstance(item.evaluation, Skipped):
            not_run[f"{item.workload.name}: {item.evaluation.reason}"] = None
    return Verdict(
        problem=problem.name, solution=request.solution.name,
        verdict="accepted" if accepted else "rejected", outcome=outcome, log=log,
        findings=_findings(request, judgement), checks_not_run=tuple(not_run) if passed else (),
        figures=_figures(judgement, prepared or judgement), policy=policy,
        level=passed[0].level if accepted and passed else None, target=request.target.name,
        workloads=judgement.judged, warnings=judgement.warnings,
        sandbox=judgement.judged[0].evaluation.environment.sandbox if judgement.judged else None,
    )  # fmt: skip


def _findings(request: JudgeRequest, judgement: Judgement) -> tuple[Finding, ...]:
    """Return what the lint found, or the first check of the runtime that was not passed."""
    if judgement.findings:
        return judgement.findings
    for item in judgement.judged:
        evaluation = item.evaluation
        if isinstance(evaluation, Failed | IncorrectNumerical) and evaluation.rule:
            path = request.solution.spec.entry_point.partition("::")[0]
            reason = f"{item.workload.name}: {evaluation.log.strip()}"
            return (Finding(rule=evaluation.rule, path=path, line=1, reason=reason),)
    return ()


def _outcome(judgement: Judgement) -> tuple[str, str]:
    """Return the first failure with its log, SKIPPED where a verification did not run, or PASSED."""
    for item in judgement.judged:
        evaluation = item.evaluation
        if evaluation.status == "LINT_REJECTED":
            return evaluation.status, str(judgement.findings[0])
        if evaluation.status not in ("PASSED", "SKIPPED"):
            return evaluation.status, f"{item.workload.name}: {evaluation.log}"
    if failed := [check for check in judgement.checks if check.outcome == "failed"]:
        return "INCORRECT_NUMERICAL", f"{failed[0].name}: {failed[0].log}"
    verified = [item for item in judgement.judged if item.workload.purpose != "bench"]
    for item in verified:
        if isinstance(item.evaluation, Skipped) and item.workload.purpose == "smoke":
            return "SKIPPED", f"{item.workload.name}: {item.evaluation.reason}"
    if not any(isinstance(item.evaluation, Passed) for item in verified):
        return "SKIPPED", "nothing was verified"
    return "PASSED", ""


def _figures(judgement: Judgement, prepared: Judgement) -> Figures:
    passed = [j.evaluation for j in judgement.judged if isinstance(j.evaluation, Passed)]
    kernels: tuple[KernelReport, ...] = next(
        (j.evaluation.kernels for j in prepared.judged if j.evaluation.kernels), ()
    )
    if not passed:
        return Figures(kernels=kernels)
    measured = [e.performance for e in passed if e.performance]
    correct = [e.correctness for e in passed]
    return Figures(
        max_relative_error=max(c.max_relative_error for c in correct),
        max_absolute_error=max(c.max_absolute_error for c in correct),
        bound_share=max(float(c.extra.get("bound_share") or 0.0) for c in correct),
        comparisons=sum(int(c.extra.get("comparisons") or 0) for c in correct),
        performance=measured[0] if measured else None,
        torch_share=next((e.torch_share for e in passed if e.torch_share is not None), None),
        torch_operators={n: c for e in passed for n, c in e.torch_operators.items()},
        kernels=kernels,
    )
