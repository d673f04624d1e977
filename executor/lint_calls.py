"""Calls of the host code: builtins, torch, own functions and classes, kernels."""

from __future__ import annotations

import ast
from collections.abc import Sequence as Items

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_expressions import kept_kind
from kernel_skills.executor.lint_library import LibraryCalls
from kernel_skills.executor.lint_program import Scope, parameters
from kernel_skills.executor.lint_values import (
    NUMBER,
    TENSOR,
    UNKNOWN,
    Class,
    Decorator,
    Function,
    Instance,
    Kernel,
    Launcher,
    Method,
    Path,
    Sequence,
    State,
    Value,
    bag,
    elements,
    flat,
    join,
    kept,
)


class Calls(LibraryCalls):
    """Evaluates calls."""

    def call_node(self, node: ast.Call, scope: Scope) -> Value:
        if isinstance(node.func, ast.Name) and node.func.id in {"getattr", "hasattr"}:
            return self._getattr(node, scope)
        if isinstance(node.func, ast.Name) and node.func.id == "super":
            owner = self._owner(scope)
            return frozenset({Instance(owner)}) if owner else UNKNOWN
        callee = self.value(node.func, scope)
        args = [self.value(one, scope) for one in node.args]
        named = {
            one.arg or "**": self.value(one.value, scope)
            if one.arg
            else elements(self.value(one.value, scope))
            for one in node.keywords
        }
        if isinstance(node.func, ast.Subscript) and not any(
            isinstance(atom, Launcher | Function | Class | Method | Path) for atom in callee
        ):
            self.facts.add("launch-unknown", scope.file, node, "launches what is no jit function")
        for value in (*args, *named.values()):
            if not any(isinstance(atom, Function) for atom in callee):
                self.pointer_use(value, node, scope)
        if not callee:
            if self.facts.holders and not isinstance(node.func, ast.Attribute):
                self.facts.add("holder", scope.file, node, "calls what may be a torch.nn module")
            for value in (*args, *named.values()):
                self._escape(value)
            return UNKNOWN
        return join(*(self._apply(atom, args, named, node, scope) for atom in callee))

    def _owner(self, scope: Scope) -> Class | None:
        inner: Scope | None = scope
        while inner is not None:
            if inner.function is not None and inner.function.owner is not None:
                return inner.function.owner
            inner = inner.parent
        return None

    def _getattr(self, node: ast.Call, scope: Scope) -> Value:
        values = [self.value(one, scope) for one in node.args]
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        name = node.args[1] if len(node.args) > 1 else None
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            self.facts.add("dynamic", scope.file, node, "reads an attribute whose name is computed")
            return UNKNOWN
        if called == "hasattr":
            return NUMBER
        return join(self.attribute(values[0], name.value, node, scope), *values[2:])

    def _apply(
        self, atom: object, args: list[Value], named: dict[str, Value], node: ast.Call, scope: Scope
    ) -> Value:
        if isinstance(atom, Path):
            return self._call_path(atom.name, args, named, node, scope)
        if isinstance(atom, Function):
            spread = self._spread(args, node)
            result = self.call(atom, spread, named, UNKNOWN)
            if atom.cached:
                self._check_cached(atom, [*args, *named.values()], result, node, scope)
            return result
        if isinstance(atom, Class):
            return self._instantiate(atom, self._spread(args, node), named)
        if isinstance(atom, Method):
            return self._call_method(atom, args, named, node, scope)
        if isinstance(atom, Decorator):
            return self._decorate(atom, args, node, scope)
        if isinstance(atom, Launcher):
            return self._launch(atom, args, named, node, scope)
        if isinstance(atom, Kernel):
            self.facts.add(
                "launch-unknown", scope.file, node, "calls a jit function without a grid"
            )
            return UNKNOWN
        if isinstance(atom, Instance):
            method = atom.of.find("__call__") or atom.of.find("forward") or UNKNOWN
            if not method:
                self.facts.add(
                    "holder", scope.file, node, "calls an object whose class defines no call"
                )
            return join(
                *(self.call(m, args, named, frozenset({atom})) for m in method if isinstance(m, Function))
            )  # fmt: skip
        if atom == "holder":
            self.facts.add("holder", scope.file, node, "calls a torch.nn module, which computes")
            return TENSOR
        return UNKNOWN

    @staticmethod
    def _spread(args: list[Value], node: ast.Call) -> list[Value]:
        """Positional values; None-like unknowns after a starred argument, whose length nobody knows."""
        spread: list[Value] = []
        for value, one in zip(args, node.args, strict=True):
            if isinstance(one, ast.Starred):
                spread.extend([value] * 24)
            else:
                spread.append(value)
        return spread

    def _check_cached(
        self, function: Function, args: list[Value], result: Value, node: ast.AST, scope: Scope
    ) -> None:
        if any("tensor" in flat(value) for value in args):
            self.facts.add("cached", scope.file, node, f"{function.name!r} keeps results by tensor")
        elif "tensor" in flat(result) and not self.setup:
            self.facts.add(
                "cached", scope.file, node, f"{function.name!r} keeps tensors between calls"
            )

    def _launch(
        self,
        atom: Launcher,
        args: list[Value],
        named: dict[str, Value],
        node: ast.Call,
        scope: Scope,
    ) -> Value:
        self.facts.launches += 1
        if atom.kernel is not None:
            self.facts.launched.add(atom.kernel)
            for one, value in zip(parameters(atom.kernel.node), args, strict=False):
                if one.arg in atom.kernel.pointers:
                    self.used_as_tensor(value)
        for value in (*args, *named.values()):
            if any(
                isinstance(a, Function | Class | Path) and not _is_language(a) for a in flat(value)
            ):
                self.facts.add(
                    "launch-argument", scope.file, node, "hands a Python function to a kernel"
                )
        return NUMBER

    # --- own functions, classes and methods ------------------------------------------------------

    def _instantiate(self, cls: Class, args: Items[Value], named: dict[str, Value]) -> Value:
        instance: Value = frozenset({Instance(cls)})
        for made in ("__init__", "__post_init__"):
            for one in cls.find(made) or ():
                if isinstance(one, Function):
                    self.call(one, args if made == "__init__" else (), named if made == "__init__" else {}, instance)  # fmt: skip
        if cls.find("__init__") is None:
            for name, value in (*zip(cls.fields, args, strict=False), *named.items()):
                cls.attributes[name] = join(cls.attributes.get(name, UNKNOWN), value)
        return instance

    def _call_method(
        self,
        method: Method,
        args: list[Value],
        named: dict[str, Value],
        node: ast.Call,
        scope: Scope,
    ) -> Value:
        name, owner = method.name, method.owner
        if method.function is not None:
            return self.call(method.function, self._spread(args, node), named, owner)
        classes = [atom for atom in owner if isinstance(atom, Class)]
        if name == "apply" and classes:
            forward = join(*(c.find("forward") or UNKNOWN for c in classes))
            context: Value = frozenset({"context"})
            return join(*(self.call(f, [context, *self._spread(args, node)], named, UNKNOWN)
                          for f in forward if isinstance(f, Function)))  # fmt: skip
        if "tensor" in owner:
            return self._tensor_method(name, owner, args, named, node, scope)
        if "holder" in owner:
            return owner
        return self._container_method(name, owner, args, named, node, scope)

    def _tensor_method(
        self,
        name: str,
        owner: Value,
        args: list[Value],
        named: dict[str, Value],
        node: ast.Call,
        scope: Scope,
    ) -> Value:
        if name == "data_ptr":
            return frozenset({"pointer"})
        if name in names.TENSOR_QUERIES:
            return NUMBER
        if name in names.TENSOR_PIECES:
            return bag(owner)
        if name in names.TENSOR_ALLOCATORS:
            return self.allocated()
        if name == "type" and not args:
            return NUMBER
        if name in {"to", "type"} and not self.setup and self._converts(args, named, node, scope):
            self.facts.add("method", scope.file, node, f"converts a tensor's dtype with {name!r}")
        return kept_kind([owner])

    def _converts(
        self, args: list[Value], named: dict[str, Value], node: ast.Call, scope: Scope
    ) -> bool:
        """Whether `.to(...)` may change the dtype: a device alone does not."""
        return not (
            set(named) <= {"device", "non_blocking", "memory_format", "copy"}
            and all(_names_a_device(one) for one in node.args[:1])
            and len(node.args) <= 1
        )

    def _container_method(
        self,
        name: str,
        owner: Value,
        args: list[Value],
        named: dict[str, Value],
        node: ast.Call,
        scope: Scope,
    ) -> Value:
        states = [atom for atom in owner if isinstance(atom, State)]
        inside = join(*(atom.all() for atom in owner if isinstance(atom, Sequence)))
        inside = join(inside, *(self.facts.contents.get(state, UNKNOWN) for state in states))
        value = join(*args, *named.values())
        if states and name in names.STATE_CHANGES and not self.setup:
            harmless = name in {"setdefault", "update"} and value and not flat(value) & {"tensor"}
            if not harmless:
                self.facts.add(
                    "state", scope.file, node, f"changes ({name}) an object that outlives the call"
                )
            self.facts.put(states, kept(value))
        if isinstance(node.func, ast.Attribute) and name in {
            "append",
            "insert",
            "add",
            "extend",
            "update",
        }:
            self._grow(node.func.value, value, scope)
        if name in {"items"}:
            return bag(frozenset({Sequence((NUMBER, inside))}))
        if name in {"values", "keys", "copy", "union"}:
            return bag(inside) if name != "keys" else bag(NUMBER)
        if name in {"get", "pop", "setdefault", "popitem"}:
            default = value if name == "setdefault" else join(*args[1:])
            return join(inside, default, frozenset(states))
        return NUMBER if owner else UNKNOWN

    def _grow(self, node: ast.expr, value: Value, scope: Scope) -> None:
        if isinstance(node, ast.Name) and (old := scope.find(node.id)) is not None:
            grown = bag(join(flat(old) - {a for a in old if isinstance(a, State)}, flat(value)))
            inner: Scope | None = scope
            while inner is not None and node.id not in inner.names:
                inner = inner.parent
            if inner is not None:
                inner.names[node.id] = grown | {a for a in old if isinstance(a, State)}


def _is_language(atom: object) -> bool:
    return isinstance(atom, Path) and atom.name.startswith(("triton.", "torch."))


def _names_a_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    text = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return "dev" in text.lower()
