"""Assignments: what they name, and what they leave behind after the call."""

from __future__ import annotations

import ast

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_calls import Calls
from kernel_skills.executor.lint_program import Scope
from kernel_skills.executor.lint_types import annotated, runs_code
from kernel_skills.executor.lint_values import (
    MAYBE,
    NUMBER,
    UNKNOWN,
    Instance,
    Made,
    Sequence,
    State,
    Value,
    elements,
    flat,
    join,
    kept,
)

_HOLDER_FIELDS = names.words("data weight bias requires_grad")
_HOOK_FIELDS = names.words("block_shape layout")


class Bindings(Calls):
    """Evaluates statements that bind names or change objects."""

    def iterated(self, value: Value) -> Value:
        """What a `for` binds: the elements, or the slices of a tensor."""
        return join(self.elements(value), value & frozenset({"tensor", "kept", "number"}))

    def simple(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Assign(targets=targets, value=expression):
                value = self.value(expression, scope)
                for target in targets:
                    self.bind(target, value, scope)
            case ast.AnnAssign(target=target, annotation=annotation, value=expression):
                if runs_code(annotation):
                    self.value(annotation, scope)
                if expression is not None:
                    value = self.value(expression, scope)
                    if value == MAYBE:
                        value |= annotated(annotation, scope) - NUMBER
                    self.bind(target, value, scope)
            case ast.AugAssign():
                self._augment(node, scope)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, scope)
            case ast.Assert(test=test, msg=message):
                self.truth(test, scope)
                self._message([message], scope)
            case ast.Raise(exc=raised, cause=cause):
                self._message([raised, cause], scope)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.value(child, scope)

    def _message(self, nodes: list[ast.expr | None], scope: Scope) -> None:
        self.messages += 1
        for one in nodes:
            self.value(one, scope)
        self.messages -= 1

    def bind(self, target: ast.expr, value: Value, scope: Scope) -> None:
        match target:
            case ast.Name(id=name):
                self._bind_name(name, value, target, scope)
            case ast.Starred(value=inner):
                self.bind(inner, frozenset({Sequence(None, flat(value))}), scope)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                self._unpack(parts, value, scope)
            case ast.Attribute():
                self._store_attribute(target, value, scope)
            case ast.Subscript():
                self._store_element(target, value, scope)

    def _bind_name(self, name: str, value: Value, node: ast.AST, scope: Scope) -> None:
        if name in scope.globals and not scope.is_module:
            if not self.setup:
                self.facts.add("state", scope.file, node, f"rebinds the global {name!r}")
            module = scope.file.scope
            module.names[name] = join(module.names.get(name, UNKNOWN), kept(value))
        elif name in scope.outer:
            self.facts.add("state", scope.file, node, f"rebinds {name!r} of an enclosing function")
        else:
            scope.names[name] = value

    def _unpack(self, parts: list[ast.expr], value: Value, scope: Scope) -> None:
        self._consumes(value, parts[0] if parts else ast.Pass(), scope)
        known = [atom for atom in value if isinstance(atom, Sequence)]
        starred = any(isinstance(part, ast.Starred) for part in parts)
        for place, part in enumerate(parts):
            found = self.iterated(value) - (value & {"kept"} if "tensor" not in value else UNKNOWN)
            if known and not starred:
                exact = [a.items[place] if a.items is not None and len(a.items) == len(parts) else a.all() for a in known]  # fmt: skip
                found = join(*exact, self.put_in(value), value & frozenset({"tensor", "number"}))
            self.bind(part, found, scope)

    def _augment(self, node: ast.AugAssign, scope: Scope) -> None:
        load = ast.parse(ast.unparse(node.target), mode="eval").body
        for one in ast.walk(load):
            ast.copy_location(one, node.target)
        old, extra = self.value(load, scope), self.value(node.value, scope)
        value = self.operate(node.op, old, extra, node, scope)
        if isinstance(node.target, ast.Name):
            states = frozenset(atom for atom in old if isinstance(atom, State | Made))
            self.put_into_made(old, elements(extra))
            if any(isinstance(one, State) for one in states) and not self.setup:
                self.facts.add(
                    "state", scope.file, node, "extends an object that outlives the call"
                )
            self._bind_name(node.target.id, value | states, node, scope)
            return
        if not self.setup and self._outlives(node.target, scope):
            self.facts.add("state", scope.file, node, "counts, or adds up, over calls")
        self.bind(node.target, value, scope)

    def _outlives(self, target: ast.expr, scope: Scope) -> bool:
        if not isinstance(target, ast.Attribute | ast.Subscript):
            return False
        owner = self.value(target.value, scope)
        building = scope.function is not None and scope.function.name in names.BUILDERS
        return any(
            isinstance(a, State) or (isinstance(a, Instance) and not building) for a in owner
        )

    def _store_attribute(self, target: ast.Attribute, value: Value, scope: Scope) -> None:
        owner, name = self.value(target.value, scope) - MAYBE, target.attr
        if owner == {"context"} and not name.startswith("__"):
            return
        instances = [atom for atom in owner if isinstance(atom, Instance)]
        building = self._building(scope)
        if instances and len(instances) == len(owner) and not name.startswith("__"):
            for one in instances:
                old = one.of.attributes.get(name, UNKNOWN)
                one.of.attributes[name] = join(old, value if building else kept(value))
            if not building and ("tensor" in flat(value) or not value - MAYBE):
                self.facts.add(
                    "state", scope.file, target, f"keeps a tensor in {name!r} after the call"
                )
            return
        if self.setup and owner & {"holder", "tensor"} and name in _HOLDER_FIELDS:
            return
        if owner == {"holder", "fresh"} and name in {"weight", "bias"}:
            return
        if not owner and name in _HOOK_FIELDS:
            return
        self.facts.add("patch", scope.file, target, f"assigns to {ast.unparse(target)!r}")

    def _store_element(self, target: ast.Subscript, value: Value, scope: Scope) -> None:
        owner, index = self.value(target.value, scope), self.value(target.slice, scope)
        self.pointer_use(join(index, value), target, scope)
        if "tensor" in owner and not self.setup:
            self.facts.add("operation", scope.file, target, "writes elements of a tensor")
        states = [atom for atom in owner if isinstance(atom, State)]
        self.put_into_made(owner, value)
        if not any(isinstance(atom, State) for atom in owner):
            self._hashes(index, target, scope)
        if states:
            self._keep(states, index, value, target, scope)
        elif isinstance(target.value, ast.Name):
            self._grow(target.value, value, scope)

    def _keep(
        self, states: list[State], index: Value, value: Value, node: ast.AST, scope: Scope
    ) -> None:
        inner = flat(value)
        if not self.setup:
            if "tensor" in flat(index):
                self.facts.add("state", scope.file, node, "keeps something under a tensor")
            if "tensor" in inner and "fresh" not in inner:
                self.facts.add("state", scope.file, node, "keeps a tensor after the call")
            elif "maybe" in inner:
                self.facts.add(
                    "state", scope.file, node, "keeps what may be a tensor after the call"
                )
            self.facts.put(states, kept(value))
        else:
            for state in states:
                old = self.facts.contents.get(state, UNKNOWN)
                self.facts.contents[state] = join(old, value)

    def _delete(self, target: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Attribute):
            self.facts.add("patch", scope.file, target, f"deletes {ast.unparse(target)!r}")
        elif isinstance(target, ast.Subscript):
            owner = self.value(target.value, scope)
            self.value(target.slice, scope)
            if any(isinstance(atom, State) for atom in owner) and not self.setup:
                self.facts.add(
                    "state", scope.file, target, "changes an object that outlives the call"
                )
        elif isinstance(target, ast.Name):
            scope.names.pop(target.id, None)
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._delete(part, scope)
