"""`skills path`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.options import AsJson
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.registry.learning_path import Course


class Picture(StrEnum):
    """How the course is shown to people."""

    table = "table"
    mermaid = "mermaid"


def path(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="[NAME]", help="Only what leads to this skill.", show_default=False),
    ] = "",
    level: Annotated[
        int | None,
        typer.Option("--level", min=1, max=5, help="Only this level: 1 first kernel, 5 research."),
    ] = None,
    picture: Annotated[
        Picture, typer.Option("--format", help="A table, or a Mermaid flow chart.")
    ] = Picture.table,
    as_json: AsJson = False,
) -> None:
    """List the skills as a graded course: by level, each after what it builds on.

    Example: skills path flash-attn
    """
    from kernel_skills.cli.console import print_error, print_json, print_line
    from kernel_skills.executor.errors import UsageError
    from kernel_skills.registry.discovery import find_skills
    from kernel_skills.registry.learning_path import course_of, mermaid_of

    if as_json and picture is Picture.mermaid:
        raise UsageError("--json and --format mermaid are one or the other")
    course = course_of(find_skills(settings_of(context).skills_dir).skills)
    if name:
        course = course.leading_to(name)
    if level is not None:
        course = course.on_level(level)
    if as_json:
        print_json(course)
        return
    for fault in course.faults:
        print_error(f"course: {fault}")
    if picture is Picture.mermaid:
        print_line(mermaid_of(course).rstrip())
    else:
        _print_table(course)


def _print_table(course: Course) -> None:
    from kernel_skills.cli.console import print_line, print_table

    if not course.steps:
        print_line("no skills here; start one: skills new my-kernel")
        return
    print_table(
        ("level", "skill", "kind", "after", "about"),
        [
            (step.level, step.name, step.kind, ", ".join(step.prerequisites), step.summary)
            for step in course.steps
        ],
        right=("level",),
    )
