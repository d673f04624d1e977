"""A task worker and the candidate worker beside it. A candidate that dies is replaced; the task worker stays."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from kernel_skills.executor.channel import ChannelError, PeerSilent
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.failure import headline, reported_status
from kernel_skills.executor.models import Scalar, Workload
from kernel_skills.executor.pool import Mode, Pool, Worker

if TYPE_CHECKING:
    from kernel_skills.executor.judge import JudgeRequest

_OPEN_TIMEOUT_S = 120.0
_BENCH_TIMEOUT_S = 900.0
"""Compiling the `compile` baseline with max-autotune is most of it."""


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

    def use(self, request: JudgeRequest, cache: str) -> None:
        """Go on with another Solution to the same Task."""
        self._end_candidate()
        self._request, self._cache = request, cache

    def list_checks(self) -> list[str]:
        answer = self._ask_task({"op": "list_checks"}, _OPEN_TIMEOUT_S)
        if "failed" in answer:
            raise InvalidPackage(f"validate.py does not load: {headline(str(answer['log']))}")
        return list(answer["checks"])

    def verify(self, workload: Workload) -> dict[str, Any]:
        """Return status, log, correctness and checks_not_run of one Workload."""
        message = {
            "op": "verify", "workload": workload.model_dump(mode="json"),
            "config": self._request.config_for(workload), "seed": self._request.seed,
            "constraints": list(self._request.constraints),
        }  # fmt: skip
        return self._with_candidate(message, 10 * self._request.timeout_s)

    def bench(
        self,
        workload: Workload,
        fewest_bytes: int,
        *,
        baselines: bool,
        config: dict[str, Scalar] | None = None,
    ) -> dict[str, Any]:
        """Return the measurement of one Workload; without baselines for a tuning trial."""
        message = {
            "op": "bench", "workload": workload.model_dump(mode="json"),
            "config": self._request.config_for(workload) if config is None else config,
            "seed": self._request.seed, "fewest_bytes": fewest_bytes, "baselines": baselines,
        }  # fmt: skip
        return self._with_candidate(message, _BENCH_TIMEOUT_S)

    def check(self, name: str) -> dict[str, Any]:
        """Return {outcome, log} of one check of validate.py."""
        message = {
            "op": "check", "name": name, "dtypes": list(self._request.dtypes), "seed": self._request.seed,
            "constraints": list(self._request.constraints),
        }  # fmt: skip
        answer = self._with_candidate(message, 10 * self._request.timeout_s)
        if "outcome" not in answer:
            return {"outcome": "failed", "log": f"{answer['status']}: {answer['log']}"}
        return answer

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
        if answer.get("by") == "reference":
            raise InvalidPackage(
                f"{answer['who']} fails, so there is no verdict on {self._request.solution.name}: "
                f"{headline(str(answer['log']))}"
            )
        if answer.get("by") == "task":
            log = f"the task worker failed: {answer['log']}"
            return {"status": answer["failed"], "log": log}
        return answer

    def _start_candidate(self) -> dict[str, Any] | None:
        """Start, load and attach a candidate; return the failure where it does not load."""
        worker = self._pool.start("candidate", self._mode, cache=self._cache)
        self._candidate = worker
        message = {
            "op": "load", "device": self._place,
            "solution": self._request.solution.model_dump(mode="json"),
            "calling": self._request.calling.model_dump(mode="json"),
        }  # fmt: skip
        if self._request.calling.destination:
            # the shapes of the outputs; nothing of the reference
            message["definition"] = self._request.task.definition.model_dump(mode="json")
        try:
            answer = worker.request(message, timeout_s=self._request.timeout_s)
        except ChannelError as error:
            silent = isinstance(error, PeerSilent)
            status = "TIMEOUT" if silent else "RUNTIME_ERROR"
            what = f"no answer within {self._request.timeout_s:g} s" if silent else error
            return {"status": status, "log": f"while importing: {what}{self._end_candidate()}"}
        if "failed" in answer:
            self._end_candidate()
            failed = reported_status(answer)
            return {"status": failed, "log": f"while importing: {answer.get('log', '')}"}
        attached = self._ask_task(
            {"op": "attach", "timeout_s": self._request.timeout_s}, _OPEN_TIMEOUT_S,
            fds=[worker.channel.fileno()],
        )  # fmt: skip
        if "failed" in attached:
            self._end_candidate()
            return {"status": attached["failed"], "log": attached["log"]}
        worker.channel.close()
        return None

    def _ask_task(
        self, message: dict[str, Any], timeout_s: float, fds: list[int] | None = None
    ) -> dict[str, Any]:
        try:
            return self._task.request(message, timeout_s=timeout_s, fds=fds or [])
        except ChannelError as error:
            # it holds the reference and the baselines, so nothing about the candidate is known
            tail = self._task.log_tail()
            self._replace_task()
            log = f"the task worker ended during {message['op']!r}: {error}\n{tail}"
            status = "TIMEOUT" if isinstance(error, PeerSilent) else "RUNTIME_ERROR"
            return {"status": status, "failed": status, "log": log, "by": "task"}

    def _replace_task(self) -> None:
        self._end_candidate()
        self._task.end(0)
        self._task = self._pool.start("task")
        task = self._request.task.model_dump(mode="json")
        with contextlib.suppress(ChannelError):
            self._task.request(
                {"op": "open", "device": self._place, "keep": self._keep, "task": task},
                timeout_s=_OPEN_TIMEOUT_S,
            )

    def _end_candidate(self) -> str:
        """End the candidate's process tree; return how it ended, for the log."""
        if self._candidate is None:
            return ""
        worker, self._candidate = self._candidate, None
        return worker.end_described(0.1)

    def close(self) -> None:
        self._end_candidate()
        self._task.end(0.5)
