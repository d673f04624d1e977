"""`skills doctor`."""

from __future__ import annotations

import typer

from kernel_skills.cli.exit_codes import FAILED
from kernel_skills.cli.options import AsJson


def doctor(as_json: AsJson = False) -> None:
    """Say what this machine can do, and mend what is missing.

    Exits 1 where something is broken that every run needs; a missing GPU or extra is no failure.

    Example: skills doctor --json
    """
    from kernel_skills.cli.console import print_json, print_line, print_table, progress
    from kernel_skills.executor.doctor import diagnose
    from kernel_skills.registry.home import data_home

    with progress("asking torch and triton", as_json=as_json):
        diagnosis = diagnose(data_home())
    if as_json:
        print_json({"able": diagnosis.able, "checks": diagnosis.checks})
    else:
        checks = diagnosis.checks
        print_table(("check", "status", "detail"), [(c.name, c.status, c.detail) for c in checks])
        lacking = [check for check in checks if check.status != "ok"]
        if lacking:
            print_line()
        for check in lacking:
            print_line(f"{check.name}: {check.mend}")
    if not diagnosis.able:
        raise typer.Exit(FAILED)
