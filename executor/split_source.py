"""Cut one file into the task's part and the candidate's, by parsing alone: neither ever sees the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from kernel_skills.executor.errors import InvalidPackage

TASK_ROOTS = ("reference", "make_inputs", "Model", "get_inputs", "get_init_inputs")
_NEWLINE = re.compile(r"\r\n|\r|\n")
"""What ends a line for Python's parser: no form feed and none of Unicode's separators, as `splitlines` has it."""

CANDIDATE_ROOTS = ("candidate", "ModelNew")


def split(source: str) -> tuple[str, str]:
    """Return the source of the task and of the candidate, each with what its roots reach and the lines where it was.

    Comments between statements go to the candidate, so that the lint sees their characters. Imports that a part names go with it; so do statements without a name that change something it names. A root of
    the task is never part of the candidate: a candidate that names it fails to find it. Statements at module level
    that belong to neither (`torch.manual_seed(0)`, `torch.randn = …`) go to the candidate, so that the lint sees them.

    Raises:
        InvalidPackage: the source does not parse, or holds no candidate.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidPackage(f"the source does not parse: {error}") from None
    statements = [_Statement(node) for node in tree.body]
    defined = {name for one in statements for name in one.binds}
    candidates = [name for name in CANDIDATE_ROOTS if name in defined]
    if not candidates:
        raise InvalidPackage(f"the source defines none of {', '.join(CANDIDATE_ROOTS)}")
    task = _reach(statements, TASK_ROOTS, barred=CANDIDATE_ROOTS)
    theirs = _reach(statements, candidates, barred=TASK_ROOTS)
    for place, one in enumerate(statements):
        loose = not one.binds or one.writes
        if loose and place not in task and not one.is_main_guard:
            theirs.add(place)
    theirs |= _reach(statements, _read_by(statements, theirs), barred=TASK_ROOTS)
    lines = [line + "\n" for line in _NEWLINE.split(source)]
    future = {place for place, one in enumerate(statements) if one.is_future}
    inside = {number for one in statements for number in one.lines}
    comments = {number: line for number, line in enumerate(lines) if number not in inside}
    return _cut(lines, statements, task | future), _cut(
        lines, statements, theirs | future, comments
    )


class _Statement:
    """A statement at module level: the names it binds, reads, and the objects it writes into."""

    def __init__(self, node: ast.stmt) -> None:
        self.node = node
        self.binds: set[str] = set()
        self.reads: set[str] = set()
        self.writes: set[str] = set()
        self.is_future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        self.is_main_guard = (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Compare)
            and isinstance(node.test.left, ast.Name)
            and node.test.left.id == "__name__"
        )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.binds.add(node.name)
        else:
            self._collect_bindings(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                self.reads.add(inner.id)

    @property
    def lines(self) -> range:
        """Numbers of the lines that it fills, from zero, its decorators with them."""
        decorators = getattr(self.node, "decorator_list", [])
        first = min([self.node.lineno, *(one.lineno for one in decorators)])
        return range(first - 1, self.node.end_lineno or self.node.lineno)

    def _collect_bindings(self, node: ast.stmt) -> None:
        for inner in ast.walk(node):
            if isinstance(inner, ast.alias):
                self.binds.add(inner.asname or inner.name.split(".")[0])
            elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                self.binds.add(inner.id)
            elif isinstance(inner, ast.FunctionDef | ast.ClassDef):
                self.binds.add(inner.name)
            elif isinstance(inner, ast.Attribute | ast.Subscript) and not isinstance(
                inner.ctx, ast.Load
            ):
                base: ast.expr = inner
                while isinstance(base, ast.Attribute | ast.Subscript):
                    base = base.value
                self.writes.add(base.id if isinstance(base, ast.Name) else "")


def _read_by(statements: list[_Statement], places: Iterable[int]) -> set[str]:
    return {name for place in places for name in statements[place].reads}


def _reach(statements: list[_Statement], roots: Iterable[str], barred: Iterable[str]) -> set[int]:
    """Places of the statements that the roots need, one after another; never one that binds a barred name."""
    barred = set(barred)
    reached: set[int] = set()
    waiting, seen = list(roots), set(roots)
    while waiting:
        name = waiting.pop()
        for place, one in enumerate(statements):
            if name not in one.binds | (one.writes - {"torch", "triton", "tl"}) or place in reached:
                continue
            if one.binds & barred:
                continue
            reached.add(place)
            fresh = one.reads - seen
            seen |= fresh
            waiting.extend(fresh)
    return reached


def _cut(
    lines: list[str],
    statements: list[_Statement],
    places: set[int],
    comments: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """The statements in their places; other lines are left empty, so that line numbers stay true."""
    kept = [comments.get(number, "\n") for number in range(len(lines))]
    for place in sorted(places):
        for number in statements[place].lines:
            kept[number] = lines[number]
    return "".join(kept)
