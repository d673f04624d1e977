"""The part of a package's contract that needs its code to run: references and checks, in a task worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.failure import headline
from kernel_skills.executor.models import Definition, Workload
from kernel_skills.executor.pool import LocalPool, Pool
from kernel_skills.executor.worker_process import Worker
from kernel_skills.registry.discovery import load_skill
from kernel_skills.registry.models import Problem, Skill
from kernel_skills.registry.package import task_of

UNFINISHED = "unfinished"
"""Rule of what a scaffold leaves to its author: worth a line, no breach of the contract."""

_TIMEOUT_S = 60.0


def validate_references(path: Path) -> tuple[Problem, ...]:
    """Run every definition's reference on its smoke workloads and load its checks; return what failed.

    The package must keep its static contract: `validate_package` comes first.
    """
    skill = load_skill(path, "path")
    if not skill.manifest.definition:
        return ()
    with LocalPool() as pool:
        return tuple(
            problem
            for definition in skill.manifest.definition
            for problem in _problems(path, skill, definition, pool)
        )


def _problems(path: Path, skill: Skill, definition: Definition, pool: Pool) -> Iterator[Problem]:
    worker = pool.start("task")
    try:
        task = task_of(skill, definition).model_dump(mode="json")
        opened = worker.request({"op": "open", "device": "cpu", "task": task}, timeout_s=_TIMEOUT_S)
        if "failed" in opened:
            yield _problem(path, definition, f"does not load: {headline(opened['log'])}")
            return
        listed = worker.request({"op": "list_checks"}, timeout_s=_TIMEOUT_S)
        if "failed" in listed:
            yield Problem(
                path=str(path / "validate.py"),
                rule="checks",
                message=f"does not load: {headline(listed['log'])}",
                mend="mend it, or take it out",
            )
        for workload in skill.manifest.workload:
            if workload.definition == definition.name and workload.purpose == "smoke":
                yield from _run(path, definition, workload, worker)
    except ChannelError as error:
        tail = worker.log_tail().strip()
        yield _problem(path, definition, f"broke off: {error}{f'; {tail}' if tail else ''}")
    finally:
        worker.end(0.1)


def _run(
    path: Path, definition: Definition, workload: Workload, worker: Worker
) -> Iterator[Problem]:
    message = {"op": "reference", "workload": workload.model_dump(mode="json"), "seed": 0}
    answer = worker.request(message, timeout_s=_TIMEOUT_S)
    if "NotImplementedError" in answer["log"]:
        yield _problem(path, definition, "is still to be written", rule=UNFINISHED)
    elif answer.get("status") != "PASSED":
        yield _problem(path, definition, f"on workload {workload.name}: {headline(answer['log'])}")


def _problem(path: Path, definition: Definition, message: str, rule: str = "reference") -> Problem:
    file = definition.reference.split("::")[0]
    return Problem(
        path=str(path / file),
        rule=rule,
        message=f"the reference of {definition.name} {message}",
        mend="make it run on the declared inputs and return the declared outputs",
    )
