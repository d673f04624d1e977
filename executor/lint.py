"""Lint a Solution without running it: its syntax tree, never its text.

The host code is read as an interpreter would run it, from module level and from the entry, with what is known of each
value: tensor, number, kernel, name of a library. The rules (`lint_rules.py`) judge what that finds. Code that nothing
reaches is not judged.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from kernel_skills.executor.lint_kernels import WIDE, kernel_facts
from kernel_skills.executor.lint_names import ALLOWED_IMPORTS
from kernel_skills.executor.lint_program import Fact, File, TooLarge
from kernel_skills.executor.lint_rules import COMPUTE_RULES, RULES, Reading
from kernel_skills.executor.lint_statements import Interpreter
from kernel_skills.executor.models import Solution
from kernel_skills.executor.trace import Finding

__all__ = ["ALLOWED_IMPORTS", "RULES", "LintReport", "Policy", "examine", "lint"]

Policy = Literal["strict", "assist"]
"""`strict`: all computation in the candidate's own kernels. `assist`: torch operators may remain, as notes."""


@dataclass(frozen=True)
class LintReport:
    """Findings reject the Solution; notes do not."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...] = ()


def lint(
    solution: Solution, policy: Policy = "strict", dtypes: frozenset[str] = frozenset()
) -> tuple[Finding, ...]:
    """Return every finding, in order of file and line; none means that the Solution may go on."""
    return examine(solution, policy, dtypes).findings


def examine(
    solution: Solution, policy: Policy = "strict", dtypes: frozenset[str] = frozenset()
) -> LintReport:
    """Lint a Solution. Never raises, whatever its files hold.

    Args:
        solution: only its `.py` files are read.
        policy: what becomes of computation in torch.
        dtypes: of the task's tensors, where they are known: if none is narrower than float32, neither is a kernel.
    """
    files, broken = _parse(solution)
    if broken:
        return LintReport(tuple(broken))
    path = solution.spec.entry_point.partition("::")[0]
    try:
        found = _examine(solution, files, dtypes)
    except (RecursionError, TooLarge):
        reason = "is nested too deeply, or too large, to read"
        found = [Finding(rule="S-syntax", path=path, line=1, reason=reason)]
    found.sort(key=lambda finding: (finding.path, finding.line, finding.rule))
    notes = COMPUTE_RULES if policy == "assist" else frozenset()
    return LintReport(
        tuple(one for one in found if one.rule not in notes),
        tuple(one for one in found if one.rule in notes),
    )


def _parse(solution: Solution) -> tuple[dict[str, File], list[Finding]]:
    files: dict[str, File] = {}
    broken: list[Finding] = []
    for source in solution.sources:
        if not source.path.endswith(".py"):
            continue
        try:
            files[source.path] = File(source.path, ast.parse(source.content))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = getattr(error, "msg", None) or str(error)
            broken.append(Finding(rule="S-syntax", path=source.path, line=line, reason=reason))
    return files, broken


def _examine(solution: Solution, files: dict[str, File], dtypes: frozenset[str]) -> list[Finding]:
    facts: list[Fact] = []
    launched = 0
    path, _, name = solution.spec.entry_point.partition("::")
    if path in files:
        reader = Interpreter(files)
        reader.read(path, name)
        facts = [
            one for one in reader.facts.all if one.kind != "narrow" or (dtypes and dtypes <= WIDE)
        ]
        launched = len(reader.facts.launched)
        for kernel in reader.kernels.values():
            facts += kernel_facts(kernel, dtypes)
    by_kind: dict[str, list[Fact]] = {}
    for fact in facts:
        by_kind.setdefault(fact.kind, []).append(fact)
    reading = Reading(solution, files, by_kind, launched)
    found: dict[tuple[str, str, int, str], Finding] = {}
    for rule, judge in RULES.items():
        for where, line, reason, mend in judge(reading):
            finding = Finding(rule=rule, path=where, line=line, reason=reason, mend=mend)
            found.setdefault((rule, where, line, reason), finding)
    return list(found.values())
