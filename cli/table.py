"""`skills table`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.exit_codes import INVALID
from kernel_skills.cli.options import AsJson
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.registry.models import Skill


def table(
    context: typer.Context,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FILE",
            help="Put the table of the skills/ beside FILE between its markers.",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Exit 3 where --write would change FILE."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the table of skills with measured figures, from the evidence in the packages.

    A ratio is the fastest baseline's median over the kernel's, in the same run: above 1 the kernel is faster. The
    least of all bench workloads is quoted, with the geometric mean beside it.

    Example: skills table --write README.md
    """
    from kernel_skills.cli.console import print_error, print_json, print_line
    from kernel_skills.executor.errors import UsageError
    from kernel_skills.registry.atomic_file import write_text
    from kernel_skills.registry.readme_table import markdown_table, table_rows, with_table

    if write is not None and check is not None:
        raise UsageError("--write and --check are one or the other")
    page = write or check
    before = _text_of(page) if page else ""
    rows = table_rows(_skills_beside(page) if page else _skills_found(context))
    made = markdown_table(rows, page.absolute().parent if page else None)
    if page is not None:
        after = with_table(before, made, str(page))
        if check is not None and after != before:
            print_error(
                f"{page}: the table is not that of the evidence; skills table --write {page}"
            )
            raise typer.Exit(INVALID)
        if write is not None and after != before:
            write_text(page, after)
    if as_json:
        print_json(rows)
    else:
        print_line(made.rstrip() if page is None else f"{page}: ok")


def _skills_found(context: typer.Context) -> tuple[Skill, ...]:
    from kernel_skills.registry.discovery import find_skills

    return find_skills(settings_of(context).skills_dir).skills


def _skills_beside(page: Path) -> tuple[Skill, ...]:
    """Return the skills of the repository that the page belongs to, and of no other place.

    Raises:
        InvalidPackage: one of them is broken: a table without it would hide that.
    """
    from kernel_skills.registry.discovery import find_skills

    folder = page.absolute().parent / "skills"
    if not folder.is_dir():
        return ()
    discovery = find_skills(folder)
    for broken in discovery.broken:
        if broken.path.parent == folder:
            raise broken.error
    return tuple(skill for skill in discovery.skills if skill.path.parent == folder)


def _text_of(page: Path) -> str:
    from kernel_skills.executor.errors import UsageError

    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise UsageError(f"cannot read {page}: {reason}") from error
