"""Judge one Solution: lint, compile, verify, bench, each stage in its own processes. The parent runs no foreign code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, Literal

from pydantic import ValidationError

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.channel import ChannelError, PeerSilent
from kernel_skills.executor.device_state import load_before, warnings_of
from kernel_skills.executor.environment import Device, cpu_environment, device_environment
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.judgement import CheckResult, Judged, Judgement, JudgementCut
from kernel_skills.executor.lint import Policy, lint
from kernel_skills.executor.models import (
    Record,
    Scalar,
    Solution,
    Task,
    Workload,
    content_digest,
)
from kernel_skills.executor.performance import assess_performance
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.session import Session
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import (
    Correctness,
    DeviceState,
    Environment,
    Evaluation,
    Failed,
    Finding,
    IncorrectNumerical,
    KernelReport,
    LintRejected,
    Passed,
    Skipped,
)
from kernel_skills.executor.worker_process import Mode, Worker
from kernel_skills.executor.workload_values import definition_dtypes

Stage = Literal["lint", "compile", "verify", "bench"]
ALL_STAGES: tuple[Stage, ...] = ("lint", "compile", "verify", "bench")
Report = Callable[[str, int, int, str], None]
"""(stage, done, total, what) while work goes on."""

NOT_ON_CPU = (
    "speed: no device", "share of device time in torch: no device",
    "races within a program: the interpreter runs its elements in step",
)  # fmt: skip


class JudgeRequest(Record):
    """One Solution, the Task it claims to solve, and the Workloads to try it on."""

    task: Task
    solution: Solution
    workloads: tuple[Workload, ...]
    target: Target
    constraints: tuple[str, ...] = ()
    """The variant's own, obeyed by fuzzed shapes."""
    dtypes: tuple[str, ...] = ("float32",)
    """For the package's checks."""
    interpretable: bool = True
    calling: Calling = Calling()
    """How the entry is called; skills' own by default."""
    policy: Policy = "strict"
    config: Mapping[str, Scalar] = {}
    configs: Mapping[str, Mapping[str, Scalar]] = {}
    """Workload uuid -> tuned parameters; wins over `config`."""
    stages: tuple[Stage, ...] = ALL_STAGES
    cache: str = ""
    """Solutions with the same name here share compiled kernels: those of one package. Default: none share."""
    seed: int = 0
    """Public part joined with the secret by the caller."""
    timeout_s: float = 120.0
    """For one request to the candidate: import, first call with its compilation, one round of timing."""

    @property
    def compiled_cache(self) -> str:
        """Name of the cache of compiled kernels."""
        return self.cache or content_digest(self.solution)[:16]

    def config_for(self, workload: Workload) -> dict[str, Scalar]:
        return dict(self.configs.get(workload.uuid, self.config))


def judge(
    request: JudgeRequest,
    pool: Pool,
    device: Device | None,
    report: Report | None = None,
    session: Session | None = None,
) -> Judgement:
    """Judge a Solution.

    Args:
        device: the GPU to verify and measure on; None verifies in the interpreter and measures nothing.
        report: called as work goes on.
        session: one on the same Task and device, which stays open; None starts one for this run.

    Raises:
        JudgementCut: the Task's own code does not load or raises; of the rest nothing is known.
        WorkerError: a process of the harness did not start.
    """
    judging = _Judging(request, pool, device, report or (lambda *_: None))
    judging.open_session = session
    try:
        return judging.run()
    except InvalidPackage as error:
        raise JudgementCut(str(error), judging.found()) from error


class _Judging:
    """One run of `judge`: the request and what has been found so far."""

    def __init__(
        self, request: JudgeRequest, pool: Pool, device: Device | None, report: Report
    ) -> None:
        self._request, self._pool, self._device, self._report = request, pool, device, report
        found = device_environment(device) if device else cpu_environment()
        self._environment: Environment = found.model_copy(update={"sandbox": pool.sandbox})
        self._kernels: dict[str, tuple[KernelReport, ...]] = {}
        self._outcomes: dict[str, Evaluation] = {}
        self._checks: list[CheckResult] = []
        self._load: dict[str, Any] = {}
        self._compiling: list[Worker] = []
        self._stopped = False
        self.open_session: Session | None = None

    def run(self) -> Judgement:
        request = self._request
        findings: tuple[Finding, ...] = ()
        if "lint" in request.stages:
            dtypes = definition_dtypes(request.task.definition)
            findings = lint(request.solution, request.policy, dtypes)
        self._report("lint", 1, 1, request.solution.name)
        if findings:
            rejected = LintRejected(environment=self._environment, findings=findings)
            judged = tuple(Judged(workload=w, evaluation=rejected) for w in request.workloads)
            return Judgement(findings=findings, judged=judged)
        # the interpreter compiles nothing
        if "compile" in request.stages and request.target.backend != "cpu":
            self._compile()
        if "verify" in request.stages or "bench" in request.stages:
            self._verify_and_bench()
        return self.found()

    def found(self) -> Judgement:
        """Return what is known by now; a Workload that had no turn is SKIPPED."""
        judged = tuple(
            Judged(workload=w, evaluation=self._with_kernels(w, self._outcome(w)))
            for w in self._request.workloads
        )
        return Judgement(
            judged=judged, checks=tuple(self._checks), warnings=warnings_of(self._load)
        )

    def _outcome(self, workload: Workload) -> Evaluation:
        fallback = Skipped(environment=self._environment, reason="stage not asked for")
        return self._outcomes.get(workload.uuid, fallback)

    def _with_kernels(self, workload: Workload, outcome: Evaluation) -> Evaluation:
        return outcome.model_copy(update={"kernels": self._kernels.get(workload.uuid, ())})

    def _fail(self, workload: Workload, status: Any, log: str) -> None:
        self._outcomes[workload.uuid] = Failed(
            status=status, log=log, environment=self._environment
        )

    # --- compile ------------------------------------------------------------------------------

    def _compile(self) -> None:
        """Compile for the target on every core; each thread drives one compile worker."""
        workloads, alike = self._told_apart()
        jobs = max(1, min(self._pool.jobs, len(workloads)))
        done = 0
        with ThreadPoolExecutor(jobs) as executor:
            parts = [workloads[start::jobs] for start in range(jobs)]
            try:
                for compiled in executor.map(self._compile_part, parts):
                    done += len(compiled)
                    self._report("compile", done, len(workloads), self._request.solution.name)
                for workload, first in alike:
                    self._copy_compiled(workload, first)
            except BaseException:
                # Ctrl-C: the threads wait for answers that may be minutes away
                self._stopped = True
                for worker in self._compiling:
                    worker.kill()
                raise

    def _told_apart(self) -> tuple[list[Workload], list[tuple[Workload, Workload]]]:
        """Return the Workloads that the compiler sees a difference between, and each other with the one it is like."""
        firsts: dict[str, Workload] = {}
        alike = []
        for workload in self._request.workloads:
            shape = workload.model_dump(mode="json", include={"axes", "dtypes", "inputs"})
            key = json.dumps([shape, self._request.config_for(workload)], sort_keys=True)
            if firsts.setdefault(key, workload) is not workload:
                alike.append((workload, firsts[key]))
        return list(firsts.values()), alike

    def _copy_compiled(self, workload: Workload, first: Workload) -> None:
        if first.uuid in self._outcomes:
            self._outcomes[workload.uuid] = self._outcomes[first.uuid]
        if first.uuid in self._kernels:
            self._kernels[workload.uuid] = self._kernels[first.uuid]

    def _compile_part(self, workloads: list[Workload]) -> list[Workload]:
        worker = self._pool.start("compile", cache=self._request.compiled_cache)
        self._compiling.append(worker)
        try:
            loaded = worker.request(
                {
                    "solution": self._request.solution.model_dump(mode="json"),
                    "definition": self._request.task.definition.model_dump(mode="json"),
                    "target": self._request.target.model_dump(mode="json"),
                    "calling": self._request.calling.model_dump(mode="json"),
                },
                timeout_s=self._request.timeout_s,
            )
            for workload in workloads if not self._stopped else ():
                answer = loaded if "failed" in loaded else self._compile_one(worker, workload)
                self._keep_compiled(workload, answer)
        except ChannelError as error:
            how = worker.end_described(0.1)
            silent = isinstance(error, PeerSilent)
            status = "TIMEOUT" if silent else "COMPILE_ERROR"
            what = f"no answer within {self._request.timeout_s:g} s" if silent else error
            for workload in workloads:
                if workload.uuid not in self._kernels and workload.uuid not in self._outcomes:
                    self._fail(workload, status, f"while compiling: {what}{how}")
        finally:
            worker.end(0.1)
        return workloads

    def _keep_compiled(self, workload: Workload, answer: dict[str, Any]) -> None:
        try:
            if "failed" in answer:
                self._fail(workload, answer["failed"], str(answer["log"]))
            else:
                kernels = tuple(KernelReport.model_validate(k) for k in answer["kernels"])
                self._kernels[workload.uuid] = kernels
        except (ValidationError, KeyError, TypeError) as error:
            # foreign code runs in that process, too
            self._fail(workload, "CHEATING", f"malformed answer of the compile worker: {error}")

    def _compile_one(self, worker: Worker, workload: Workload) -> dict[str, Any]:
        message = {
            "workload": workload.model_dump(mode="json"), "config": self._request.config_for(workload),
        }  # fmt: skip
        return worker.request(message, timeout_s=self._request.timeout_s)

    # --- verify and bench ---------------------------------------------------------------------

    def _verify_and_bench(self) -> None:
        if self._device is None:
            for workload in self._request.workloads:
                if workload.purpose == "bench":
                    self._skip(workload, "no fitting GPU here: not measured")
                elif not self._request.interpretable:
                    self._skip(workload, "this variant does not run in Triton's interpreter")
            if not all(workload.uuid in self._outcomes for workload in self._request.workloads):
                with self._session("interpret", "cpu") as session:
                    self._verify_all(session)
            return
        with self._pool.gpu_lock(self._device.identity):
            if self.open_session is None or self.open_session.load is None:
                # before our own processes are on the device
                self._load = load_before(self._device.uuid)
            else:
                self._load = self.open_session.load
            if self.open_session is not None:
                self.open_session.load = self._load
            with self._session("device", self._device.place) as session:
                self._verify_all(session)
                self._bench_all(session)

    def _session(self, mode: Mode, place: str) -> AbstractContextManager[Session]:
        if self.open_session is not None:
            self.open_session.use(self._request, self._request.compiled_cache)
            return nullcontext(self.open_session)
        return closing(
            Session(self._request, self._pool, mode, place, self._request.compiled_cache)
        )

    def _skip(self, workload: Workload, reason: str) -> None:
        if workload.uuid not in self._outcomes:
            self._outcomes[workload.uuid] = Skipped(environment=self._environment, reason=reason)

    def _verify_all(self, session: Session) -> None:
        pending = [
            workload
            for workload in self._request.workloads
            if workload.purpose != "bench" and workload.uuid not in self._outcomes
        ]
        checks = session.list_checks()
        total = len(pending) + len(checks)
        for position, workload in enumerate(pending):
            self._report("verify", position, total, workload.name)
            answer = session.verify(workload)
            self._outcomes[workload.uuid] = self._verified(answer)
        for position, name in enumerate(checks):
            self._report("verify", len(pending) + position, total, name)
            answer = session.check(name)
            result = CheckResult(name=name, outcome=answer["outcome"], log=answer["log"])
            self._checks.append(result)
        if total:
            self._report("verify", total, total, "done")

    def _verified(self, answer: dict[str, Any]) -> Evaluation:
        status, log = answer["status"], answer.get("log", "")
        not_run = tuple(answer.get("checks_not_run", ()))
        rule, seconds = answer.get("rule", ""), answer.get("seconds", {})
        common: dict[str, Any] = {
            "environment": self._environment, "log": log, "seconds": seconds,
        }  # fmt: skip
        if self._device is None:
            not_run += NOT_ON_CPU
        match status:
            case "PASSED":
                return Passed(
                    level="verified-gpu" if self._device else "verified-cpu",
                    correctness=Correctness(**answer["correctness"]),
                    checks_not_run=not_run,
                    torch_share=answer.get("torch_share"),
                    torch_operators=answer.get("torch_operators", {}),
                    **common,
                )
            case "INCORRECT_NUMERICAL":
                return IncorrectNumerical(
                    correctness=Correctness(**answer["correctness"]), rule=rule, **common
                )
            case "SKIPPED":
                return Skipped(reason=log, environment=self._environment)
        return Failed(status=status, rule=rule, **common)

    def _bench_all(self, session: Session) -> None:
        """Measure only what has been verified: no speed is printed beside a wrong result."""
        pending = [
            workload
            for workload in self._request.workloads
            if workload.purpose == "bench" and workload.uuid not in self._outcomes
        ]
        wrong = [w.name for w in self._request.workloads if not self._fine(w)]
        wrong += [check.name for check in self._checks if check.outcome == "failed"]
        for position, workload in enumerate(pending):
            if wrong or "bench" not in self._request.stages:
                reason = f"not measured: {wrong[0]} failed" if wrong else "stage not asked for"
                self._skip(workload, reason)
                continue
            self._report("bench", position, len(pending), workload.name)
            answer = session.bench(workload, baselines=True)
            self._outcomes[workload.uuid] = self._benched(workload, answer)
        if pending:
            self._report("bench", len(pending), len(pending), "done")

    def _fine(self, workload: Workload) -> bool:
        outcome = self._outcomes.get(workload.uuid)
        return outcome is None or outcome.status in ("PASSED", "SKIPPED")

    def _benched(self, workload: Workload, answer: dict[str, Any]) -> Evaluation:
        outcome = self._verified(answer)
        if not isinstance(outcome, Passed):
            return outcome
        assert self._device is not None
        performance = assess_performance(
            self._request.task.definition, workload, self._device.target, answer,
            self._request.config_for(workload),
        )  # fmt: skip
        if isinstance(performance, str):
            return Failed(
                status="CHEATING", rule="R-roofline", log=performance, environment=self._environment
            )
        state = {**self._load, **(answer.get("device_state") or {})}
        environment = self._environment.model_copy(
            update={"device_state": DeviceState(**state) if state else None}
        )
        return outcome.model_copy(update={"performance": performance, "environment": environment})
