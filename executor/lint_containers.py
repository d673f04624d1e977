"""Containers of the host code: what is in them under any name, and which of them outlive a call."""

from __future__ import annotations

import ast

from kernel_skills.executor.lint_attributes import Attributes
from kernel_skills.executor.lint_program import Scope
from kernel_skills.executor.lint_values import (
    UNKNOWN,
    Function,
    Instance,
    Made,
    Sequence,
    State,
    Value,
    bag,
    elements,
    flat,
    join,
)


class Containers(Attributes):
    """Makes, fills and empties lists, dicts, sets and iterators."""

    def made(self, value: Value, node: ast.AST, scope: Scope, *, iterator: bool = False) -> Value:
        """A mutable object: what is made during set-up outlives the calls."""
        where = (
            scope.file.path,
            getattr(node, "lineno", 0) * 1000 + getattr(node, "col_offset", 0),
        )
        return value | {State(where, iterator) if self.setup else Made(where)}

    def elements(self, value: Value) -> Value:
        """What iterating over the value yields, whatever name it was put in under."""
        objects = [atom for atom in value if isinstance(atom, Instance)]
        return join(
            elements(value), self.put_in(value), *(self._iterated_object(one) for one in objects)
        )

    def put_in(self, value: Value) -> Value:
        """What was put into the containers that the value may be, under any name."""
        containers = [atom for atom in value if isinstance(atom, State | Made)]
        return join(*(self.facts.contents.get(one, UNKNOWN) for one in containers))

    def put_into_made(self, owner: Value, value: Value) -> None:
        for atom in owner:
            if isinstance(atom, Made):
                old = self.facts.contents.get(atom, UNKNOWN)
                self.facts.contents[atom] = join(old, flat(value))

    def _iterated_object(self, atom: Instance) -> Value:
        fields = [atom.of.attributes.get(name, UNKNOWN) for name in atom.of.fields]
        methods = [one for one in atom.of.find("__iter__") or () if isinstance(one, Function)]
        results = [self.call(one, (), {}, frozenset({atom})) for one in methods]
        return join(*fields, *(elements(one) for one in results))

    def _consumes(self, value: Value, node: ast.AST, scope: Scope) -> None:
        if any(isinstance(atom, State) and atom.iterator for atom in value) and not self.setup:
            self.facts.add(
                "state", scope.file, node, "counts calls with an iterator that outlives them"
            )

    def _hashes(self, value: Value, node: ast.AST, scope: Scope) -> None:
        if "tensor" in flat(value) and not self.setup:
            self.facts.add("state", scope.file, node, "identifies a tensor")

    @staticmethod
    def element(atom: Sequence, index: ast.expr) -> Value:
        """What a sequence holds at an index."""
        if isinstance(index, ast.Slice):
            return frozenset({atom}) if atom.items is None else bag(atom.all())
        place = index.value if isinstance(index, ast.Constant) else None
        if isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.USub):
            inner = index.operand
            place = -inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, int) else None  # fmt: skip
        if atom.items is not None and isinstance(place, int) and -len(atom.items) <= place < len(atom.items):  # fmt: skip
            return atom.items[place]
        return atom.all()
