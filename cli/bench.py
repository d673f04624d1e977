"""`skills bench`."""

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


def bench(
    context: typer.Context,
    name: SkillName,
    target: TargetName,
    workload: WorkloadName = "",
    definition: DefinitionName = "",
    variant: VariantName = "",
    device: DeviceIndex = 0,
    seed: Seed = 0,
    timeout: Seconds = 120.0,
    sandbox: SandboxName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Measure a skill beside its baselines; needs a fitting GPU (exit 6 without).

    Example: skills bench matmul --target h200 --workload square-4096
    """
    run_stages(
        context, name, target, as_json, stages=("lint", "bench"), workload=workload, definition=definition,
        variant=variant, device=device, seed=seed, timeout_s=timeout, sandbox=sandbox, require_hardware=True,
    )  # fmt: skip
