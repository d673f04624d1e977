"""`skills validate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_skills.cli.exit_codes import INVALID
from kernel_skills.cli.options import AsJson


def validate(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH...", help="Skill folders, or folders of them.", show_default=False
        ),
    ],
    static: Annotated[
        bool, typer.Option("--static", help="Read only: do not run the references.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check skill folders against the package contract.

    References run on their smoke workloads, in a process of their own. Prints one line for each problem, FILE:LINE: RULE: what is wrong; the mend. Exits 3 where there is one.

    Example: skills validate skills/rms-norm
    """
    from kernel_skills.cli.console import print_json, print_line, progress
    from kernel_skills.registry.package_paths import package_folders
    from kernel_skills.registry.validate import validate_package
    from kernel_skills.registry.validate_reference import UNFINISHED, validate_references

    folders = package_folders(paths)
    found = {folder: validate_package(folder) for folder in folders}
    if not static:
        with progress("running the references", as_json=as_json):
            for folder, problems in found.items():
                if not problems:
                    found[folder] = validate_references(folder)
    broken = [
        folder for folder, problems in found.items() if any(p.rule != UNFINISHED for p in problems)
    ]
    if as_json:
        print_json(
            {
                "valid": not broken,
                "packages": [
                    {"path": str(folder), "problems": problems}
                    for folder, problems in found.items()
                ],
            }
        )
    else:
        for folder, problems in found.items():
            for problem in problems:
                place = problem.path if problem.line is None else f"{problem.path}:{problem.line}"
                mend = f"; {problem.mend}" if problem.mend else ""
                print_line(f"{place}: {problem.rule}: {problem.message}{mend}")
            if folder not in broken:
                print_line(f"{folder}: ok")
    if broken:
        raise typer.Exit(INVALID)
