"""`skills judge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kernel_skills.cli.console import Progress, print_json, print_line
from kernel_skills.cli.console import progress as show_progress
from kernel_skills.cli.exit_codes import FAILED, INVALID, NO_DEVICE
from kernel_skills.cli.judge_progress import Phases, folder_progress
from kernel_skills.cli.options import (
    AsJson,
    DefinitionName,
    DeviceIndex,
    SandboxName,
    Seconds,
    Seed,
    TargetName,
)
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.judge import Report
    from kernel_skills.executor.problem_batch import Judges, JudgesOptions
    from kernel_skills.executor.problem_judge import Verdict


def judge(
    context: typer.Context,
    problem: Annotated[
        str,
        typer.Argument(
            help="A file in KernelBench's, FlashInfer-Bench's or our form, or a skill's name. With --opinfo: the solution."
        ),
    ],
    solution: Annotated[
        Path | None,
        typer.Argument(help="A kernel file, or a folder of them. Default: the problem's own file."),
    ] = None,
    target: TargetName = "h100",
    policy: Annotated[
        Literal["strict", "assist"],
        typer.Option("--policy", help="strict: own kernels only. assist: torch may remain."),
    ] = "strict",
    opinfo: Annotated[
        str,
        typer.Option(
            "--opinfo", metavar="OP", help="Judge on PyTorch's own samples of an operator: softmax."
        ),
    ] = "",
    dtypes: Annotated[
        str,
        typer.Option(
            "--dtypes",
            help="With --opinfo: float32,bfloat16. Default: the solution's DTYPES, else OP's.",
        ),
    ] = "",
    definition: DefinitionName = "",
    axes: Annotated[
        str, typer.Option("--axes", help="Lengths of a Definition's axes, as in rows=8,cols=64.")
    ] = "",
    workloads: Annotated[
        Path | None,
        typer.Option("--workloads", help="JSONL of a FlashInfer-Bench Definition's workloads."),
    ] = None,
    precision: Annotated[
        Literal["fp32", "fp16", "bf16"],
        typer.Option("--precision", help="Dtype of a KernelBench problem's inputs and parameters."),
    ] = "fp32",
    results: Annotated[
        Path | None,
        typer.Option("--results", help="JSONL of a folder's verdicts; what it holds is skipped."),
    ] = None,
    device: DeviceIndex = 0,
    seed: Seed = 0,
    timeout: Seconds = 60.0,
    sandbox: SandboxName = "embedded",
    as_json: AsJson = False,
) -> None:
    """Judge a kernel of your own against a problem: exit 0 accepted, 1 not, 3 the task itself refused, 6 no GPU to tell.

    Example: skills judge softmax.py my_softmax.py --target h100
    """
    from kernel_skills.executor.problem_batch import Judges, JudgesOptions
    from kernel_skills.executor.targets import find_target

    options = JudgesOptions.model_validate(
        {
            "policy": policy, "device": device, "seed": seed, "timeout_s": timeout,
            "sandbox": sandbox,
        }
    )  # fmt: skip
    phases = Phases()
    if opinfo:
        file = _sole_solution(problem, solution)
        with Judges(find_target(target), options) as judges:
            verdict: Verdict = _judge_samples(
                judges, opinfo, file, _words(dtypes), options, phases, as_json
            )
        _finish(verdict, phases, as_json)
        return
    file = _solution(problem, solution)
    with Judges(find_target(target), options) as judges:
        phases.enter("problem")
        _load(context, judges, problem, definition, _axes(axes), file, workloads, precision)
        if file.is_dir():
            judges.admit()
            _judge_folder(judges, file, results or file / "verdicts.jsonl", as_json)
            return
        verdict = _judge_file(judges, file, options, phases, as_json)
    _finish(verdict, phases, as_json)


# --- words ------------------------------------------------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _axes(text: str) -> dict[str, int]:
    from kernel_skills.executor.errors import UsageError

    axes = {}
    for part in _words(text):
        name, _, size = part.partition("=")
        if not size.strip().isdecimal():
            raise UsageError(f"--axes {text}: write NAME=LENGTH, joined by commas")
        axes[name.strip()] = int(size)
    return axes


def _solution(problem: str, solution: Path | None) -> Path:
    from kernel_skills.executor.errors import UsageError

    if solution is not None:
        return solution
    if not problem.endswith(".py"):
        raise UsageError(f"{problem}: name the solution, too; only a .py file may hold both")
    return Path(problem)


def _sole_solution(first: str, second: Path | None) -> Path:
    from kernel_skills.executor.errors import UsageError

    if second is not None:
        raise UsageError(f"--opinfo: the operator is the problem; leave {first} away")
    if Path(first).is_dir():
        raise UsageError(f"--opinfo: {first} is a folder; name one solution")
    return Path(first)


def _load(
    context: typer.Context,
    judges: Judges,
    problem: str,
    definition: str,
    axes: dict[str, int],
    solution: Path,
    workloads: Path | None,
    precision: str,
) -> None:
    """Load the problem: a file where there is one, else a skill."""
    if problem.endswith((".py", ".json")) or Path(problem).is_file():
        judges.load(Path(problem), axes, workloads=workloads, precision=precision)
        return
    from kernel_skills.executor.errors import UsageError
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.skill_problem import problem_of

    for option, given in (("--axes", axes), ("--workloads", workloads)):
        if given:
            raise UsageError(f"{option}: a skill's workloads say their axes")
    if precision != "fp32":
        raise UsageError("--precision: a skill's workloads say their dtypes")
    skill = find_skill(problem, settings_of(context).skills_dir)
    judges.take(*problem_of(skill, definition, solution))


# --- judging ----------------------------------------------------------------------------------


def _reporting(display: Progress, phases: Phases) -> Report:
    def report(stage: str, at: int, of: int, what: str) -> None:
        # lint and compiler had their turn before, and the judge says so of its empty lint
        if stage != "lint":
            phases.enter(stage)
        display.describe(f"{stage} {at}/{of} {what}")

    return report


def _judge_file(
    judges: Judges, file: Path, options: JudgesOptions, phases: Phases, as_json: bool
) -> Verdict:
    """Lint and compile first: what they reject needs no reference."""
    from kernel_skills.executor.problem_judge import TaskRefused, refused

    with show_progress(f"{file.name} for {judges.target.name}", as_json=as_json) as display:
        phases.enter("lint and compile")
        request = judges.request(file)
        prepared = judges.prepare(request)
        if early := judges.rejected(request, prepared):
            return early
        display.describe("admit the task")
        phases.enter("admit")
        try:
            judges.admit()
        except TaskRefused as error:
            return refused(judges.problem, file.stem, judges.target, options.policy, str(error))
        phases.enter("verify")
        return judges.finish(request, prepared, _reporting(display, phases))


def _judge_samples(
    judges: Judges,
    op: str,
    file: Path,
    dtypes: tuple[str, ...],
    options: JudgesOptions,
    phases: Phases,
    as_json: bool,
) -> Verdict:
    from kernel_skills.executor.opinfo import judge_samples

    with show_progress(f"{file.name} as {op}", as_json=as_json) as display:
        return judge_samples(judges, op, file, dtypes, options, _reporting(display, phases))


def _judge_folder(judges: Judges, folder: Path, results: Path, as_json: bool) -> None:
    from kernel_skills.cli.judge_report import print_lines
    from kernel_skills.executor.problem_batch import solution_files

    with folder_progress(solution_files(folder), results, as_json) as state:
        lines = judges.judge_folder(folder, results, state.finished, state.working)
    if as_json:
        print_json(lines)
    else:
        print_lines(lines)
        print_line(f"{state.accepted} of {len(lines)} accepted; verdicts in {results}")
    if state.accepted < len(lines):
        raise typer.Exit(FAILED)


def _finish(verdict: Verdict, phases: Phases, as_json: bool) -> None:
    """Print the verdict and exit as it says."""
    from kernel_skills.cli.judge_report import print_verdict

    verdict = verdict.model_copy(update={"seconds": phases.seconds()})
    if as_json:
        print_json(verdict)
    else:
        print_verdict(verdict)
    codes = {"TASK_REFUSED": INVALID, "SKIPPED": NO_DEVICE}
    if not verdict.accepted:
        raise typer.Exit(codes.get(verdict.outcome, FAILED))
