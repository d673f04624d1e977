"""A task worker and the candidate worker beside it. A candidate that dies is replaced; the task worker stays."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from kernel_skills.executor.channel import ChannelError, PeerSilent
from kernel_skills.executor.errors import InvalidPackage, WorkerError
from kernel_skills.executor.failure import headline, reported_status
from kernel_skills.executor.models import Scalar, Workload
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.trace import (
    CheckOutcome,
    Correctness,
    DeviceState,
    FailedStatus,
    Timing,
)
from kernel_skills.executor.worker_process import Mode, Worker

if TYPE_CHECKING:
    from kernel_skills.executor.judge import JudgeRequest

_OPEN_TIMEOUT_S = 120.0
_SAMPLES_TIMEOUT_S = 300.0
AHEAD = 2
"""Candidates whose workers are started while another is judged."""
_BENCH_TIMEOUT_S = 900.0
"""Compiling the `compile` baseline with max-autotune is most of it."""

_STATUSES = (*get_args(FailedStatus), "PASSED", "INCORRECT_NUMERICAL", "SKIPPED")
_OUTCOME: TypeAdapter[CheckOutcome] = TypeAdapter(CheckOutcome)


class _Answer(BaseModel):
    """The fields of a verdict that the parent reads."""

    model_config = ConfigDict(extra="ignore")

    status: str = Field(pattern=f"^({'|'.join(_STATUSES)})$")
    log: str = ""
    rule: str = ""
    correctness: Correctness | None = None
    checks_not_run: tuple[str, ...] = ()
    torch_operators: dict[str, int] = {}
    seconds: dict[str, float] = {}

    @model_validator(mode="after")
    def _says_how_exact(self) -> _Answer:
        if self.status in ("PASSED", "INCORRECT_NUMERICAL") and self.correctness is None:
            raise ValueError(f"{self.status} without the errors")
        return self


class _Measured(_Answer):
    """The same of a measurement."""

    method: Literal["events", "graph"] = "events"
    timing: Timing | None = None
    baselines: dict[str, Timing | None] = {}
    errors: dict[str, str] = {}
    device_state: DeviceState | None = None
    torch_share: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _was_timed(self) -> _Measured:
        if self.status == "PASSED" and (
            self.timing is None or not {"method", "baselines", "errors"} <= self.model_fields_set
        ):
            raise ValueError("PASSED without the times")
        return self


@dataclass(frozen=True)
class _Loaded:
    """A candidate worker that has imported its Solution, or why there is none."""

    worker: Worker | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    failure: dict[str, Any] | None = None


class Session:
    """Requests about one Solution on one device."""

    def __init__(
        self,
        request: JudgeRequest,
        pool: Pool,
        mode: Mode,
        place: str,
        cache: str,
        keep: bool = False,
    ) -> None:
        """Start the task worker and open the Task.

        Args:
            keep: inputs and results are kept for the next candidate, which `use` brings.

        Raises:
            InvalidPackage: the reference does not load.
        """
        self._request, self._pool, self._mode, self._place = request, pool, mode, place
        self._cache, self._keep = cache, keep
        self._candidate: Worker | None = None
        # two candidates ahead: a driver takes longer to start than a small problem to verify
        self._ahead = ThreadPoolExecutor(AHEAD)
        self._ending = ThreadPoolExecutor(1)
        self._prepared: dict[str, Future[_Loaded]] = {}
        self.seconds_waited = 0.0
        """For a candidate's process, its driver and its import, since `use`."""
        self.load: dict[str, Any] | None = None
        """What else went on on the device before the first candidate, once it was asked."""
        self._identity = f"index-{place.removeprefix('cuda:')}"
        # references never run under the interpreter, so the task worker is always a device one
        self._task = pool.start("task")
        opened = self._ask_task(
            {
                "op": "open", "device": place, "keep": keep,
                "task": request.task.model_dump(mode="json"),
            },
            _OPEN_TIMEOUT_S,
        )  # fmt: skip
        if "failed" in opened:
            self.close()
            raise InvalidPackage(
                f"the reference of {request.task.definition.name} does not load: {headline(str(opened['log']))}"
            )
        self._identity = str(opened.get("uuid") or self._identity)

    def prepare(self, request: JudgeRequest, cache: str) -> None:
        """Begin to start and load the worker of a Solution that `use` brings later."""
        if cache not in self._prepared:
            self._prepared[cache] = self._ahead.submit(self._load, request, cache)

    def use(self, request: JudgeRequest, cache: str) -> None:
        """Go on with another Solution to the same Task."""
        self._end_candidate(wait=False)
        self._request, self._cache, self.seconds_waited = request, cache, 0.0

    def list_checks(self) -> list[str]:
        answer = self._ask_task({"op": "list_checks"}, _OPEN_TIMEOUT_S)
        if "failed" in answer:
            raise InvalidPackage(f"validate.py does not load: {headline(str(answer['log']))}")
        with self._well_formed():
            return [str(name) for name in answer["checks"]]

    def samples(self) -> dict[str, Any]:
        """Return what PyTorch draws for the operator of the Task; unchecked: no foreign code has run yet."""
        return self._ask_task({"op": "samples"}, _SAMPLES_TIMEOUT_S)

    def verify(self, workload: Workload) -> dict[str, Any]:
        """Return status, log, correctness and checks_not_run of one Workload."""
        message = {
            "op": "verify", "workload": workload.model_dump(mode="json"),
            "config": self._request.config_for(workload), "seed": self._request.seed,
            "constraints": list(self._request.constraints),
        }  # fmt: skip
        return self._judged(self._with_candidate(message, 10 * self._request.timeout_s))

    def bench(
        self,
        workload: Workload,
        *,
        baselines: bool,
        config: dict[str, Scalar] | None = None,
    ) -> dict[str, Any]:
        """Return the measurement of one Workload; without baselines for a tuning trial."""
        message = {
            "op": "bench", "workload": workload.model_dump(mode="json"),
            "config": self._request.config_for(workload) if config is None else config,
            "seed": self._request.seed, "baselines": baselines,
        }  # fmt: skip
        return self._judged(self._with_candidate(message, _BENCH_TIMEOUT_S), _Measured)

    def check(self, name: str) -> dict[str, Any]:
        """Return {outcome, log} of one check of validate.py."""
        message = {
            "op": "check", "name": name, "dtypes": list(self._request.dtypes), "seed": self._request.seed,
            "constraints": list(self._request.constraints),
        }  # fmt: skip
        answer = self._with_candidate(message, 10 * self._request.timeout_s)
        if "outcome" not in answer:
            return {"outcome": "failed", "log": f"{answer['status']}: {answer['log']}"}
        with self._well_formed():
            # what else it says is not read
            return {
                "outcome": _OUTCOME.validate_python(answer["outcome"]),
                "log": str(answer["log"]),
            }

    def _judged(
        self, answer: dict[str, Any], kind: type[_Answer] | type[_Measured] = _Answer
    ) -> dict[str, Any]:
        """Return an answer whose fields are what they should be: a package's own code runs in the task worker."""
        with self._well_formed():
            kind.model_validate(answer)
        return answer

    @contextlib.contextmanager
    def _well_formed(self) -> Iterator[None]:
        """Blame the package for an answer that the harness's own code never gives."""
        try:
            yield
        except (ValidationError, LookupError, TypeError) as error:
            name = self._request.task.definition.name
            raise InvalidPackage(
                f"the code of {name} spoils the answers of its task worker: {error}"
            ) from error

    def _with_candidate(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """Ask the task worker with a live candidate attached; replace the candidate when it died.

        Raises:
            InvalidPackage: the package's own reference or generator raised: no verdict on the candidate.
        """
        if self._candidate is None:
            failure = self._start_candidate()
            if failure:
                return failure
        answer = self._ask_task(message, timeout_s)
        if answer.get("dead"):
            answer["log"] = f"{answer['log']}{self._end_candidate()}"
            self._examine()
        if answer.get("by") == "reference":
            raise InvalidPackage(
                f"{answer['who']} fails, so there is no verdict on {self._request.solution.name}: "
                f"{headline(str(answer['log']))}"
            )
        if answer.get("by") == "task":
            self._blame_reference(message, timeout_s)
            log = f"the task worker failed: {answer['log']}"
            return {"status": answer["failed"], "log": log}
        return answer

    def _blame_reference(self, message: dict[str, Any], timeout_s: float) -> None:
        """Run the reference alone where the task worker died or failed: only if it runs may the candidate be to blame.

        Raises:
            InvalidPackage: it does not run.
        """
        if "workload" not in message:
            return
        alone = {key: message[key] for key in ("workload", "seed")}
        answer = self._ask_task({"op": "reference", **alone}, timeout_s)
        if "failed" in answer:
            raise InvalidPackage(
                f"the reference of {self._request.task.definition.name} fails, so there is no verdict on "
                f"{self._request.solution.name}: {headline(str(answer['log']))}"
            )

    def _start_candidate(self) -> dict[str, Any] | None:
        """Start, load and attach a candidate; return the failure where it does not load."""
        start = time.perf_counter()
        prepared = self._prepared.pop(self._cache, None)
        loaded = prepared.result() if prepared else self._load(self._request, self._cache)
        self.seconds_waited += time.perf_counter() - start
        if loaded.worker is None:
            return loaded.failure
        self._candidate = loaded.worker
        attached = self._ask_task(
            {
                "op": "attach", "timeout_s": self._request.timeout_s, "facts": loaded.facts,
                "policy": self._request.policy,
            },
            _OPEN_TIMEOUT_S, fds=[loaded.worker.channel.fileno()],
        )  # fmt: skip
        if "failed" in attached or "status" in attached:
            self._end_candidate()
            status = attached.get("status") or attached["failed"]
            log = f"while importing: {attached['log']}"
            return {"status": status, "log": log, "rule": attached.get("rule", "")}
        loaded.worker.channel.close()
        return None

    def _load(self, request: JudgeRequest, cache: str) -> _Loaded:
        """Start a worker, its driver and the Solution's import. Runs beside the judging of another candidate."""
        worker = self._pool.start("candidate", self._mode, cache=cache)
        message = {
            "op": "load", "device": self._place,
            "solution": request.solution.model_dump(mode="json"),
            "calling": request.calling.model_dump(mode="json"),
        }  # fmt: skip
        if request.calling.destination:
            # the shapes of the outputs; nothing of the reference
            message["definition"] = request.task.definition.model_dump(mode="json")
        try:
            answer = worker.request(message, timeout_s=request.timeout_s)
        except ChannelError as error:
            silent = isinstance(error, PeerSilent)
            status = "TIMEOUT" if silent else "RUNTIME_ERROR"
            what = f"no answer within {request.timeout_s:g} s" if silent else error
            log = f"while importing: {what}{worker.end_described(0.1)}"
            self._examine()
            rule = "R-timeout" if silent else "R-exit"
            return _Loaded(failure={"status": status, "log": log, "rule": rule})
        if "failed" in answer:
            worker.end(0.1)
            status = reported_status(answer)
            log = f"while importing: {answer.get('log', '')}"
            rule = "R-protocol" if status == "CHEATING" else ""
            return _Loaded(failure={"status": status, "log": log, "rule": rule})
        facts = answer.get("facts")
        return _Loaded(worker, facts if isinstance(facts, dict) else {})

    def _ask_task(
        self, message: dict[str, Any], timeout_s: float, fds: list[int] | None = None
    ) -> dict[str, Any]:
        try:
            answer = self._task.request(message, timeout_s=timeout_s, fds=fds or [])
        except ChannelError as error:
            # it holds the reference and the baselines, so nothing about the candidate is known
            how = self._replace_task()
            log = f"the task worker ended during {message['op']!r}: {error}{how}"
            status = "TIMEOUT" if isinstance(error, PeerSilent) else "RUNTIME_ERROR"
            return {"status": status, "failed": status, "log": log, "by": "task"}
        if answer.get("device_lost"):
            # its context answers every call with the same error from now on
            self._replace_task()
        return answer

    def _examine(self) -> None:
        """Look whether the device survived a worker that died on it.

        Raises:
            DeviceQuarantined: it did not.
        """
        if self._place != "cpu":
            self._pool.examine(self._place, self._identity)

    def _replace_task(self) -> str:
        """Start a new task worker in place of a dead one; return how that ended, for the log."""
        self._end_candidate()
        how = self._task.end_described(0)
        self._examine()
        self._task = self._pool.start("task")
        task = self._request.task.model_dump(mode="json")
        with contextlib.suppress(ChannelError):
            self._task.request(
                {"op": "open", "device": self._place, "keep": self._keep, "task": task},
                timeout_s=_OPEN_TIMEOUT_S,
            )
        return how

    def _end_candidate(self, wait: bool = True) -> str:
        """End the candidate's process tree; return how it ended, for the log.

        Args:
            wait: False leaves it to a thread: a driver with gigabytes mapped takes 0.3 s to end.
        """
        if self._candidate is None:
            return ""
        worker, self._candidate = self._candidate, None
        if wait:
            return worker.end_described(0.1)
        self._ending.submit(worker.end, 0.1)
        return ""

    def close(self) -> None:
        self._end_candidate()
        for future in self._prepared.values():
            future.cancel()
        self._ahead.shutdown()
        self._ending.shutdown()
        for future in self._prepared.values():
            if not future.cancelled() and future.exception() is None and future.result().worker:
                with contextlib.suppress(WorkerError):
                    future.result().worker.end(0)  # type: ignore[union-attr]
        self._prepared.clear()
        self._task.end(0.5)
