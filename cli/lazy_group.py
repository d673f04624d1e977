"""A command group that imports a command's file only when that command is run."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from itertools import groupby
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from kernel_skills.cli.command_table import COMMANDS
from kernel_skills.executor.errors import UsageError

# Typer took Click in between two of its releases, so Click's classes have two homes: `Any` stands for them.
_GLOBAL_FLAGS = ("--debug",)
_GLOBAL_VALUES = ("--skills-dir",)


class LazyGroup(TyperGroup):
    """The commands of `COMMANDS`; global options may stand before or after the command's name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        if ctx.resilient_parsing:
            return None
        near = get_close_matches(cmd_name, COMMANDS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "see `skills --help`"
        raise UsageError(f"no command named {cmd_name!r}; {hint}")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _global_options_first(args))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, COMMANDS))
        for group, commands in groupby(COMMANDS.items(), key=lambda item: item[1].group):
            with formatter.section(group):
                formatter.write_dl([(name.ljust(width), entry.summary) for name, entry in commands])


def load_command(name: str) -> Any:
    """Import a command's file and return its Click command."""
    entry = COMMANDS[name]
    function = getattr(import_module(f"kernel_skills.cli.{entry.module}"), entry.function)
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name)(function)
    return get_command(app)


def _global_options_first(args: list[str]) -> list[str]:
    """Move the global options to the front; what follows `--` stays where it is."""
    front: list[str] = []
    rest: list[str] = []
    words = iter(args)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _GLOBAL_FLAGS or word.startswith(tuple(f"{o}=" for o in _GLOBAL_VALUES)):
            front.append(word)
        elif word in _GLOBAL_VALUES:
            value = next(words, None)
            if value is None:
                raise UsageError(f"option {word} needs a value; see `skills --help`")
            front += [word, value]
        else:
            rest.append(word)
    return front + rest
