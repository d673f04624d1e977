"""The console entry `skills` (also `kernel-skills`): global options, exit codes, the one place that prints errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from kernel_skills.cli.exit_codes import INTERRUPTED
from kernel_skills.cli.lazy_group import LazyGroup
from kernel_skills.cli.settings import Settings
from kernel_skills.executor.errors import KernelSkillsError

app = typer.Typer(
    cls=LazyGroup,
    invoke_without_command=True,
    # Rich would add 0.1 s to every --help
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        text = version("kernel-skills")
    except PackageNotFoundError:
        text = "(run from a source tree that is not installed)"
    typer.echo(f"kernel-skills {text}")
    raise typer.Exit()


@app.callback()
def skills(
    context: typer.Context,
    skills_dir: Annotated[
        str | None,
        typer.Option(
            "--skills-dir",
            metavar="DIR",
            help="Folder of skills that is searched before all others.",
        ),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Find, judge and author GPU kernel skills.

    Example: skills run flash-attn --target h100
    """
    context.obj = Settings(Path(skills_dir) if skills_dir else None, debug)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def run_command(arguments: Sequence[str], program: str = "skills") -> int:
    """Run one command line and return its exit code; errors are printed here and nowhere else."""
    debug = "--debug" in arguments
    try:
        result = get_command(app).main(
            args=list(arguments), prog_name=program, standalone_mode=False
        )
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except KernelSkillsError as error:
        if debug:
            raise
        return _complain(str(error), error.exit_code)
    except BrokenPipeError:
        # the reader of a pipe left (`skills list | head`); the interpreter must not flush into it again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    # The last resort of the process: a person at a terminal gets one line, whatever broke
    except Exception as error:
        if debug:
            raise
        return _complain(*_described(error))
    return result if isinstance(result, int) else 0


def main() -> None:
    """Console entry."""
    name = Path(sys.argv[0]).stem
    sys.exit(run_command(sys.argv[1:], name if name in ("skills", "kernel-skills") else "skills"))


def _described(error: Exception) -> tuple[str, int]:
    """Return the line for the person and the exit code of an error that is not ours."""
    show: Any = getattr(error, "format_message", None)
    if show is not None:
        context = getattr(error, "ctx", None)
        text = str(show()).rstrip(".")
        text = text[:1].lower() + text[1:]
        hint = f"; see `{context.command_path} --help`" if context is not None else ""
        return f"{text}{hint}", int(getattr(error, "exit_code", 2))
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}", 1
    return f"unexpected {type(error).__name__}: {error}; --debug shows where", 1


def _complain(text: str, exit_code: int) -> int:
    print(f"error: {text}", file=sys.stderr)
    return exit_code


if __name__ == "__main__":
    main()
