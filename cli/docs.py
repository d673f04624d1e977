"""`skills docs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_skills.cli.options import AsJson, SkillName
from kernel_skills.cli.settings import settings_of


def docs(
    context: typer.Context,
    name: SkillName,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FILE", help="Write here: .md or .html. Default: print Markdown."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page about a skill, in Markdown or HTML.

    Made from manifest, notes and evidence.

    Example: skills docs rms-norm --out rms-norm.html
    """
    from kernel_skills.cli.console import print_json, print_line
    from kernel_skills.executor.errors import UsageError
    from kernel_skills.registry.atomic_file import write_text
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.docs_page import docs_page

    if out is not None and out.suffix.lower() not in (".md", ".html", ".htm"):
        raise UsageError(f"cannot write {out.name!r}; end the name in .md or .html")
    skill = find_skill(name, settings_of(context).skills_dir)
    page = docs_page(skill, "markdown" if out is None or out.suffix.lower() == ".md" else "html")
    if out is not None:
        write_text(out, page)
    if as_json:
        print_json(
            {"name": skill.name, "file": str(out)} if out else {"name": skill.name, "page": page}
        )
    else:
        print_line(f"wrote {out}" if out else page.rstrip())
