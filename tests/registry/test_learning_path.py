"""The course: order, faults, the way to one skill, and what validation makes of the faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_skills.executor.errors import NotFound
from kernel_skills.registry.discovery import find_skills
from kernel_skills.registry.learning_path import Course, course_of, mermaid_of
from kernel_skills.registry.models import Problem
from kernel_skills.registry.validate import validate_package

NOTES = """\
---
name: {name}
description: Notes on {name}. Use when {name} is the question.
license: Apache-2.0
metadata:
  version: "1.0.0"
---
# {name}

Notes.
"""
MANIFEST = """\
schema_version = 1
name = "{name}"
version = "1.0.0"
kind = "{kind}"
summary = "Notes on {name}."
patterns = ["locality"]
level = {level}
prerequisites = [{prerequisites}]

[example_queries]
en = ["what is {name}"]
zh = ["什么是 {name}"]
"""
MakeSkill = Callable[..., Path]


@pytest.fixture
def make_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeSkill:
    """Write a notes-only skill into a library of its own."""
    # shipped skills are found from anywhere: names here are none of theirs
    monkeypatch.setenv("KERNEL_SKILLS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERNEL_SKILLS_PATH", raising=False)
    monkeypatch.chdir(tmp_path)

    def make(name: str, level: int, *prerequisites: str, kind: str = "pattern") -> Path:
        folder = tmp_path / "library" / name
        folder.mkdir(parents=True, exist_ok=True)
        names = ", ".join(f'"{prerequisite}"' for prerequisite in prerequisites)
        manifest = MANIFEST.format(name=name, kind=kind, level=level, prerequisites=names)
        (folder / "skill.toml").write_text(manifest, encoding="utf-8")
        (folder / "SKILL.md").write_text(NOTES.format(name=name), encoding="utf-8")
        return folder

    return make


def the_course(folder: Path) -> Course:
    skills = find_skills(folder.parent).skills
    return course_of(skill for skill in skills if skill.path.parent == folder.parent)


def names(course: Course) -> list[str]:
    return [step.name for step in course.steps]


def prerequisite_problems(folder: Path) -> list[Problem]:
    return [problem for problem in validate_package(folder) if problem.rule == "prerequisites"]


def test_lower_levels_come_first_and_each_skill_after_what_it_builds_on(
    make_skill: MakeSkill,
) -> None:
    make_skill("a-late", 2, "z-first")
    make_skill("b-after-c", 1, "c-base")
    make_skill("c-base", 1)
    folder = make_skill("z-first", 1)
    course = the_course(folder)
    assert names(course) == ["c-base", "b-after-c", "z-first", "a-late"]
    assert not course.faults
    assert not any(prerequisite_problems(folder.parent / name) for name in names(course))


def test_the_order_does_not_depend_on_the_order_of_the_skills(make_skill: MakeSkill) -> None:
    make_skill("left", 2, "root")
    make_skill("right", 2, "root")
    make_skill("top", 3, "right", "left")
    folder = make_skill("root", 1)
    skills = find_skills(folder.parent).skills
    mine = [skill for skill in skills if skill.path.parent == folder.parent]
    assert course_of(mine) == course_of(reversed(mine))
    assert names(course_of(mine)) == ["root", "left", "right", "top"]


def test_the_way_to_a_skill_is_all_that_it_builds_on(make_skill: MakeSkill) -> None:
    make_skill("tiles", 1)
    make_skill("waves", 2, "tiles")
    make_skill("elsewhere", 2)
    course = the_course(make_skill("goal", 3, "waves"))
    assert names(course.leading_to("goal")) == ["tiles", "waves", "goal"]
    assert names(course.leading_to("tiles")) == ["tiles"]


def test_one_level_keeps_its_order(make_skill: MakeSkill) -> None:
    make_skill("under", 1)
    make_skill("b-second", 2, "under")
    course = the_course(make_skill("a-third", 2, "b-second"))
    assert names(course.on_level(2)) == ["b-second", "a-third"]
    assert names(course.on_level(5)) == []


def test_an_unknown_name_gets_close_ones(make_skill: MakeSkill) -> None:
    course = the_course(make_skill("tile-order", 1))
    with pytest.raises(NotFound, match="did you mean tile-order"):
        course.leading_to("tile-ordr")


def test_an_unknown_prerequisite_is_a_fault_with_a_line_and_close_names(
    make_skill: MakeSkill,
) -> None:
    folder = make_skill("on-top", 3, "matmull")
    (problem,) = prerequisite_problems(folder)
    assert (problem.path, problem.line) == (str(folder / "skill.toml"), 8)
    assert "no skill named 'matmull'; did you mean matmul?" in problem.message
    course = the_course(folder)
    assert names(course) == ["on-top"]
    assert course.faults == ("on-top: no skill named 'matmull'; known: none",)


def test_a_prerequisite_may_lie_where_skills_are_found(make_skill: MakeSkill) -> None:
    assert not prerequisite_problems(make_skill("builds-on-shipped", 5, "matmul"))


def test_a_prerequisite_on_a_higher_level_is_a_fault(make_skill: MakeSkill) -> None:
    make_skill("steep", 4)
    (problem,) = prerequisite_problems(make_skill("flat", 2, "steep"))
    assert "prerequisite 'steep' is on level 4, above 2" in problem.message


def test_a_skill_that_asks_for_itself_is_a_fault(make_skill: MakeSkill) -> None:
    folder = make_skill("narcissus", 1, "narcissus")
    (problem,) = prerequisite_problems(folder)
    assert problem.message == "the skill asks for itself"
    assert names(the_course(folder)) == ["narcissus"]


def test_a_circle_is_a_fault_of_each_skill_on_it_and_of_no_other(make_skill: MakeSkill) -> None:
    make_skill("hen", 1, "egg")
    make_skill("egg", 1, "nest")
    make_skill("nest", 1, "hen")
    chick = make_skill("chick", 1, "hen")
    (problem,) = prerequisite_problems(chick.parent / "egg")
    assert problem.message == "prerequisites go in a circle: egg -> nest -> hen -> egg"
    assert not prerequisite_problems(chick)
    course = the_course(chick)
    assert sorted(names(course)) == ["chick", "egg", "hen", "nest"]
    assert len(course.faults) == 3


def test_a_broken_prerequisite_is_the_fault_of_its_own_package(make_skill: MakeSkill) -> None:
    broken = make_skill("cracked", 1)
    (broken / "skill.toml").write_text('name = "cracked"\nversion = \n', encoding="utf-8")
    assert not prerequisite_problems(make_skill("builds-on-cracked", 2, "cracked"))


def test_the_picture_has_a_box_for_each_level_and_an_arrow_for_each_prerequisite(
    make_skill: MakeSkill,
) -> None:
    make_skill("end", 1)
    make_skill("chip", 2, kind="hardware")
    picture = mermaid_of(the_course(make_skill("goal", 2, "end")))
    assert picture == (
        "flowchart LR\n"
        '  subgraph level-1["level 1"]\n'
        '    skill-end(["end"])\n'
        "  end\n"
        '  subgraph level-2["level 2"]\n'
        '    skill-chip[["chip"]]\n'
        '    skill-goal(["goal"])\n'
        "  end\n"
        "  skill-end --> skill-goal\n"
    )


def test_the_picture_of_a_part_points_at_nothing_outside(make_skill: MakeSkill) -> None:
    make_skill("before", 1)
    course = the_course(make_skill("after", 2, "before"))
    assert "-->" not in mermaid_of(course.on_level(2))
