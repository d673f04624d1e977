"""`skills compile`."""

from __future__ import annotations

import typer

from kernel_skills.cli.judging import run_stages
from kernel_skills.cli.options import (
    AsJson,
    DefinitionName,
    Seconds,
    SkillName,
    TargetName,
    VariantName,
    WorkloadName,
)


def compile_(
    context: typer.Context,
    name: SkillName,
    target: TargetName,
    workload: WorkloadName = "",
    definition: DefinitionName = "",
    variant: VariantName = "",
    timeout: Seconds = 120.0,
    as_json: AsJson = False,
) -> None:
    """Compile a skill for a chip, present or not: registers, spills, shared memory, occupancy.

    Example: skills compile matmul --target mi300x
    """
    run_stages(
        context, name, target, as_json, stages=("lint", "compile"), workload=workload,
        definition=definition, variant=variant, timeout_s=timeout, all_variants=True,
    )  # fmt: skip
