"""`skills verify`."""

from __future__ import annotations

import typer

from kernel_skills.cli.judging import run_stages
from kernel_skills.cli.options import (
    AsJson,
    DefinitionName,
    DeviceIndex,
    SandboxName,
    Seconds,
    Seed,
    SkillName,
    TargetName,
    VariantName,
    WorkloadName,
)


def verify(
    context: typer.Context,
    name: SkillName,
    target: TargetName = "h100",
    workload: WorkloadName = "",
    definition: DefinitionName = "",
    variant: VariantName = "",
    device: DeviceIndex = 0,
    seed: Seed = 0,
    timeout: Seconds = 120.0,
    sandbox: SandboxName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Verify a skill against its float64 reference, on the GPU or in the interpreter.

    Example: skills verify rms-norm --workload odd-width
    """
    run_stages(
        context, name, target, as_json, stages=("lint", "verify"), workload=workload, definition=definition,
        variant=variant, device=device, seed=seed, timeout_s=timeout, sandbox=sandbox, all_variants=True,
    )  # fmt: skip
