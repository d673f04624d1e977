"""The options and arguments that several commands share, each said once."""

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

# --- which chip -------------------------------------------------------------------------------

_ON_CHIP = typer.Option(
    "--target", "-t", metavar="TARGET", help="Chip, e.g. h100; `skills targets` lists them."
)
TargetName = Annotated[str, _ON_CHIP]
AnyTarget = Annotated[str | None, _ON_CHIP]
DeviceIndex = Annotated[
    int, typer.Option("--device", min=0, help="Index of the GPU to use, as torch counts.")
]

# --- which part of a skill --------------------------------------------------------------------

WorkloadName = Annotated[
    str, typer.Option("--workload", "-w", metavar="NAME", help="Only the workload of this name.")
]
DefinitionName = Annotated[
    str, typer.Option("--definition", metavar="NAME", help="Only this definition of the skill.")
]
VariantName = Annotated[
    str, typer.Option("--variant", metavar="NAME", help="Only this variant of the skill.")
]

# --- how --------------------------------------------------------------------------------------

Seconds = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds for one request to a candidate.")
]
Seed = Annotated[int, typer.Option("--seed", help="Public part of the seed.")]
