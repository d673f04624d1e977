"""Judge the solutions to one Problem: one, or a folder of them, with everything that is common done once."""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from kernel_skills.executor.environment import Device, find_device
from kernel_skills.executor.errors import DeviceQuarantined, InvalidPackage, NoDevice, NotFound
from kernel_skills.executor.judge import JudgeRequest, Report, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.lint import Policy
from kernel_skills.executor.models import Record
from kernel_skills.executor.pool import LocalPool, Pool
from kernel_skills.executor.problem import Problem, load_problem
from kernel_skills.executor.problem_judge import (
    Verdict,
    admit,
    rejected_early,
    request_of,
    verdict_of,
)
from kernel_skills.executor.problem_solution import interpretable, load_solution
from kernel_skills.executor.run_journal import Pledge, RunJournal
from kernel_skills.executor.sandbox import SandboxChoice
from kernel_skills.executor.seeds import secret_seed
from kernel_skills.executor.session import AHEAD, Session
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import now
from kernel_skills.executor.worker_process import Mode


class JudgesOptions(Record):
    policy: Policy = "strict"
    device: int = 0
    seed: int = 0
    timeout_s: float = 60.0
    sandbox: SandboxChoice = "embedded"


class Line(Record):
    """One line of a folder's results."""

    digest: str
    """SHA-256 of problem, solution, target and policy: the same again is not judged again."""
    file: str
    timestamp: datetime = Field(default_factory=now)
    verdict: Verdict


class Judges:
    """An admitted Problem, with the processes that judge solutions to it. Use as a context manager."""

    def __init__(self, target: Target, options: JudgesOptions) -> None:
        self._asked, self._options = target, options
        self._stack = contextlib.ExitStack()
        self.pool: Pool = self._stack.enter_context(LocalPool(sandbox=options.sandbox))
        self.device = self._fitting_device()
        # both start now: importing torch takes seconds
        if isinstance(self.pool, LocalPool):
            self.pool.warm(*(("device",) if self.device else ("device", "interpret")))
        self.seed, _ = secret_seed(options.seed)
        self._session: Session | None = None
        self._notes: tuple[str, ...] = ()
        self._problem: Problem | None = None
        self._entries: tuple[str, ...] = ()

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._stack.close()

    @property
    def place(self) -> str:
        return self.device.place if self.device else "cpu"

    @property
    def target(self) -> Target:
        """The chip that is judged for: where a fitting one is here, that one."""
        return self.device.target if self.device else self._asked

    @property
    def problem(self) -> Problem:
        assert self._problem is not None, "a problem is loaded first"
        return self._problem

    def load(
        self,
        path: Path,
        axes: Mapping[str, int],
        *,
        workloads: Path | None = None,
        precision: str = "fp32",
    ) -> Problem:
        """Read a problem file; see `load_problem`."""
        self._forget()
        self._problem = load_problem(path, self.pool, self.place, axes, workloads, precision)
        self._entries = ()
        return self._problem

    def take(self, problem: Problem, entries: tuple[str, ...]) -> None:
        """Take a problem that is there already; `entries` are further names that a solution's entry may have."""
        self._forget()
        self._problem, self._entries = problem, entries

    def _forget(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session, self._notes = None, ()

    def admit(self) -> None:
        """Admit the problem.

        Raises:
            TaskRefused: it cannot tell a kernel from nothing.
        """
        self._notes = admit(self.problem, self.pool, self.place, self.seed)

    def request(self, file: Path) -> JudgeRequest:
        solution, calling = load_solution(file, self.problem, self.target.arch, self._entries)
        return request_of(
            self.problem, solution, calling, self.target, self.seed, self._options.timeout_s,
            self._options.policy,
        ).model_copy(update={"interpretable": interpretable(solution)})  # fmt: skip

    def prepare(self, request: JudgeRequest) -> Judgement:
        """Lint and compile; any number of these may run at a time."""
        early = request.model_copy(update={"stages": ("lint", "compile")})
        return judge(early, self.pool, self.device)

    def lint(self, request: JudgeRequest) -> Judgement:
        """Lint alone: no process is needed."""
        return judge(request.model_copy(update={"stages": ("lint",)}), self.pool, self.device)

    def rejected(self, request: JudgeRequest, prepared: Judgement) -> Verdict | None:
        """Return the verdict where lint or compiler said no."""
        return rejected_early(self.problem, request, prepared, self._options.policy)

    def finish(
        self, request: JudgeRequest, prepared: Judgement, report: Report | None = None
    ) -> Verdict:
        """Verify and measure what was prepared; one at a time."""
        if early := self.rejected(request, prepared):
            return early
        start = time.perf_counter()
        late = _late(request)
        session = self._opened(late)
        judgement = judge(late, self.pool, self.device, report, session)
        verdict = verdict_of(
            self.problem, late, judgement, self._options.policy, self._notes, prepared
        )  # fmt: skip
        seconds = {"total": time.perf_counter() - start, "start": session.seconds_waited}
        for item in judgement.judged:
            for phase, spent in item.evaluation.seconds.items():
                seconds[phase] = seconds.get(phase, 0.0) + spent
        rounded = {phase: round(spent, 4) for phase, spent in seconds.items()}
        return verdict.model_copy(update={"seconds": {**verdict.seconds, **rounded}})

    def _opened(self, request: JudgeRequest) -> Session:
        """Return the one session of the problem, whose task worker keeps inputs and results."""
        if self._session is None:
            mode: Mode = "device" if self.device else "interpret"
            self._session = Session(request, self.pool, mode, self.place, "", keep=True)
        return self._session

    def _look_ahead(self, prepared: Sequence[tuple[JudgeRequest, Judgement]]) -> None:
        """Start the workers of candidates whose turn comes soon."""
        for request, judgement in prepared:
            if self.rejected(request, judgement) is None:
                late = _late(request)
                self._opened(late).prepare(late, late.compiled_cache)

    def judge_folder(
        self,
        folder: Path,
        results: Path,
        done: Callable[[Line, bool], None],
        working: Callable[[Path, str], None] = lambda *_: None,
    ) -> list[Line]:
        """Judge every solution in a folder that `results` does not hold; append each verdict to it as it falls.

        Args:
            done: called with each line, and whether it was read from `results`.
            working: called with a file and what is done to it now.

        Raises:
            NotFound: the folder holds no solution.
        """
        files = solution_files(folder)
        if not files:
            raise NotFound(f"{folder}: holds no .py or .json file to judge")
        journal = RunJournal(results.parent, results.name)
        journal.settle()
        found = read_lines(results)
        known = {line.digest: line for line in found if line.verdict.outcome != "INTERRUPTED"}
        lines = []
        with ThreadPoolExecutor(max(1, self.pool.jobs)) as threads:
            try:
                waiting = [self._submitted(file, known, threads, working) for file in files]
                for position, (file, digest, request, future) in enumerate(waiting):
                    if request is None or future is None:
                        line = known.get(digest) or self._unreadable(file, digest)
                        lines.append(line)
                        done(line, digest in known)
                        continue
                    cut = Line(digest=digest, file=file.name, verdict=self._interrupted(request))
                    pledge = Pledge(file=results.absolute(), line=cut.model_dump_json())
                    with journal.pledged([pledge]):
                        prepared = future.result()
                        self._look_ahead(_compiled_next(waiting[position + 1 :]))
                        verdict = self.finish(request, prepared, _told(working, file))
                        line = Line(digest=digest, file=file.name, verdict=verdict)
                        append_line(results, line)
                    lines.append(line)
                    done(line, False)
            except BaseException:
                # Ctrl-C: what waits for a compiler is not begun
                threads.shutdown(wait=False, cancel_futures=True)
                raise
        return lines

    def _submitted(
        self,
        file: Path,
        known: Mapping[str, Line],
        threads: ThreadPoolExecutor,
        working: Callable[[Path, str], None],
    ) -> tuple[Path, str, JudgeRequest | None, Future[Judgement] | None]:
        """Send a file to lint and compiler, unless it is known or no solution."""
        digest = self._digest(file)
        if digest in known:
            return file, digest, None, None
        try:
            request = self.request(file)
        except InvalidPackage:
            return file, digest, None, None

        def prepare() -> Judgement:
            working(file, "lint and compile")
            return self.prepare(request)

        return file, digest, request, threads.submit(prepare)

    def _unreadable(self, file: Path, digest: str) -> Line:
        """Return the line of a file that is no solution; not kept, as it costs nothing to say again."""
        try:
            self.request(file)
            reason = "it changed while the folder was judged"
        except InvalidPackage as error:
            reason = str(error)
        verdict = Verdict(
            problem=self.problem.name, solution=file.stem, verdict="rejected", outcome="LINT_REJECTED",
            log=reason, target=self.target.name, policy=self._options.policy,
        )  # fmt: skip
        return Line(digest=digest, file=file.name, verdict=verdict)

    def _interrupted(self, request: JudgeRequest) -> Verdict:
        """Return what stands in the results if this process is killed while it judges."""
        return Verdict(
            problem=self.problem.name, solution=request.solution.name, verdict="rejected",
            outcome="INTERRUPTED", log="the judge was killed before the verdict", target=self.target.name,
            policy=self._options.policy,
        )  # fmt: skip

    def _digest(self, file: Path) -> str:
        parts = [
            self.problem.model_dump_json().encode(), file.read_bytes(), self.target.name.encode(),
            self.place.encode(), self._options.policy.encode(),
        ]  # fmt: skip
        return hashlib.sha256(
            b"\0".join(hashlib.sha256(part).digest() for part in parts)
        ).hexdigest()

    def _fitting_device(self) -> Device | None:
        try:
            device = find_device(self.pool, self._options.device)
        except DeviceQuarantined:
            raise
        except NoDevice:
            # a chip that no Target describes
            return None
        return device if device and device.arch == self._asked.arch else None


def _late(request: JudgeRequest) -> JudgeRequest:
    return request.model_copy(update={"stages": ("verify", "bench")})


def _compiled_next(
    waiting: Sequence[tuple[Path, str, JudgeRequest | None, Future[Judgement] | None]],
) -> list[tuple[JudgeRequest, Judgement]]:
    """Return the next candidates that have been through lint and compiler by now."""
    found: list[tuple[JudgeRequest, Judgement]] = []
    for _, _, request, future in waiting:
        if len(found) == AHEAD:
            break
        if request and future and future.done() and future.exception() is None:
            found.append((request, future.result()))
    return found


def _told(working: Callable[[Path, str], None], file: Path) -> Report:
    """Return a judge's report that says which file it is about."""
    return lambda stage, at, of, what: working(file, f"{stage} {at}/{of} {what}")


def solution_files(folder: Path) -> list[Path]:
    """Return what may be a solution, by name; hidden files are none."""
    return sorted(
        path
        for path in folder.iterdir()
        if path.suffix in (".py", ".json")
        and path.is_file()
        and not path.name.startswith((".", "_"))
    )


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a results file; one torn by a kill is passed over, and its solution judged again."""
    if not path.exists():
        return
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValidationError):
            yield Line.model_validate_json(text)


def append_line(path: Path, line: Line) -> None:
    """Append one line; a torn last line is ended first, so that this one stays whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        if file.tell():
            file.seek(-1, 2)
            torn = file.read(1) != b"\n"
            file.write(b"\n" if torn else b"")
        file.write(line.model_dump_json().encode() + b"\n")
        file.flush()
