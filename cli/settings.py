"""The options that hold for every command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer


@dataclass(frozen=True)
class Settings:
    skills_dir: Path | None = None
    """Searched first for skills; None: only the usual places."""
    debug: bool = False


def settings_of(context: typer.Context) -> Settings:
    """Return the global options of a running command."""
    settings = context.find_object(Settings)
    return settings if settings is not None else Settings()
