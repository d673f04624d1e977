"""The process that compiles a candidate for a chip, present or not. It never touches CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernel_skills.executor.binding import as_entry
from kernel_skills.executor.calling import Calling
from kernel_skills.executor.channel import Channel
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.failure import describe_failure, in_package
from kernel_skills.executor.models import Definition, Solution, Workload
from kernel_skills.executor.targets import Target


def serve(channel: Channel) -> None:
    """Load a Solution, then answer one report per Workload until the channel closes."""
    from kernel_skills.executor.cross_compile import CompileFailure, compile_solution

    message, _, _ = channel.receive()
    try:
        solution = Solution.model_validate(message["solution"])
        definition = Definition.model_validate(message["definition"])
        target = Target.model_validate(message["target"])
        function = SourceTree(solution.sources, Path("solution")).function(
            solution.spec.entry_point
        )
        calling = Calling.model_validate(message.get("calling", {}))
        entry = as_entry(function, calling, definition)
    except BaseException as error:  # noqa: BLE001 - foreign code may raise anything; it is reported, typed
        channel.send(describe_failure(error))
        return
    channel.send({"ok": True})
    while True:
        message, _, _ = channel.receive()
        workload = Workload.model_validate(message["workload"])
        try:
            reports = compile_solution(entry, definition, workload, target, message["config"])
            answer: dict[str, Any] = {"kernels": [r.model_dump(mode="json") for r in reports]}
        except CompileFailure as error:
            status = "COMPILE_ERROR" if error.kernel else "RUNTIME_ERROR"
            answer = {"failed": status, "log": in_package(str(error))}
        except BaseException as error:  # noqa: BLE001 - as above
            answer = describe_failure(error)
        channel.send(answer)
