"""The files of a Solution as the lint reads them, and the facts that reading them yields."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple

from kernel_skills.executor.lint_values import UNKNOWN, Function, Kernel, Made, State, Value, join

MAX_STEPS = 100_000
"""Expressions read in one Solution, a second or two; our largest variant takes 1 300."""


class TooLarge(Exception):
    """Reading the Solution takes more than `MAX_STEPS`."""


class Fact(NamedTuple):
    """Something that a rule may object to."""

    kind: str
    path: str
    line: int
    reason: str


@dataclass(eq=False)
class File:
    path: str
    tree: ast.Module
    scope: Scope = field(init=False)
    loaded: bool = False

    def __post_init__(self) -> None:
        self.scope = Scope(self, None)


@dataclass(eq=False)
class Scope:
    """Names of a module, a class body or a call of a function."""

    file: File
    parent: Scope | None
    names: dict[str, Value] = field(default_factory=dict)
    globals: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    function: Function | None = None
    comprehension: bool = False

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self.file.scope if name in self.globals else self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.parent
        return None

    @property
    def is_module(self) -> bool:
        return self.parent is None


class Facts:
    """What one reading of the Solution found."""

    def __init__(self) -> None:
        self.all: dict[Fact, None] = {}
        self.launched: set[Kernel] = set()
        self.launches = 0
        """Counts launches and tensors returned, so that one can ask whether a branch holds any."""
        self.changed: set[State] = set()
        self.contents: dict[State | Made, Value] = {}
        self.branches: list[tuple[frozenset[State], Fact]] = []
        self.holders = False

    def add(self, kind: str, file: File, node: ast.AST, reason: str) -> None:
        line = getattr(node, "lineno", 1)
        self.all.setdefault(Fact(kind, file.path, line, reason))

    def put(self, states: list[State], value: Value) -> None:
        for state in states:
            self.changed.add(state)
            self.contents[state] = join(self.contents.get(state, UNKNOWN), value)


def decorated_name(node: ast.expr) -> str:
    """The dotted text of a decorator or annotation, without its call."""
    if isinstance(node, ast.Call):
        node = node.func
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[ast.arg]:
    spec = node.args
    return [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
