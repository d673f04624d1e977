"""Lint a Solution without running it: its syntax tree, never its text.

A rule is one function and one row in `RULES`. It gets one parsed file and yields (line, reason, mend).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernel_skills.executor.models import Solution, SourceFile
from kernel_skills.executor.trace import Finding

ALLOWED_IMPORTS = (
    "__future__", "collections.abc", "dataclasses", "math", "torch", "torch.nn", "triton", "triton.language",
    "triton.language.extra", "triton.language.extra.libdevice", "triton.tools.tensor_descriptor",
    "triton.experimental", "triton.experimental.gluon", "typing",
)  # fmt: skip
"""A kernel needs no more. Of submodules that are not named here, only Gluon's are allowed."""

_DYNAMIC = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "globals",
    "locals",
    "vars",
    "open",
    "input",
    "breakpoint",
}

Problem = tuple[int, str, str]


@dataclass(frozen=True)
class ParsedFile:
    source: SourceFile
    tree: ast.Module
    solution: Solution


def lint(solution: Solution) -> tuple[Finding, ...]:
    """Return every finding, in order of file and line; none means that the Solution may go on."""
    findings: list[Finding] = []
    for source in solution.sources:
        if not source.path.endswith(".py"):
            continue
        try:
            tree = ast.parse(source.content)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None) or 1
            reason = getattr(error, "msg", None) or str(error)
            findings.append(Finding(rule="S-syntax", path=source.path, line=line, reason=reason))
            continue
        parsed = ParsedFile(source, tree, solution)
        for name, rule in RULES.items():
            for line, reason, mend in rule(parsed):
                findings.append(
                    Finding(rule=name, path=source.path, line=line, reason=reason, mend=mend)
                )
    return tuple(sorted(findings, key=lambda finding: (finding.path, finding.line)))


def _imports(parsed: ParsedFile) -> Iterator[Problem]:
    """Only the table's modules, and siblings of the package by relative import."""
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module or ""]
        else:
            continue
        for module in modules:
            if not _allowed(module):
                mend = f"a kernel may import {', '.join(ALLOWED_IMPORTS[1:])}"
                yield node.lineno, f"imports {module!r}", mend


def _allowed(module: str) -> bool:
    return module in ALLOWED_IMPORTS or module.startswith("triton.experimental.gluon.")


def _entry(parsed: ParsedFile) -> Iterator[Problem]:
    """The entry's file defines the entry at its top level."""
    path, name = parsed.solution.spec.entry_point.split("::")
    if parsed.source.path != path:
        return
    defined = {
        node.name for node in parsed.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    if name not in defined:
        yield 1, f"defines no function {name!r}", f"define `def {name}(…)` at the top level"


def _dynamic_code(parsed: ParsedFile) -> Iterator[Problem]:
    """No code that is made while running."""
    for node in ast.walk(parsed.tree):
        if isinstance(node, ast.Name) and node.id in _DYNAMIC:
            yield node.lineno, f"uses {node.id!r}", "write the code out"


RULES: dict[str, Callable[[ParsedFile], Iterator[Problem]]] = {
    "S-import": _imports,
    "S-entry": _entry,
    "S-dynamic": _dynamic_code,
}
