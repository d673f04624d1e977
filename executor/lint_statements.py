"""Reading of a Solution's host code, statement by statement, from module level and from the entry."""

from __future__ import annotations

import ast
from collections.abc import Sequence as Items

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_imports import Imports
from kernel_skills.executor.lint_library import JIT
from kernel_skills.executor.lint_program import Fact, File, Scope, parameters, pointer_parameters
from kernel_skills.executor.lint_types import annotated, never_runs, tensor_evidence
from kernel_skills.executor.lint_values import (
    NUMBER,
    TENSOR,
    UNKNOWN,
    Class,
    Decorator,
    Function,
    Instance,
    Kernel,
    Path,
    State,
    Value,
    bag,
    flat,
    join,
    sequence,
)

MAX_CONTEXTS = 12
"""Combinations of arguments that a function is read with; further ones get what the first ones gave."""
MAX_DEPTH = 30
_END = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Interpreter(Imports):
    """Reads a whole Solution."""

    def __init__(self, files: dict[str, File]) -> None:
        super().__init__(files)
        self.kernels: dict[ast.FunctionDef, Kernel] = {}
        self._memo: dict[object, Value] = {}
        self._contexts: dict[Function, list[object]] = {}
        self._returns: list[Value] = []
        self._depth = 0
        self._loops = 0

    def read(self, path: str, entry: str) -> None:
        """Read every module, then the entry, then each function that is handed on."""
        for _ in range(2):
            # a second time, for what the first call leaves behind
            self._memo.clear()
            self._contexts.clear()
            self.setup = True
            for file in [self.files[path], *self.files.values()]:
                self.load(file)
            self.setup = False
            self._enter(self.files[path].scope.find(entry) or UNKNOWN, self.files[path])
            while self.waiting:
                function = next(iter(self.waiting))
                del self.waiting[function]
                self._read_waiting(function)
            if not self.facts.contents:
                break
        for states, fact in self.facts.branches:
            if states & self.facts.changed:
                self.facts.all.setdefault(fact)

    def _enter(self, entry: Value, file: File) -> None:
        for atom in entry:
            if isinstance(atom, Function):
                self._check_result(self.call(atom, (), {}, UNKNOWN), atom)
            elif isinstance(atom, Class):
                self.setup = True
                instance = self._instantiate(atom, (), {})
                self.setup = False
                for method in atom.find("forward") or atom.find("__call__") or ():
                    if isinstance(method, Function):
                        self._check_result(self.call(method, (), {}, instance), method)

    def _check_result(self, result: Value, function: Function) -> None:
        self.used_as_tensor(flat(result))
        if "kept" in flat(result):
            self.facts.add(
                "state", function.file, function.node, "returns a tensor that an earlier call left"
            )

    def _read_waiting(self, function: Function) -> None:
        read = self._contexts.get(function)
        if read and (function.owner is not None or any(not key[-1] for key in read)):  # type: ignore[index]
            return
        if function.owner is not None and function.name in {"__init__", "__post_init__"}:
            return
        owner: Value = UNKNOWN
        if function.owner is not None:
            is_autograd = function.owner.inherits("torch.autograd.Function")
            owner = frozenset({"context"}) if is_autograd else frozenset({Instance(function.owner)})
        self.call(function, (owner,) if function.static and owner else (), {}, owner)

    def load(self, file: File) -> None:
        if not file.loaded:
            file.loaded = True
            setup, self.setup = self.setup, True
            self.block(file.tree.body, file.scope)
            self.setup = setup

    # --- calls of own functions ------------------------------------------------------------------

    def call(
        self, function: Function, args: Items[Value], named: dict[str, Value], owner: Value
    ) -> Value:
        node = function.node
        method = function.owner is not None and not function.static and owner
        bound = self._bind_arguments(function, [owner, *args] if method else list(args), named)
        key = (function, tuple(sorted(bound.items(), key=lambda item: item[0])), self.setup)
        if key in self._memo:
            return self._memo[key]
        read = self._contexts.setdefault(function, [])
        if len(read) >= MAX_CONTEXTS or self._depth >= MAX_DEPTH:
            return join(*(self._memo[one] for one in read))
        read.append(key)
        self._memo[key] = UNKNOWN
        scope = Scope(function.file, function.scope, dict(bound), function=function)
        self._depth += 1
        if isinstance(node, ast.Lambda):
            result = self.value(node.body, scope)
        else:
            if isinstance(node, ast.AsyncFunctionDef):
                self.facts.add("async", function.file, node, "is asynchronous")
            self._returns.append(UNKNOWN)
            self.block(node.body, scope)
            result = self._returns.pop()
            if any(isinstance(one, ast.Yield | ast.YieldFrom) for one in ast.walk(node)):
                result = self.made(bag(flat(result)), node, scope)
        self._depth -= 1
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
            given = UNKNOWN
            if one in positional and place < len(args):
                given = args[place]
            given = join(given, named.get(one.arg, UNKNOWN), named.get("**", UNKNOWN))
            if one.arg in evidence:
                self.used_as_tensor(given)
            if not given:
                given = join(
                    annotated(one.annotation, function.scope), function.defaults.get(one.arg, UNKNOWN),
                    TENSOR if one.arg in evidence else UNKNOWN,
                )  # fmt: skip
            bound[one.arg] = given
        if spec.vararg:
            rest = args[len(positional) :]
            if rest:
                bound[spec.vararg.arg] = sequence(rest)
            else:
                each = annotated(spec.vararg.annotation, function.scope)
                bound[spec.vararg.arg] = bag(each or (TENSOR if self._depth == 0 else UNKNOWN))
        if spec.kwarg:
            known = {one.arg for one in parameters(function.node)}
            bound[spec.kwarg.arg] = bag(join(*(v for k, v in named.items() if k not in known)))
        return bound

    # --- definitions ------------------------------------------------------------------------------

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        function = Function(node, scope.file, scope)
        function.defaults = self.defaults(node, scope)
        result: Value = frozenset({function})
        for decorator in reversed(node.decorator_list):
            result = self._decorated(result, decorator, function, scope)
        if not any(isinstance(atom, Kernel) for atom in result):
            for one in parameters(node):
                if one.annotation is not None and _runs_code(one.annotation):
                    self.value(one.annotation, scope)
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
                function.cached |= atom.name in {"functools.lru_cache", "functools.cache"}
            if isinstance(atom, Function):
                return self.call(atom, (value,), {}, UNKNOWN) or value
        return value

    def kernel_of(self, node: ast.FunctionDef, path: str) -> Kernel:
        if node not in self.kernels:
            self.kernels[node] = Kernel(node, self.files[path], pointer_parameters(node))
        return self.kernels[node]

    def _classdef(self, node: ast.ClassDef, scope: Scope) -> None:
        bases = join(*(self._base(one, scope) for one in node.bases))
        if node.keywords:
            self.facts.add("base", scope.file, node, f"class {node.name!r} takes keywords")
        cls = Class(node, scope.file, bases)
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
                    atom.owner, atom.scope = cls, scope
            cls.members[name] = value
            if name in cls.attributes:
                cls.attributes[name] |= value
        scope.names[node.name] = frozenset({cls})

    def _base(self, node: ast.expr, scope: Scope) -> Value:
        value = self.value(node, scope)
        for atom in value:
            fine = isinstance(atom, Class) or (
                isinstance(atom, Path)
                and (atom.name in _BASES or (atom.name.startswith("builtins.") and atom.name.endswith("Error")))
            )  # fmt: skip
            if not fine:
                self.facts.add("base", scope.file, node, f"inherits from {ast.unparse(node)}")
        if not value and not isinstance(node, ast.Name):
            self.facts.add("base", scope.file, node, f"inherits from {ast.unparse(node)}")
        return value

    # --- statements -------------------------------------------------------------------------------

    def block(self, body: Items[ast.stmt], scope: Scope) -> None:
        for node in body:
            self.statement(node, scope)

    def statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._define(node, scope)
            case ast.ClassDef():
                self._classdef(node, scope)
            case ast.Import() | ast.ImportFrom():
                self.import_(node, scope)
            case ast.Return():
                self._return(node, scope)
            case ast.If() | ast.While():
                self._branch(node, scope)
            case ast.For() | ast.AsyncFor():
                self._loop(node, scope)
            case ast.Try() | ast.TryStar():
                self._try(node, scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    value = self.value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, value, scope)
                self.block(node.body, scope)
            case ast.Match():
                self._match(node, scope)
            case ast.Global():
                scope.globals.update(node.names)
            case ast.Nonlocal():
                scope.outer.update(node.names)
            case _:
                self.simple(node, scope)

    def _return(self, node: ast.Return, scope: Scope) -> None:
        value = self.value(node.value, scope) if node.value else NUMBER
        self.pointer_use(value, node, scope)
        if "tensor" in flat(value):
            self.facts.launches += 1
        if self._returns:
            self._returns[-1] = join(self._returns[-1], value)

    def yielded(self, value: Value) -> None:
        if self._returns:
            self._returns[-1] = join(self._returns[-1], value)

    def _branch(self, node: ast.If | ast.While, scope: Scope) -> None:
        if never_runs(node.test, scope):
            self.block(node.orelse, scope)
            return
        self.truth(node.test, scope)
        before, effects = dict(scope.names), self.facts.launches
        self.block(node.body, scope)
        if isinstance(node, ast.While) and self.passes() > 1:
            self.block(node.body, scope)
        first = scope.names
        scope.names = before
        self.block(node.orelse, scope)
        if self.facts.launches != effects:
            self._depends_on_state(node, scope)
        scope.names = self._merged(node, first, scope.names)

    @staticmethod
    def _merged(
        node: ast.If | ast.While, first: dict[str, Value], second: dict[str, Value]
    ) -> dict[str, Value]:
        if node.body and isinstance(node.body[-1], _END):
            return second
        if node.orelse and isinstance(node.orelse[-1], _END):
            return first
        return {
            name: join(first.get(name, UNKNOWN), second.get(name, UNKNOWN))
            for name in {**first, **second}
        }

    def _depends_on_state(self, node: ast.If | ast.While, scope: Scope) -> None:
        present = isinstance(node.test, ast.Compare) and isinstance(
            node.test.ops[0], ast.Is | ast.IsNot
        )
        present |= isinstance(node.test, ast.Name | ast.UnaryOp)
        states = frozenset(
            atom
            for one in ast.walk(node.test)
            if isinstance(one, ast.Name) and (present or one.id not in scope.names)
            for atom in scope.find(one.id) or ()
            if isinstance(atom, State)
        )
        if states:
            reason = "launches, or returns a tensor, depending on what earlier calls left"
            self.facts.branches.append(
                (states, Fact("state", scope.file.path, node.lineno, reason))
            )

    def passes(self) -> int:
        """Times that a loop's body is read: twice, so that what it leaves meets its start; once deep inside loops."""
        return 2 if self._loops < 4 else 1

    def _loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        if isinstance(node, ast.AsyncFor):
            self.facts.add("async", scope.file, node, "iterates asynchronously")
        value = self.iterated(self.value(node.iter, scope))
        before = dict(scope.names)
        for _ in range(self.passes()):
            self.bind(node.target, value, scope)
            self._loops += 1
            self.block(node.body, scope)
            self._loops -= 1
        for name, old in before.items():
            scope.names[name] = join(old, scope.names.get(name, UNKNOWN))
        self.block(node.orelse, scope)

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        effects = self.facts.launches
        self.block(node.body, scope)
        launched = self.facts.launches != effects
        guard = all(
            isinstance(one, ast.Import | ast.ImportFrom | ast.Assign | ast.Pass)
            for one in node.body
        )
        if node.handlers and (launched or (scope.is_module and not guard)):
            self.facts.add("try", scope.file, node, "catches what a launch raises" if launched else "catches exceptions of code that runs at import")  # fmt: skip
        for handler in node.handlers:
            self.value(handler.type, scope)
            if handler.name:
                scope.names[handler.name] = UNKNOWN
            self.block(handler.body, scope)
        self.block(node.orelse, scope)
        self.block(node.finalbody, scope)

    def _match(self, node: ast.Match, scope: Scope) -> None:
        subject = self.value(node.subject, scope)
        for case in node.cases:
            for pattern in ast.walk(case.pattern):
                if isinstance(pattern, ast.MatchClass):
                    self.value(pattern.cls, scope)
                    for name in pattern.kwd_attrs:
                        self.attribute(subject, name, node, scope)
                elif isinstance(pattern, ast.MatchValue):
                    self.value(pattern.value, scope)
                for bound in (getattr(pattern, "name", None), getattr(pattern, "rest", None)):
                    if isinstance(bound, str):
                        scope.names[bound] = join(subject, flat(subject))
            self.value(case.guard, scope)
            self.block(case.body, scope)


_BASES = names.words(
    "torch.nn.Module torch.autograd.Function typing.NamedTuple typing.Protocol typing.Generic typing.TypedDict"
    " enum.Enum enum.IntEnum enum.StrEnum enum.Flag enum.IntFlag builtins.object builtins.Exception"
)


def _runs_code(node: ast.expr) -> bool:
    return any(isinstance(one, ast.Call | ast.NamedExpr | ast.Lambda) for one in ast.walk(node))
