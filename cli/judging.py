"""What the commands that judge a skill share: their options, and how the run is shown."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_skills.cli.console import Progress, print_error, print_json, progress
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.judge import Report
    from kernel_skills.registry.run import RunOptions, SkillRun

Name = Annotated[str, typer.Argument(help="Skill, or skill@version, e.g. flash-attn.")]
TargetName = Annotated[
    str, typer.Option("--target", help="Chip to run for, e.g. h100; `skills targets` lists them.")
]
WorkloadName = Annotated[str, typer.Option("--workload", help="Only the workload of this name.")]
DefinitionName = Annotated[
    str, typer.Option("--definition", help="Only this definition of the skill.")
]
VariantName = Annotated[str, typer.Option("--variant", help="Only this variant of the skill.")]
DeviceIndex = Annotated[int, typer.Option("--device", min=0, help="Index of the GPU to use.")]
Seconds = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds for one request to a candidate.")
]
Seed = Annotated[int, typer.Option("--seed", help="Public part of the seed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def run_stages(
    context: typer.Context, name: str, target: str, as_json: bool, **options: Any
) -> None:
    from kernel_skills.registry.run import RunOptions

    finish(execute(context, name, target, RunOptions(**options), as_json))


def execute(
    context: typer.Context, name: str, target: str, options: RunOptions, as_json: bool
) -> SkillRun:
    from kernel_skills.cli.run_report import print_run
    from kernel_skills.executor.targets import find_target
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.run import run_skill

    chip = find_target(target)
    skill = find_skill(name, settings_of(context).skills_dir)
    with progress(f"{skill.name} for {chip.name}", as_json=as_json) as display:
        report = _reporter(display, quiet=as_json or sys.stderr.isatty())
        outcome = run_skill(skill, chip, options, report)
    if as_json:
        print_json(outcome)
    else:
        print_run(outcome)
    return outcome


def _reporter(display: Progress, quiet: bool) -> Report:
    """Return what shows progress: beside the bar on a terminal, else as lines for a log."""
    start = time.monotonic()

    def report(stage: str, done: int, total: int, what: str) -> None:
        line = f"{stage} {done}/{total} {what}"
        display.describe(line)
        if not quiet:
            print_error(f"[{time.monotonic() - start:6.1f} s] {line}")

    return report


def finish(outcome: SkillRun) -> None:
    if not outcome.accepted:
        raise typer.Exit(1)
