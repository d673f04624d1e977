"""`skills new`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_skills.cli.options import AsJson
from kernel_skills.cli.settings import settings_of


def new(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Lower-case words joined by hyphens.", show_default=False
        ),
    ],
    kernel: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="KERNEL.py",
            help="Existing file with a Triton kernel and the function that launches it.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="Folder of skills to write to. Default: --skills-dir, else ./skills.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Start a skill, from nothing or around a kernel.

    From nothing the package is complete and its kernel right: put your operator in its place. A kernel file is read,
    never run; what its text does not say is guessed and listed.

    Example: skills new fused-gelu --from gelu.py
    """
    from kernel_skills.cli.console import print_json, print_line
    from kernel_skills.registry.scaffold import new_skill

    parent = folder or settings_of(context).skills_dir or Path("skills")
    made = new_skill(name, parent, kernel)
    if as_json:
        print_json(
            {"name": name, "path": str(made.folder), "files": made.files, "notes": made.notes}
        )
        return
    print_line(f"wrote {made.folder}")
    for file in made.files:
        print_line(f"  {file}")
    for note in made.notes:
        print_line(f"- {note}")
    print_line(f"next: skills validate {made.folder}")
