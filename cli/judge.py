"""`skills judge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.console import print_error, print_fields, print_json, print_line, print_table
from kernel_skills.cli.console import progress as show_progress
from kernel_skills.cli.options import AsJson, DefinitionName, DeviceIndex, Seconds, Seed
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.problem_batch import Judges, Line
    from kernel_skills.executor.problem_judge import Verdict

_REFUSED = 3
_NO_DEVICE = 6


def judge(
    context: typer.Context,
    problem: Annotated[
        str,
        typer.Argument(
            help="A file in KernelBench's, FlashInfer-Bench's or our form, or a skill's name."
        ),
    ],
    solution: Annotated[
        Path | None,
        typer.Argument(help="A kernel file, or a folder of them. Default: the problem's own file."),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="Chip to judge for; `skills targets` lists them.")
    ] = "h100",
    policy: Annotated[
        str, typer.Option("--policy", help="strict: own kernels only. assist: torch may remain.")
    ] = "strict",
    definition: DefinitionName = "",
    axes: Annotated[
        str, typer.Option("--axes", help="Lengths of a Definition's axes, as in rows=8,cols=64.")
    ] = "",
    results: Annotated[
        Path | None,
        typer.Option("--results", help="JSONL of a folder's verdicts; what it holds is skipped."),
    ] = None,
    device: DeviceIndex = 0,
    seed: Seed = 0,
    timeout: Seconds = 60.0,
    as_json: AsJson = False,
) -> None:
    """Judge a kernel of your own against a problem: exit 0 accepted, 1 not, 3 the task itself refused.

    Example: skills judge softmax.py my_softmax.py --target h100
    """
    from kernel_skills.executor.problem_batch import Judges, JudgesOptions
    from kernel_skills.executor.problem_judge import TaskRefused, refused
    from kernel_skills.executor.targets import find_target

    options = JudgesOptions.model_validate(
        {"policy": _policy(policy), "device": device, "seed": seed, "timeout_s": timeout}
    )
    file = _solution(problem, solution)
    with Judges(find_target(target), options) as judges:
        _load(context, judges, problem, definition, _axes(axes), file)
        if file.is_dir():
            judges.admit()
            _judge_folder(judges, file, results or file / "verdicts.jsonl", as_json)
            return
        try:
            verdict = _judge_file(judges, file, as_json)
        except TaskRefused as error:
            verdict = refused(judges.problem, file.stem, judges.target, options.policy, str(error))
    if as_json:
        print_json(verdict)
    else:
        _print_verdict(verdict)
    _exit(verdict)


def _policy(text: str) -> str:
    from kernel_skills.executor.errors import UsageError

    if text not in ("strict", "assist"):
        raise UsageError(f"--policy {text}: strict or assist")
    return text


def _axes(text: str) -> dict[str, int]:
    from kernel_skills.executor.errors import UsageError

    axes = {}
    for part in filter(None, text.split(",")):
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


def _load(
    context: typer.Context,
    judges: Judges,
    problem: str,
    definition: str,
    axes: dict[str, int],
    solution: Path,
) -> None:
    """Load the problem: a file where there is one, else a skill."""
    if problem.endswith((".py", ".json")) or Path(problem).is_file():
        judges.load(Path(problem), axes)
        return
    from kernel_skills.executor.errors import UsageError
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.skill_problem import problem_of

    if axes:
        raise UsageError("--axes: a skill's workloads say their axes")
    skill = find_skill(problem, settings_of(context).skills_dir)
    judges.take(*problem_of(skill, definition, solution))


def _judge_file(judges: Judges, file: Path, as_json: bool) -> Verdict:
    """Lint and compile first: what they reject needs no reference."""
    with show_progress(f"{file.name} for {judges.target.name}", as_json=as_json) as display:
        request = judges.request(file)
        prepared = judges.prepare(request)
        if early := judges.rejected(request, prepared):
            return early
        display.describe("admit the task")
        judges.admit()
        return judges.finish(
            request, prepared, lambda stage, at, of, what: display.describe(f"{stage} {at}/{of} {what}")
        )  # fmt: skip


def _judge_folder(judges: Judges, folder: Path, results: Path, as_json: bool) -> None:
    from kernel_skills.executor.problem_batch import solution_files

    total = len(solution_files(folder))
    with show_progress(f"{folder.name}: 0 accepted", total, as_json) as display:
        accepted = 0

        def done(line: Line, known: bool) -> None:
            nonlocal accepted
            accepted += line.verdict.accepted
            display.describe(f"{line.file}: {line.verdict.outcome}; {accepted} accepted so far")
            display.advance()
            if not as_json and not known:
                print_error(f"{line.file}: {line.verdict.verdict}, {line.verdict.outcome}")

        lines = judges.judge_folder(folder, results, done)
    if as_json:
        print_json(lines)
    else:
        _print_lines(lines)
        print_line(f"{accepted} of {len(lines)} accepted; verdicts in {results}")
    if accepted < len(lines):
        raise typer.Exit(1)


def _print_lines(lines: list[Line]) -> None:
    rows = []
    for line in lines:
        performance = line.verdict.figures.performance
        rows.append(
            (
                line.file, line.verdict.verdict, line.verdict.outcome,
                f"{performance.latency_ms:.4g}" if performance else "",
                f"{performance.speedup_factor:.3g}" if performance else "",
                line.verdict.log.strip().split("\n")[-1][:120],
            )
        )  # fmt: skip
    columns = ("file", "verdict", "outcome", "ms", "speed-up", "why")
    print_table(columns, rows, right=("ms", "speed-up"))


def _print_verdict(verdict: Verdict) -> None:
    figures = verdict.figures
    level = f" at level {verdict.level}" if verdict.level else ""
    print_line(f"{verdict.verdict}: {verdict.solution} for {verdict.problem}{level}")
    error = figures.max_absolute_error
    print_fields(
        [
            ("outcome", verdict.outcome),
            ("why", verdict.log.strip()),
            ("policy", verdict.policy),
            ("target", verdict.target),
            ("comparisons", figures.comparisons or ""),
            ("largest error", "" if error is None else f"{error:.3g}"),
            ("of the limit", "" if figures.bound_share is None else f"{figures.bound_share:.2f}"),
        ]
    )
    for finding in verdict.findings:
        print_line(f"  {finding}")
    if performance := figures.performance:
        print_line(f"{performance.latency_ms:.4g} ms, {performance.speedup_factor:.3g} times eager")
    for warning in verdict.warnings:
        print_line(f"warning: {warning}")
    for check in verdict.checks_not_run:
        print_line(f"not checked: {check}")


def _exit(verdict: Verdict) -> None:
    codes = {"TASK_REFUSED": _REFUSED, "SKIPPED": _NO_DEVICE}
    if not verdict.accepted:
        raise typer.Exit(codes.get(verdict.outcome, 1))
