"""The runtime without the lint: what it rejects by itself, and that it rejects no honest candidate."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.judge import judge
from kernel_skills.executor.problem_batch import Judges, JudgesOptions
from kernel_skills.executor.problem_judge import verdict_of
from kernel_skills.executor.targets import find_target

FOLDER = Path(__file__).parents[1] / "exploits"
CASES: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))

ONLY_WITH_LINT_OR_DEVICE = {
    # the answer is right: a walk over frames, the L2 cache, files, a socket, a tool that is not there
    "c090", "c091", "c151", "c154", "c155", "c157", "c166",
    # admission refuses the task, or only a device shows it
    "c063", "c114",
    # wrong at other lengths only, and its problem declares no axes
    "c101",
}  # fmt: skip
"""Cheats that look honest to the runtime on a CPU."""


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    options = JudgesOptions(timeout_s=15.0)
    with Judges(find_target("h100"), options) as started:
        yield started


def ran(judges: Judges, file: Path) -> tuple[str, str, str]:
    """Return outcome, rule and log of a file's candidate, neither linted nor compiled."""
    judges.load(file, {})
    request = judges.request(file).model_copy(update={"stages": ("verify",)})
    try:
        judgement = judge(request, judges.pool, None)
    except InvalidPackage as error:
        return "TASK", "", str(error)
    verdict = verdict_of(judges.problem, request, judgement, "strict")
    rule = verdict.findings[0].rule if verdict.findings else ""
    return verdict.outcome, rule, verdict.log


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_candidate_that_was_not_linted(judges: Judges, case: dict[str, Any]) -> None:
    outcome, _, log = ran(judges, FOLDER / case["file"])
    fine = case["expected"] == "accept" or case["id"] in ONLY_WITH_LINT_OR_DEVICE
    assert (outcome == "PASSED") == fine, log
