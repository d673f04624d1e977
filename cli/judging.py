"""What the commands that judge a skill share: the run, its progress and how it is shown."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from kernel_skills.cli.console import Progress, print_error, print_json, progress
from kernel_skills.cli.exit_codes import FAILED
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.judge import Report
    from kernel_skills.registry.run import RunOptions, SkillRun


def run_stages(
    context: typer.Context, name: str, target: str, as_json: bool, **options: Any
) -> None:
    """Run a skill and show it; exit 1 unless it is accepted.

    Args:
        options: fields of `RunOptions`.
    """
    from kernel_skills.registry.run import RunOptions

    finish(execute(context, name, target, RunOptions(**options), as_json))


def execute(
    context: typer.Context, name: str, target: str, options: RunOptions, as_json: bool
) -> SkillRun:
    """Run a skill with a progress display, print what was found and return it."""
    from kernel_skills.cli.run_report import print_run
    from kernel_skills.executor.targets import find_target
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.run import run_skill

    chip = find_target(target)
    skill = find_skill(name, settings_of(context).skills_dir)
    with progress(f"{skill.name} for {chip.name}", as_json=as_json) as display:
        report = reporter(display, quiet=as_json or sys.stderr.isatty())
        outcome = run_skill(skill, chip, options, report)
    if as_json:
        print_json(outcome)
    else:
        print_run(outcome)
    return outcome


def reporter(display: Progress, quiet: bool) -> Report:
    """Return what shows progress: beside the bar on a terminal, else as lines for a log."""
    start = time.monotonic()

    def report(stage: str, done: int, total: int, what: str) -> None:
        line = f"{stage} {done}/{total} {what}"
        display.describe(line)
        if not quiet:
            print_error(f"[{time.monotonic() - start:6.1f} s] {line}")

    return report


def finish(outcome: SkillRun) -> None:
    """Exit 1 unless everything that ran passed; where nothing could be verified, nothing failed."""
    if outcome.verdict == "not accepted":
        raise typer.Exit(FAILED)
