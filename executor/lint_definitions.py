"""Functions and classes of the Solution: their definitions, and what a call of one gives."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence as Items

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_imports import Imports
from kernel_skills.executor.lint_library import CACHES, JIT
from kernel_skills.executor.lint_program import File, Scope, TooLarge, parameters
from kernel_skills.executor.lint_types import annotated, is_generator, runs_code, tensor_evidence
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
    Path,
    Value,
    bag,
    flat,
    join,
    sequence,
)

MAX_CONTEXTS = 6
"""Combinations of arguments that a function is read with; after that, with all of them together."""
MAX_DEPTH = 30


class Definitions(Imports):
    """Reads functions and classes, once for each combination of arguments."""

    def __init__(self, files: dict[str, File]) -> None:
        super().__init__(files)
        self.kernels: dict[ast.FunctionDef, Kernel] = {}
        self.contexts: dict[Function, list[tuple[object, ...]]] = {}
        """What each function was read with; the last part is whether during set-up."""
        self.classes: list[Class] = []
        """Those at module level."""
        self.returns: list[Value] = []
        self.depth = 0
        self._memo: dict[object, Value] = {}
        self._widest: dict[Function, dict[str, Value]] = {}

    @abstractmethod
    def block(self, body: Items[ast.stmt], scope: Scope) -> None:
        """Read statements in order."""

    def forget(self) -> None:
        """Read every function anew."""
        self._memo.clear()
        self._widest.clear()
        self.contexts.clear()

    def call(
        self, function: Function, args: Items[Value], named: dict[str, Value], owner: Value
    ) -> Value:
        node = function.node
        method = function.owner is not None and not function.static and owner
        if function.of_class:
            owner = frozenset(a.of if isinstance(a, Instance) else a for a in owner)
        bound = self._bind_arguments(function, [owner, *args] if method else list(args), named)
        key = (function, tuple(sorted(bound.items(), key=lambda item: item[0])), self.setup)
        if key in self._memo:
            return self._memo[key]
        read = self.contexts.setdefault(function, [])
        if self.depth >= MAX_DEPTH:
            raise TooLarge
        if len(read) >= MAX_CONTEXTS:
            # all arguments seen so far, in one context that only grows
            bound = {name: join(old, bound[name]) for name, old in self._widest[function].items()}
            key = (function, tuple(sorted(bound.items(), key=lambda item: item[0])), self.setup)
            if key in self._memo:
                return self._memo[key]
        widest = self._widest.setdefault(function, {})
        self._widest[function] = {one: join(widest.get(one, UNKNOWN), bound[one]) for one in bound}
        read.append(key)
        self._memo[key] = UNKNOWN
        scope = Scope(function.file, function.scope, dict(bound), function=function)
        self.depth += 1
        if isinstance(node, ast.Lambda):
            result = self.value(node.body, scope)
        else:
            if isinstance(node, ast.AsyncFunctionDef):
                self.facts.add("async", function.file, node, "is asynchronous")
            self.returns.append(UNKNOWN)
            self.block(node.body, scope)
            result = self.returns.pop()
            if is_generator(node):
                result = self.made(bag(flat(result)), node, scope, iterator=True)
        self.depth -= 1
        self._memo[key] = result
        return result

    def _bind_arguments(
        self, function: Function, args: list[Value], named: dict[str, Value]
    ) -> dict[str, Value]:
        spec = function.node.args
        bound: dict[str, Value] = {}
        evidence = tensor_evidence(function)
        positional = [*spec.posonlyargs, *spec.args]
        for place, one in enumerate(parameters(function.node)):
            passed = [args[place]] if one in positional and place < len(args) else []
            passed += [named[name] for name in (one.arg, "**") if name in named]
            given = join(*passed)
            if one.arg in evidence:
                self.used_as_tensor(given)
            if not given - MAYBE:
                # an annotation may lie: that it says `int` is no proof
                given = join(
                    annotated(one.annotation, function.scope) - NUMBER,
                    UNKNOWN if passed else function.defaults.get(one.arg, UNKNOWN),
                    TENSOR if one.arg in evidence else UNKNOWN,
                )  # fmt: skip
            bound[one.arg] = given or MAYBE
        if spec.vararg:
            rest = args[len(positional) :]
            if rest:
                bound[spec.vararg.arg] = sequence(rest)
            else:
                each = annotated(spec.vararg.annotation, function.scope)
                bound[spec.vararg.arg] = bag(each or (TENSOR if self.depth == 0 else UNKNOWN))
        if spec.kwarg:
            known = {one.arg for one in parameters(function.node)}
            bound[spec.kwarg.arg] = bag(join(*(v for k, v in named.items() if k not in known)))
        return bound

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function = Function(node, scope.file, scope)
        function.defaults = self.defaults(node, scope)
        result: Value = frozenset({function})
        for decorator in reversed(node.decorator_list):
            result = self._decorated(result, decorator, function, scope)
        for annotation in (*(one.annotation for one in parameters(node)), node.returns):
            if annotation is not None and runs_code(annotation):
                self.value(annotation, scope)
        scope.names[node.name] = result

    def _decorated(self, value: Value, node: ast.expr, function: Function, scope: Scope) -> Value:
        for atom in self.value(node, scope):
            if isinstance(atom, Path) and (
                atom.name in JIT or atom.name == "triton.constexpr_function"
            ):
                return frozenset({self.kernel_of(function.node, scope.file.path)}) if isinstance(function.node, ast.FunctionDef) else value  # fmt: skip
            if isinstance(atom, Decorator):
                return self._decorate(atom, [value], node, scope) or value
            if isinstance(atom, Path):
                function.static |= atom.name == "builtins.staticmethod"
                function.of_class |= atom.name == "builtins.classmethod"
                function.cached |= atom.name in CACHES
            if isinstance(atom, Function):
                return self.call(atom, (value,), {}, UNKNOWN) - MAYBE or value
        return value

    def kernel_of(self, node: ast.FunctionDef, path: str) -> Kernel:
        if node not in self.kernels:
            self.kernels[node] = Kernel(node, self.files[path])
        return self.kernels[node]

    def _classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        bases = join(*(self._base(one, node, scope) for one in node.bases))
        if node.keywords:
            self.facts.add("base", scope.file, node, f"class {node.name!r} takes keywords")
        cls = Class(node, scope.file, bases)
        if scope.is_module:
            self.classes.append(cls)
        for decorator in node.decorator_list:
            self.value(decorator, scope)
        inner = Scope(scope.file, scope)
        for one in node.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                cls.fields += (one.target.id,)
                cls.attributes[one.target.id] = annotated(one.annotation, scope)
        self.block(node.body, inner)
        for name, value in inner.names.items():
            if name.startswith("__") and name not in names.DUNDER_METHODS:
                self.facts.add("dunder", scope.file, node, f"class {node.name!r} defines {name!r}")
            for atom in value:
                if isinstance(atom, Function) and atom.scope is inner:
                    atom.owner = None if name in cls.fields else cls
                    atom.scope = scope
            cls.members[name] = value
            if name in cls.attributes:
                cls.attributes[name] |= value
        scope.names[node.name] = frozenset({cls})

    def _base(self, node: ast.expr, cls: ast.ClassDef, scope: Scope) -> Value:
        value = self.value(node, scope)
        computes = any(
            isinstance(one, ast.FunctionDef) and one.name == "forward" for one in cls.body
        )
        for atom in value:
            fine = isinstance(atom, Class) or (
                isinstance(atom, Path)
                and (atom.name in _BASES or (computes and names.is_holder(atom.name)) or (atom.name.startswith("builtins.") and atom.name.endswith("Error")))
            )  # fmt: skip
            if not fine:
                self.facts.add("base", scope.file, node, f"inherits from {ast.unparse(node)}")
        if not value - MAYBE and not isinstance(node, ast.Name):
            self.facts.add("base", scope.file, node, f"inherits from {ast.unparse(node)}")
        return value

    def yielded(self, value: Value) -> None:
        if self.returns:
            self.returns[-1] = join(self.returns[-1], value)


_BASES = names.words(
    "torch.nn.Module torch.autograd.Function typing.NamedTuple typing.Protocol typing.Generic typing.TypedDict"
    " enum.Enum enum.IntEnum enum.StrEnum enum.Flag enum.IntFlag builtins.object builtins.Exception"
)
