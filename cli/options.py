"""Options that several commands share, and how they are parsed."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
SkillName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Skill, or skill and version range: flash-attn@^1.", show_default=False
    ),
]
TargetName = Annotated[
    str | None,
    typer.Option("--target", "-t", metavar="TARGET", help="Chip, as `skills targets` lists it."),
]
