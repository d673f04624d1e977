"""The part of a package's contract that needs its code to run: references and checks, in a task worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.models import Definition, Workload
from kernel_skills.executor.pool import LocalPool, Pool, Worker
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
            for problem in _problems(skill, definition, pool)
        )


def _problems(skill: Skill, definition: Definition, pool: Pool) -> Iterator[Problem]:
    worker = pool.start("task")
    try:
        task = task_of(skill, definition).model_dump(mode="json")
        opened = worker.request({"op": "open", "device": "cpu", "task": task}, timeout_s=_TIMEOUT_S)
        if "failed" in opened:
            yield _problem(skill, definition, f"does not load: {opened['log']}")
            return
        listed = worker.request({"op": "list_checks"}, timeout_s=_TIMEOUT_S)
        if "failed" in listed:
            yield _problem(skill, definition, f"validate.py does not load: {listed['log']}")
        for workload in skill.manifest.workload:
            if workload.definition == definition.name and workload.purpose == "smoke":
                yield from _run(skill, definition, workload, worker)
    except ChannelError as error:
        yield _problem(skill, definition, f"ended its process: {error}; {worker.log_tail()}")
    finally:
        worker.end(0.1)


def _run(
    skill: Skill, definition: Definition, workload: Workload, worker: Worker
) -> Iterator[Problem]:
    message = {"op": "reference", "workload": workload.model_dump(mode="json"), "seed": 0}
    answer = worker.request(message, timeout_s=_TIMEOUT_S)
    if "NotImplementedError" in answer["log"]:
        yield _problem(skill, definition, "is still to be written", rule=UNFINISHED)
    elif answer.get("status") != "PASSED":
        yield _problem(skill, definition, f"on workload {workload.name}: {answer['log']}")


def _problem(
    skill: Skill, definition: Definition, message: str, rule: str = "reference"
) -> Problem:
    file = definition.reference.split("::")[0]
    return Problem(
        path=str(skill.path / file),
        rule=rule,
        message=f"the reference of {definition.name} {message}",
        mend="make it run on the declared inputs and return the declared outputs",
    )
