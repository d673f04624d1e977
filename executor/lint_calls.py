"""Calls of the host code: builtins, torch, own functions and classes, kernels."""

from __future__ import annotations

import ast
from collections.abc import Sequence as Items

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_expressions import kept_kind
from kernel_skills.executor.lint_library import LibraryCalls
from kernel_skills.executor.lint_pointers import pointers_of
from kernel_skills.executor.lint_precision import is_narrow
from kernel_skills.executor.lint_program import Scope, parameters
from kernel_skills.executor.lint_values import (
    MAYBE,
    NUMBER,
    TENSOR,
    UNKNOWN,
    Class,
    Decorator,
    Function,
    Instance,
    Kernel,
    Launcher,
    Made,
    Method,
    Partial,
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
            return self._super(self._owner(scope))
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
        if not callee - MAYBE:
            if self.facts.holders and not isinstance(node.func, ast.Attribute):
                self.facts.add("holder", scope.file, node, "calls what may be a torch.nn module")
            for value in (*args, *named.values()):
                self._escape(value)
                named_here = isinstance(node.func, ast.Attribute) or self.guessing
                if not named_here and "tensor" in flat(value):
                    reason = "hands a tensor to a function that nobody knows"
                    self.facts.add("launch-unknown", scope.file, node, reason)
            return UNKNOWN
        return join(*(self._apply(atom, args, named, node, scope) for atom in callee))

    @staticmethod
    def _super(owner: Class | None) -> Value:
        """What `super()` is: the classes of the Solution below, a torch.nn module, or nothing of note."""
        bases = owner.bases if owner else UNKNOWN
        own: Value = frozenset(Instance(one) for one in bases if isinstance(one, Class))
        if any(isinstance(one, Path) and names.is_holder(one.name) for one in bases):
            own |= {"holder"}
        return own or (frozenset({Instance(owner)}) if owner else UNKNOWN)

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
        if isinstance(atom, Partial):
            given = [*atom.args, *self._spread(args, node)]
            inner = ast.copy_location(ast.Call(node.func, [ast.Constant(0)] * len(given), []), node)
            return join(
                *(self._apply(one, given, {**dict(atom.named), **named}, inner, scope) for one in atom.target)
            )  # fmt: skip
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
            self._pointers_given(atom.kernel, args, named, node)
            self._options(atom.kernel, named, node, scope)
        for value in (*args, *named.values()):
            if any(
                isinstance(a, Function | Class | Path) and not _is_language(a) for a in flat(value)
            ):
                self.facts.add(
                    "launch-argument", scope.file, node, "hands a Python function to a kernel"
                )
        return NUMBER

    def _pointers_given(
        self, kernel: Kernel, args: list[Value], named: dict[str, Value], node: ast.Call
    ) -> None:
        pointers = pointers_of(kernel)
        places = [one.arg for one in parameters(kernel.node)]
        stars = [at for at, one in enumerate(node.args) if isinstance(one, ast.Starred)]
        # nobody knows which parameter takes what from the first star on
        loose = min(stars, default=len(args))
        if not pointers & set(places[loose:]):
            loose = len(args)
        for name, value in (*zip(places, args[:loose], strict=False), *named.items()):
            if name in pointers or (name == "**" and pointers & set(places)):
                self.used_as_tensor(flat(value))
        for value in args[loose:]:
            self.used_as_tensor(flat(value))

    def _options(
        self, kernel: Kernel, named: dict[str, Value], node: ast.Call, scope: Scope
    ) -> None:
        for name, value in named.items():
            paths = [atom.name for atom in value if isinstance(atom, Path)]
            if paths and all(is_narrow(path) for path in paths):
                self.facts.add("narrow", scope.file, node, f"hands {name}={paths[0]} to a kernel")
        known = {one.arg for one in parameters(kernel.node)} | names.LAUNCH_OPTIONS | {"**"}
        if kernel.node.args.kwarg is None:
            for name in sorted(named.keys() - known):
                self.facts.add(
                    "launch-argument", scope.file, node,
                    f"sets {name!r}, which is no parameter and no option of a launch",
                )  # fmt: skip

    # --- own functions, classes and methods ------------------------------------------------------

    def _instantiate(self, cls: Class, args: Items[Value], named: dict[str, Value]) -> Value:
        instance: Value = frozenset({Instance(cls)})
        for made in ("__init__", "__post_init__"):
            for one in cls.find(made) or ():
                if isinstance(one, Function):
                    self.call(one, args if made == "__init__" else (), named if made == "__init__" else {}, instance)  # fmt: skip
        if cls.find("__init__") is None:
            self.set_fields(cls, args, named)
        return instance

    @staticmethod
    def set_fields(cls: Class, args: Items[Value], named: dict[str, Value]) -> None:
        spread = [(field, named["**"]) for field in cls.fields] if "**" in named else []
        for name, value in (*zip(cls.fields, args, strict=False), *named.items(), *spread):
            cls.attributes[name] = join(cls.attributes.get(name, UNKNOWN), value)

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
        if "holder" in owner or any(isinstance(atom, Instance) for atom in owner):
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
        for value in (*args, *named.values()):
            if name not in {"view_as", "expand_as", "reshape_as", "is_same_size", "is_set_to"}:
                self.reads(value, node, scope, f"as an argument of {name!r}")
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
            and not any(_is_dtype(one) for one in args)
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
        made = [atom for atom in owner if isinstance(atom, Made)]
        inside = join(inside, self.put_in(owner))
        value = join(*args, *named.values())
        if states and name in names.STATE_CHANGES and not self.setup:
            harmless = (
                name in {"setdefault", "update"} and value - MAYBE and not flat(value) & {"tensor"}
            )
            if not harmless:
                self.facts.add(
                    "state", scope.file, node, f"changes ({name}) an object that outlives the call"
                )
            self.facts.put(states, kept(value))
        if name in names.GROWTH:
            self.put_into_made(owner, value)
            if isinstance(node.func, ast.Attribute):
                self._grow(node.func.value, value, scope)
        if name in {"items"}:
            return bag(frozenset({Sequence((NUMBER, inside))}))
        if name in {"values", "keys", "copy", "union"}:
            return bag(inside) if name != "keys" else bag(NUMBER)
        if name in {"get", "pop", "setdefault", "popitem"}:
            default = value if name == "setdefault" else join(*args[1:])
            return join(inside, default, frozenset(states))
        if name in names.AMBIGUOUS and not (states or made or inside):
            return self._computed(node, scope)
        if name == "format":
            self._format(node, value, scope)
        return NUMBER if owner - MAYBE else UNKNOWN

    def _format(self, node: ast.Call, given: Value, scope: Scope) -> None:
        """`str.format` reads attributes that its text names, of whatever it is given."""
        text = node.func.value if isinstance(node.func, ast.Attribute) else None
        plain = isinstance(text, ast.Constant) and "__" not in str(text.value)
        if not plain or any(isinstance(one, Function | Class | Kernel) for one in flat(given)):
            self.facts.add("dynamic", scope.file, node, "reads attributes that a text names")
        if not self.messages:
            self.reads(given, node, scope, "as text")

    def _grow(self, node: ast.expr, value: Value, scope: Scope) -> None:
        old = scope.find(node.id) if isinstance(node, ast.Name) else None
        if isinstance(node, ast.Name) and old and not any(isinstance(a, Made) for a in old):
            grown = bag(join(flat(old) - {a for a in old if isinstance(a, State)}, flat(value)))
            inner: Scope | None = scope
            while inner is not None and node.id not in inner.names:
                inner = inner.parent
            if inner is not None:
                inner.names[node.id] = grown | {a for a in old if isinstance(a, State)}


def _is_language(atom: object) -> bool:
    return isinstance(atom, Path) and atom.name.startswith(("triton.", "torch."))


def _is_dtype(value: Value) -> bool:
    return "dtype" in value or any(
        isinstance(atom, Path) and atom.name.removeprefix("torch.") in names.DTYPES
        for atom in value
    )


def _names_a_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    text = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return "dev" in text.lower()
