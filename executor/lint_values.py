"""What the lint knows of a value: a set of facts, empty where nothing is known."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_skills.executor.lint_program import File

Value = frozenset[Any]
"""Text atoms: `tensor`; `fresh` (this call allocated it); `kept` (an earlier call did); `number` (any harmless host
value: numbers, text, shapes, dtypes, devices); `holder` (a torch.nn module with parameters); `pointer` (`data_ptr()`);
`context` (of autograd); `dtype` (beside `number`: of a tensor); `maybe` (nobody knows, a tensor perhaps). Other atoms are
the classes below."""

UNKNOWN: Value = frozenset()
NUMBER: Value = frozenset({"number"})
MAYBE: Value = frozenset({"maybe"})
DTYPE: Value = frozenset({"number", "dtype"})
TENSOR: Value = frozenset({"tensor"})
FRESH: Value = frozenset({"tensor", "fresh"})
MAX_DEPTH = 3
"""Levels of nested sequences that are told apart; deeper ones keep what their elements are, without places."""


@dataclass(frozen=True)
class Path:
    """A dotted name outside the Solution, e.g. `torch.empty`."""

    name: str


@dataclass(frozen=True)
class Computed:
    """What an operator made of operands that nobody knows: a tensor, as soon as it is used as one."""

    path: str
    line: int


@dataclass(frozen=True)
class Sequence:
    """A tuple, list, dict or iterator: its elements by place where they are known, else all together."""

    items: tuple[Value, ...] | None
    rest: Value = UNKNOWN

    def all(self) -> Value:
        return join(self.rest, *(self.items or ()))


@dataclass(frozen=True)
class State:
    """A mutable object that outlives a call, by where it was made."""

    where: tuple[str, int]
    iterator: bool = False


@dataclass(frozen=True)
class Made:
    """A mutable object of this call, by where it was made; whatever is put into it under any name is in `contents`."""

    where: tuple[str, int]


@dataclass(frozen=True)
class Partial:
    """What `functools.partial` returns."""

    target: Value
    args: tuple[Value, ...]
    named: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Sibling:
    """A file of the Solution, as a module."""

    path: str


@dataclass(eq=False)
class Function:
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    file: File
    scope: Any
    owner: Class | None = None
    cached: bool = False
    static: bool = False
    of_class: bool = False
    """A classmethod: its first argument is the class."""
    defaults: dict[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(eq=False)
class Class:
    node: ast.ClassDef
    file: File
    bases: Value
    members: dict[str, Value] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    fields: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name

    def inherits(self, path: str) -> bool:
        return any(
            base == Path(path) or (isinstance(base, Class) and base.inherits(path))
            for base in self.bases
        )

    def find(self, name: str) -> Value | None:
        for table in (self.attributes, self.members):
            if name in table:
                return table[name]
        for base in self.bases:
            if (
                isinstance(base, Class)
                and base is not self
                and (found := base.find(name)) is not None
            ):
                return found
        return None


@dataclass(frozen=True)
class Instance:
    of: Class


@dataclass(eq=False)
class Kernel:
    """A jit function."""

    node: ast.FunctionDef
    file: File


@dataclass(frozen=True)
class Launcher:
    """`kernel[grid]`; kernel is None where what is subscripted is no jit function."""

    kernel: Kernel | None


@dataclass(frozen=True)
class Method:
    """A method with its receiver: of a tensor (`owner` is its value) or of the Solution's own class."""

    owner: Value
    name: str
    function: Function | None = None


@dataclass(frozen=True)
class Decorator:
    """`triton.jit(...)` and its like, before it is given the function."""

    path: str


def join(*values: Value) -> Value:
    return frozenset().union(*values)


def sequence(items: Iterable[Value]) -> Value:
    """A sequence whose places are known."""
    items = tuple(items)
    if any(_depth(item) >= MAX_DEPTH for item in items) or len(items) > 24:
        return bag(join(*items))
    return frozenset({Sequence(items)})


def bag(rest: Value) -> Value:
    """A sequence of elements in no known place."""
    return frozenset({Sequence(None, flat(rest) if _depth(rest) >= MAX_DEPTH else rest)})


def flat(value: Value) -> Value:
    """Everything in a value, however deep."""
    found: set[Any] = set()
    for atom in value:
        found |= flat(atom.all()) if isinstance(atom, Sequence) else {atom}
    return frozenset(found)


def elements(value: Value) -> Value:
    """What iterating over the value yields."""
    found: set[Any] = set()
    for atom in value:
        if isinstance(atom, Sequence):
            found |= atom.all()
        elif atom in ("holder", "tensor", "kept"):
            found.add(atom)
    return frozenset(found)


def kept(value: Value) -> Value:
    """The value as a later call finds it."""
    inner = flat(value)
    return (inner - {"fresh"}) | {"kept"} if "tensor" in inner else inner


def _depth(value: Value) -> int:
    return max((1 + _depth(a.all()) for a in value if isinstance(a, Sequence)), default=0)
