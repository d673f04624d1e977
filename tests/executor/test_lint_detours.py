"""The lint on candidates that hide what they do: aliases, containers, closures, lies in annotations, and so on.

`tests/exploits/detours` holds them by family, each below a line `### TASK: trick`; `tasks.txt` holds what comes before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_skills.executor.lint import lint
from kernel_skills.executor.split_source import split

from .conftest import solution

FOLDER = Path(__file__).parents[1] / "exploits" / "detours"


def sections(path: Path) -> Iterator[tuple[str, str]]:
    """(title, text) of each part."""
    for part in re.split(r"^### ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        title, _, text = part.partition("\n")
        yield title, text


TASKS = dict(sections(FOLDER / "tasks.txt"))
DETOURS = [
    pytest.param(task, text, id=f"{path.stem}: {trick}")
    for path in sorted(FOLDER.glob("*.txt"))
    if path.name != "tasks.txt"
    for title, text in sections(path)
    for task, _, trick in [title.partition(": ")]
]


@pytest.mark.parametrize(("task", "text"), DETOURS)
def test_a_detour_is_found(task: str, text: str) -> None:
    """In the candidate's part as it is cut out, which is what runs."""
    _, theirs = split(TASKS["prelude"] + TASKS[task] + text)
    assert lint(solution(theirs, "kernel.py::candidate"), dtypes=frozenset({"float32"}))


@pytest.mark.parametrize("task", ["double", "softmax"])
def test_without_a_detour_nothing_is_found(task: str) -> None:
    entry = "def candidate(x):\n    return _run(x, torch.empty_like(x))\n"
    _, theirs = split(TASKS["prelude"] + TASKS[task] + entry)
    assert lint(solution(theirs, "kernel.py::candidate")) == ()
