"""Collect Problems of one package, each at its file and line."""

from __future__ import annotations

from pathlib import Path

from kernel_skills.registry.manifest import MANIFEST_NAME
from kernel_skills.registry.models import Problem
from kernel_skills.registry.toml_lines import Place, TomlLines


class Findings:
    """What is wrong with the package in `folder`, whose manifest has the text `manifest_text`."""

    def __init__(self, folder: Path, manifest_text: str) -> None:
        self._folder = folder
        self._lines = TomlLines(manifest_text)
        self._found: list[Problem] = []

    def at(self, place: Place, rule: str, message: str, mend: str = "") -> None:
        """Note a problem of a place in skill.toml."""
        self.add(MANIFEST_NAME, self._lines.line_of(place), rule, message, mend)

    def add(self, path: str, line: int | None, rule: str, message: str, mend: str = "") -> None:
        """Note a problem of a file of the package, given by its relative path."""
        file = str(self._folder / path)
        self.take(Problem(path=file, line=line, rule=rule, message=message, mend=mend))

    def take(self, *problems: Problem) -> None:
        self._found.extend(problems)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Each once, by file and line."""
        unique = dict.fromkeys(self._found)
        return tuple(sorted(unique, key=lambda problem: (problem.path, problem.line or 0)))
