"""Judge the solutions to one Problem: one, or a folder of them, with everything that is common done once."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

from pydantic import Field, ValidationError

from kernel_skills.executor.environment import Device, find_device
from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.judge import Judgement, JudgeRequest, Report, judge
from kernel_skills.executor.lint import Policy
from kernel_skills.executor.models import Record
from kernel_skills.executor.pool import LocalPool, Mode, Pool
from kernel_skills.executor.problem import Problem, load_problem
from kernel_skills.executor.problem_judge import (
    Verdict,
    admit,
    rejected_early,
    request_of,
    verdict_of,
)
from kernel_skills.executor.problem_solution import load_solution
from kernel_skills.executor.seeds import secret_seed
from kernel_skills.executor.session import Session
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import now


class JudgesOptions(Record):
    policy: Policy = "strict"
    device: int = 0
    seed: int = 0
    timeout_s: float = 60.0


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
        self.pool: Pool = self._stack.enter_context(LocalPool())
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

    def load(self, path: Path, axes: Mapping[str, int]) -> Problem:
        """Read a problem file; see `load_problem`."""
        self._forget()
        self._problem, self._entries = load_problem(path, self.pool, self.place, axes), ()
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
        )  # fmt: skip

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
        late = request.model_copy(update={"stages": ("verify", "bench")})
        if self._session is None:
            mode: Mode = "device" if self.device else "interpret"
            self._session = Session(late, self.pool, mode, self.place, "", keep=True)
        judgement = judge(late, self.pool, self.device, report, self._session)
        return verdict_of(
            self.problem, late, judgement, self._options.policy, self._notes, prepared
        )  # fmt: skip

    def judge_folder(
        self, folder: Path, results: Path, done: Callable[[Line, bool], None]
    ) -> list[Line]:
        """Judge every solution in a folder that `results` does not hold; append each verdict to it as it falls.

        Args:
            done: called with each line, and whether it was read from `results`.

        Raises:
            NotFound: the folder holds no solution.
        """
        files = solution_files(folder)
        if not files:
            raise NotFound(f"{folder}: holds no .py or .json file to judge")
        known = {line.digest: line for line in read_lines(results)}
        lines = []
        with ThreadPoolExecutor(max(1, self.pool.jobs)) as threads:
            waiting: list[tuple[Path, str, JudgeRequest | None, Future[Judgement] | None]] = []
            for file in files:
                digest = self._digest(file)
                if digest in known:
                    waiting.append((file, digest, None, None))
                    continue
                asked = self.request(file)
                waiting.append((file, digest, asked, threads.submit(self.prepare, asked)))
            for file, digest, request, future in waiting:
                if request is None or future is None:
                    lines.append(known[digest])
                    done(known[digest], True)
                    continue
                verdict = self.finish(request, future.result())
                line = Line(digest=digest, file=file.name, verdict=verdict)
                append_line(results, line)
                lines.append(line)
                done(line, False)
        return lines

    def _digest(self, file: Path) -> str:
        parts = [
            self.problem.model_dump_json().encode(), file.read_bytes(), self.target.name.encode(),
            self.place.encode(), self._options.policy.encode(),
        ]  # fmt: skip
        return hashlib.sha256(
            b"\0".join(hashlib.sha256(part).digest() for part in parts)
        ).hexdigest()

    def _fitting_device(self) -> Device | None:
        device = find_device(self.pool, self._options.device)
        return device if device and device.arch == self._asked.arch else None


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
