"""`skills path`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Skills

PACKAGES = {
    "tiles-of-mine": (1, ""),
    "waves-of-mine": (2, '"tiles-of-mine"'),
    "goal-of-mine": (4, '"waves-of-mine"'),
}


@pytest.fixture
def library(skills: Skills, apart: Path) -> Path:
    """Three skills of which each builds on the one before."""
    for name, (level, prerequisites) in PACKAGES.items():
        assert skills("new", name, "--dir", "skills").code == 0
        manifest = apart / "skills" / name / "skill.toml"
        lines = manifest.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if not line.startswith(("level =", "prerequisites ="))]
        place = next(i for i, line in enumerate(kept) if line.startswith("patterns"))
        kept[place:place] = [f"level = {level}", f"prerequisites = [{prerequisites}]"]
        manifest.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return apart / "skills"


def test_the_course_is_listed_in_order(skills: Skills, library: Path) -> None:
    shown = skills("path")
    assert shown.code == 0
    assert shown.out.split()[:5] == ["level", "skill", "kind", "after", "about"]
    places = [shown.out.index(f"{name}  ") for name in PACKAGES]
    assert places == sorted(places)


def test_the_way_to_one_skill(skills: Skills, library: Path) -> None:
    shown = skills("path", "waves-of-mine")
    rows = [line.split()[:2] for line in shown.out.splitlines()[1:]]
    assert rows == [["1", "tiles-of-mine"], ["2", "waves-of-mine"]]


def test_one_level_as_json(skills: Skills, library: Path) -> None:
    shown = skills("path", "--level", "2", "--json")
    steps = {step["name"]: step for step in json.loads(shown.out)["steps"]}
    assert steps["waves-of-mine"]["prerequisites"] == ["tiles-of-mine"]
    assert {step["level"] for step in steps.values()} == {2}


def test_a_picture_for_mermaid(skills: Skills, library: Path) -> None:
    shown = skills("path", "goal-of-mine", "--format", "mermaid")
    assert shown.out.startswith("flowchart LR\n")
    assert "  skill-tiles-of-mine --> skill-waves-of-mine\n" in shown.out


def test_an_unknown_skill_exits_5_with_close_names(skills: Skills, library: Path) -> None:
    shown = skills("path", "goal-of-min")
    assert shown.code == 5
    assert "did you mean goal-of-mine" in shown.err


def test_faults_are_said_and_spoil_nothing(skills: Skills, library: Path) -> None:
    manifest = library / "goal-of-mine" / "skill.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace('["waves-of-mine"]', '["waves-of-yours"]'), encoding="utf-8")
    shown = skills("path")
    assert shown.code == 0
    assert "goal-of-mine  " in shown.out
    assert "course: goal-of-mine: no skill named 'waves-of-yours'" in shown.err
    checked = skills("validate", "--static", str(library / "goal-of-mine"))
    assert checked.code == 3
    assert "prerequisites: no skill named 'waves-of-yours'" in checked.out


@pytest.mark.parametrize("words", [("--level", "6"), ("--json", "--format", "mermaid")])
def test_words_that_do_not_fit_exit_2(
    skills: Skills, library: Path, words: tuple[str, ...]
) -> None:
    assert skills("path", *words).code == 2
