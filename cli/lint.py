"""`skills lint`."""

from __future__ import annotations

import typer

from kernel_skills.cli.judging import run_stages
from kernel_skills.cli.options import AsJson, DefinitionName, SkillName, TargetName, VariantName


def lint(
    context: typer.Context,
    name: SkillName,
    target: TargetName = "h100",
    definition: DefinitionName = "",
    variant: VariantName = "",
    as_json: AsJson = False,
) -> None:
    """Lint the variants of a skill without running them.

    Example: skills lint rms-norm
    """
    run_stages(
        context, name, target, as_json, stages=("lint",), definition=definition, variant=variant
    )
