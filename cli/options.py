"""The options and arguments that several commands share, each said once."""

from __future__ import annotations

import os
import re
from typing import Annotated, Literal

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


def device_index(text: str | int) -> int:
    """Return the index of a device; a UUID leaves that one alone visible to the workers, which count it as 0."""
    words = str(text)
    if words.isdecimal():
        return int(words)
    if not re.fullmatch(r"(GPU|MIG)-[\w/-]+", words):
        raise typer.BadParameter("an index, or a UUID as `nvidia-smi -L` prints it")
    # the only name that a partition of a GPU has for CUDA
    os.environ["CUDA_VISIBLE_DEVICES"] = words
    return 0


DeviceIndex = Annotated[
    int,
    typer.Option(
        "--device",
        parser=device_index,
        metavar="INDEX",
        help="GPU to use: an index as torch counts, or a UUID, GPU-… or MIG-….",
    ),
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
SandboxName = Annotated[
    Literal["auto", "embedded", "strong"],
    typer.Option(
        "--sandbox",
        help="What keeps kernels from this machine: embedded, strong (bubblewrap), or auto.",
    ),
]
