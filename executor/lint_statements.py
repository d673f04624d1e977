"""Reading of a Solution's host code, statement by statement, from module level and from the entry."""

from __future__ import annotations

import ast
from collections.abc import Sequence as Items

from kernel_skills.executor.lint_definitions import Definitions
from kernel_skills.executor.lint_program import Fact, File, Scope, TooLarge
from kernel_skills.executor.lint_types import never_runs
from kernel_skills.executor.lint_values import (
    NUMBER,
    UNKNOWN,
    Class,
    Function,
    Instance,
    Kernel,
    Partial,
    State,
    Value,
    flat,
    join,
)

MAX_ROUNDS = 12
"""Readings of a loop's body, or of the whole Solution, until nothing new is found; two or three do."""
_END = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Interpreter(Definitions):
    """Reads a whole Solution."""

    def read(self, path: str, entry: str) -> None:
        """Read every module, then the entry, then each function that is handed on."""
        for _ in range(MAX_ROUNDS):
            # once more, as long as a call finds what an earlier one left behind
            before = self._left_behind()
            self.forget()
            self.setup = True
            for file in [self.files[path], *self.files.values()]:
                self.load(file)
            self.setup = False
            self._enter(self.files[path].scope.find(entry) or UNKNOWN, self.files[path])
            while self.waiting:
                function = next(iter(self.waiting))
                del self.waiting[function]
                self._read_waiting(function)
            if self._left_behind() == before:
                break
        else:
            raise TooLarge
        for states, fact in self.facts.branches:
            if states & self.facts.changed:
                self.facts.all.setdefault(fact)

    def _left_behind(self) -> tuple[object, int]:
        """What containers hold, and how much the attributes of classes at module level do."""
        attributes = (value for one in self.classes for value in one.attributes.values())
        return dict(self.facts.contents), sum(map(len, attributes))

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
        for atom in flat(result):
            if isinstance(atom, Function | Partial | Kernel) or (
                isinstance(atom, Instance) and not atom.of.inherits("typing.NamedTuple")
            ):
                self.facts.add("result", function.file, function.node, "returns what is no tensor")
        if "kept" in flat(result):
            self.facts.add(
                "state", function.file, function.node, "returns a tensor that an earlier call left"
            )

    def _read_waiting(self, function: Function) -> None:
        read = self.contexts.get(function)
        if read and (function.owner is not None or any(not key[-1] for key in read)):
            return
        if function.owner is not None and function.name in {"__init__", "__post_init__"}:
            return
        owner: Value = UNKNOWN
        if function.owner is not None:
            is_autograd = function.owner.inherits("torch.autograd.Function")
            owner = frozenset({"context"}) if is_autograd else frozenset({Instance(function.owner)})
        self.guessing = True
        self.call(function, (owner,) if function.static and owner else (), {}, owner)
        self.guessing = False

    def load(self, file: File) -> None:
        if not file.loaded:
            file.loaded = True
            setup, self.setup = self.setup, True
            self.block(file.tree.body, file.scope)
            self.setup = setup

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
        if self.returns:
            self.returns[-1] = join(self.returns[-1], value)

    def _branch(self, node: ast.If | ast.While, scope: Scope) -> None:
        if never_runs(node.test, scope):
            self.block(node.orelse, scope)
            return
        self.truth(node.test, scope)
        before, effects = dict(scope.names), self.facts.launches
        if isinstance(node, ast.While):
            self._repeat(node, scope, None)
        else:
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

    def _repeat(
        self, node: ast.For | ast.AsyncFor | ast.While, scope: Scope, value: Value | None
    ) -> None:
        """Read a loop's body until what it leaves is what it found."""
        for _ in range(MAX_ROUNDS):
            before = dict(scope.names)
            if value is not None and not isinstance(node, ast.While):
                self.bind(node.target, value, scope)
            self.block(node.body, scope)
            for name, old in before.items():
                scope.names[name] = join(old, scope.names.get(name, UNKNOWN))
            if scope.names == before:
                return
        raise TooLarge

    def _loop(self, node: ast.For | ast.AsyncFor, scope: Scope) -> None:
        if isinstance(node, ast.AsyncFor):
            self.facts.add("async", scope.file, node, "iterates asynchronously")
        over = self.value(node.iter, scope)
        self._consumes(over, node.iter, scope)
        self._repeat(node, scope, self.iterated(over))
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
        patterns = [one for case in node.cases for one in ast.walk(case.pattern)]
        if any(isinstance(one, ast.MatchValue) for one in patterns):
            self.reads(subject, node.subject, scope, "to match them")
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
            if case.guard is not None:
                self.truth(case.guard, scope)
            self.block(case.body, scope)
