"""Every command's name, place and one line of help, so that `skills --help` imports none of them.

To add a command: write its file, then add one line here. A test compares the lines with the docstrings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """Where a command's function is, and how help lists it."""

    group: str
    module: str
    function: str
    summary: str
    """First line of the function's docstring."""


_JUDGE, _READ, _AUTHOR, _MACHINE = "Judge and measure", "Find and read", "Author", "This machine"

COMMANDS: Mapping[str, Command] = {
    "run": Command(
        _JUDGE,
        "run",
        "run",
        "Lint, compile, verify and measure a skill, or compile and verify where its chip is missing.",
    ),
    "lint": Command(_JUDGE, "lint", "lint", "Lint the variants of a skill without running them."),
    "compile": Command(
        _JUDGE,
        "compile",
        "compile_",
        "Compile a skill for a chip, present or not: registers, spills, shared memory, occupancy.",
    ),
    "verify": Command(
        _JUDGE,
        "verify",
        "verify",
        "Verify a skill against its float64 reference, on the GPU or in the interpreter.",
    ),
    "bench": Command(
        _JUDGE,
        "bench",
        "bench",
        "Measure a skill beside its baselines; needs a fitting GPU (exit 6 without).",
    ),
    "profile": Command(
        _JUDGE,
        "profile",
        "profile",
        "Say what holds a skill's kernels back: GPU counters by ncu, or the analytic roofline.",
    ),
    "tune": Command(
        _JUDGE,
        "tune",
        "tune",
        "Search a skill's tuning parameters for a shape; needs a fitting GPU (exit 6 without).",
    ),
    "judge": Command(
        _JUDGE,
        "judge",
        "judge",
        "Judge a kernel of your own against a problem: exit 0 accepted, 1 not, 3 the task itself refused, 6 no GPU to tell.",
    ),
    "list": Command(
        _READ, "list_skills", "list_skills", "List the skills that can be found from here."
    ),
    "show": Command(
        _READ, "show", "show", "Show a skill: contract, variants, workloads, evidence."
    ),
    "path": Command(
        _READ,
        "path",
        "path",
        "List the skills as a graded course: by level, each after what it builds on.",
    ),
    "traces": Command(_READ, "traces", "traces", "List the evidence of a skill, newest first."),
    "docs": Command(_READ, "docs", "docs", "Write a page about a skill, in Markdown or HTML."),
    "table": Command(
        _READ,
        "table",
        "table",
        "Make the table of skills with measured figures, from the evidence in the packages.",
    ),
    "targets": Command(
        _READ, "targets", "targets", "List the known chips, or show one with its sources."
    ),
    "new": Command(_AUTHOR, "new", "new", "Start a skill, from nothing or around a kernel."),
    "validate": Command(
        _AUTHOR, "validate", "validate", "Check skill folders against the package contract."
    ),
    "doctor": Command(
        _MACHINE, "doctor", "doctor", "Say what this machine can do, and mend what is missing."
    ),
}
