"""`skills run`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.console import print_error
from kernel_skills.cli.judging import execute, finish
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

if TYPE_CHECKING:
    from kernel_skills.registry.run import SkillRun


def run(
    context: typer.Context,
    name: SkillName,
    target: TargetName,
    workload: WorkloadName = "",
    definition: DefinitionName = "",
    variant: VariantName = "",
    all_variants: Annotated[
        bool, typer.Option("--all-variants", help="Run every variant that fits, not the best only.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the roofline to this PNG or SVG file.")
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Also append the Traces to the skill's own evidence/.")
    ] = False,
    require_hardware: Annotated[
        bool, typer.Option("--require-hardware", help="Exit 6 unless a fitting GPU is here.")
    ] = False,
    device: DeviceIndex = 0,
    seed: Seed = 0,
    timeout: Seconds = 120.0,
    sandbox: SandboxName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Lint, compile, verify and measure a skill, or compile and verify where its chip is missing.

    Example: skills run flash-attn --target h100
    """
    from kernel_skills.executor.roofline_plot import check_picture
    from kernel_skills.registry.run import RunOptions

    options = RunOptions(
        workload=workload, definition=definition, variant=variant, all_variants=all_variants, device=device,
        record=record, require_hardware=require_hardware, seed=seed, timeout_s=timeout, sandbox=sandbox,
    )  # fmt: skip
    if plot is not None:
        check_picture(plot)
    outcome = execute(context, name, target, options, as_json)
    if plot is not None:
        _draw(outcome, plot)
    finish(outcome)


def _draw(outcome: SkillRun, path: Path) -> None:
    from kernel_skills.cli.run_picture import draw_run

    print_error(f"roofline: {draw_run(outcome, path)}")
