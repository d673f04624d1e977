"""`skills tune`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.console import (
    print_error,
    print_fields,
    print_json,
    print_line,
    print_table,
    progress,
)
from kernel_skills.cli.exit_codes import INTERRUPTED
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
)
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.registry.tune import Tuning
    from kernel_skills.registry.tune_search import Reading, Trial

_SHOWN_FAILURES = 10


def tune(
    context: typer.Context,
    name: SkillName,
    target: TargetName,
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            "-w",
            metavar="NAME|AXES",
            help="Shape: a workload's name, AXES like rows=4096,cols=512,T=float16, or NAME,AXES.",
        ),
    ],
    definition: DefinitionName = "",
    variant: VariantName = "",
    trials: Annotated[
        int, typer.Option("--trials", min=1, help="Most configurations to measure.")
    ] = 40,
    budget: Annotated[
        float, typer.Option("--budget", min=1, help="Seconds after which no trial begins.")
    ] = 300.0,
    device: DeviceIndex = 0,
    seed: Seed = 0,
    timeout: Seconds = 60.0,
    sandbox: SandboxName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Search a skill's tuning parameters for a shape; needs a fitting GPU (exit 6 without).

    Example: skills tune matmul --target h200 --workload m=300,n=4096,k=4096

    Every trial's output is checked before it is timed. The winner must beat the kernel's own choice by more than
    noise and pass the smoke and edge workloads; it is then kept for this shape, chip and toolchain, and `skills run`
    and `load_kernel` use it. Ctrl-C ends the search and keeps the best so far (exit 130).
    """
    from kernel_skills.executor.targets import find_target
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.tune import TuneOptions, tune_skill

    chip = find_target(target)
    skill = find_skill(name, settings_of(context).skills_dir)
    options = TuneOptions(
        workload=workload, definition=definition, variant=variant, trials=trials, budget_s=budget,
        device=device, seed=seed, timeout_s=timeout, sandbox=sandbox,
    )  # fmt: skip
    with progress(f"{skill.name} for {chip.name}", as_json=as_json) as display:

        def say(text: str) -> None:
            display.describe(text)
            if not sys.stderr.isatty() and not as_json:
                print_error(text)

        found = tune_skill(skill, chip, options, say)
    if as_json:
        print_json(found)
    else:
        _print(found)
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)


def _print(found: Tuning) -> None:
    shape = ", ".join(f"{axis}={length}" for axis, length in found.workload.axes.items())
    dtypes = ", ".join(f"{name}={dtype}" for name, dtype in found.workload.dtypes.items())
    how = "all tried" if found.method == "grid" else "sampled by TPE"
    ended = " (interrupted)" if found.interrupted else " (out of time)" if found.out_of_time else ""
    print_fields(
        [
            (
                "skill",
                f"{found.skill} {found.version}, {found.definition}, variant {found.variant}",
            ),
            ("shape", f"{found.workload.name}: {shape}; {dtypes}"),
            ("device", f"{found.device.hardware}, recorded as {found.target.name}"),
            (
                "space",
                f"{found.combinations} combinations, {how}, {len(found.trials)} trials{ended}",
            ),
        ]
    )
    print_line()
    _print_trials(found)
    print_line()
    _print_outcome(found)


def _print_trials(found: Tuning) -> None:
    from kernel_skills.registry.tune import words_of

    good = [trial for trial in found.trials if trial.reading.good]
    rows = [("default, before", *_times(found.pick.default[0]))]
    rows.append(("default, after", *_times(found.pick.default[-1])))
    rows += [(words_of(trial.config), *_times(trial.reading)) for trial in good]
    heads = ("configuration", "median ms", "p20", "p80", "verdict")
    print_table(heads, rows, right=heads[1:4])
    failed = [trial for trial in found.trials if not trial.reading.good]
    for trial in failed[:_SHOWN_FAILURES]:
        print_line(f"dropped {words_of(trial.config)}: {_why(trial)}")
    if len(failed) > _SHOWN_FAILURES:
        print_line(f"dropped {len(failed) - _SHOWN_FAILURES} more; --json lists them")


def _times(reading: Reading) -> tuple[str, str, str, str]:
    median, p20, p80 = (
        "" if value is None else f"{value:.4g}"
        for value in (reading.median_ms, reading.p20_ms, reading.p80_ms)
    )
    return median, p20, p80, reading.status


def _why(trial: Trial) -> str:
    return f"{trial.reading.status}: {trial.reading.reason}"


def _print_outcome(found: Tuning) -> None:
    from kernel_skills.registry.tune import words_of

    pick = found.pick
    if pick.winner is None:
        print_line(f"default kept: {pick.reason}")
        if found.stored:
            print_line("what an earlier search had kept for this shape is replaced by it")
        return
    print_line(f"kept: {words_of(pick.winner.config)}: {pick.reason}")
    passed = sum(item.status == "PASSED" for item in pick.verified)
    print_line(
        f"verified on {passed} of {len(pick.verified)} smoke and edge workloads that it fits"
    )
    print_line("`skills run` and load_kernel use it for this shape, chip and toolchain from now on")
