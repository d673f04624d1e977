"""`skills list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kernel_skills.cli.options import AsJson
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.registry.discovery import BrokenSkill, Discovery
    from kernel_skills.registry.models import Skill


def list_skills(context: typer.Context, as_json: AsJson = False) -> None:
    """List the skills that can be found from here.

    A package that does not load is listed with its error and spoils no other.

    Example: skills list --json
    """
    from kernel_skills.cli.console import print_json
    from kernel_skills.registry.discovery import find_skills

    discovery = find_skills(settings_of(context).skills_dir)
    if as_json:
        print_json(
            {
                "skills": [_described(skill) for skill in discovery.skills],
                "broken": [_broken(broken) for broken in discovery.broken],
            }
        )
    else:
        _print_table(discovery)


def _print_table(discovery: Discovery) -> None:
    from kernel_skills.cli.console import print_error, print_line, print_table

    if discovery.skills:
        columns = (
            "name",
            "version",
            "kind",
            "level",
            "definitions",
            "best measured",
            "from",
        )
        print_table(columns, [_row(skill) for skill in discovery.skills], right=("level",))
    elif not discovery.broken:
        print_line("no skills here; start one: skills new my-kernel")
    for broken in discovery.broken:
        first = str(broken.error).splitlines()[0]
        print_error(f"broken: {broken.name} (from {broken.source}): {first}")


def _row(skill: Skill) -> tuple[object, ...]:
    manifest = skill.manifest
    best = _best(skill)
    return (
        skill.name,
        skill.version,
        manifest.kind,
        manifest.level,
        ", ".join(definition.name for definition in manifest.definition),
        best.headline if best else "",
        skill.source,
    )


def _described(skill: Skill) -> dict[str, Any]:
    manifest = skill.manifest
    return {
        "name": skill.name,
        "version": str(skill.version),
        "kind": manifest.kind,
        "level": manifest.level,
        "summary": manifest.summary,
        "patterns": manifest.patterns,
        "definitions": [definition.name for definition in manifest.definition],
        "best": _best(skill),
        "source": skill.source,
        "path": str(skill.path),
    }


def _broken(broken: BrokenSkill) -> dict[str, str]:
    return {
        "name": broken.name,
        "source": broken.source,
        "path": str(broken.path),
        "error": str(broken.error),
    }


def _best(skill: Skill) -> Any:
    from kernel_skills.executor.errors import InvalidPackage
    from kernel_skills.registry.figures import best_figure, figures_of

    try:
        return best_figure(figures_of(skill))
    except InvalidPackage:
        # a variant's file is missing: `skills validate` says which, and a listing goes on
        return None
