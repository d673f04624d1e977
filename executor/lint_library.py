"""Calls of builtins, torch and Triton."""

from __future__ import annotations

import ast

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_expressions import Expressions
from kernel_skills.executor.lint_program import Scope
from kernel_skills.executor.lint_values import (
    NUMBER,
    UNKNOWN,
    Decorator,
    Function,
    Kernel,
    Path,
    Sequence,
    State,
    Value,
    bag,
    elements,
    flat,
    join,
)

JIT = frozenset({"triton.jit", "triton.experimental.gluon.jit"})
WRAPPERS = frozenset({"triton.autotune", "triton.heuristics"})
_SAME = names.words("tuple list set frozenset reversed iter enumerate zip filter sorted map dict")
_HOOKS = names.words("pre_hook post_hook")


class LibraryCalls(Expressions):
    """Evaluates calls of what is not the Solution's own."""

    def _escape(self, value: Value) -> None:
        for atom in flat(value):
            if isinstance(atom, Function):
                self.waiting.setdefault(atom)

    def kernel_of(self, node: ast.FunctionDef, path: str) -> Kernel:
        raise NotImplementedError

    def _decorate(
        self, decorator: Decorator, args: list[Value], node: ast.AST, scope: Scope
    ) -> Value:
        found: Value = UNKNOWN
        for atom in args[0] if args else ():
            if isinstance(atom, Kernel):
                found |= {atom}
            elif isinstance(atom, Function):
                if decorator.path in JIT and isinstance(atom.node, ast.FunctionDef):
                    found |= {self.kernel_of(atom.node, atom.file.path)}
                    self.waiting.pop(atom, None)
                else:
                    atom.cached |= decorator.path.startswith("functools")
                    found |= {atom}
        return found

    def _call_path(
        self, path: str, args: list[Value], named: dict[str, Value], node: ast.Call, scope: Scope
    ) -> Value:
        head, _, name = path.rpartition(".")
        if path in JIT or path in WRAPPERS:
            for key in _HOOKS & named.keys():
                self._hook(named[key], key, node, scope)
            if "do_bench" in named:
                self.facts.add("hook", scope.file, node, "replaces the timer of the autotuner")
            for value in (*args, *named.values()):
                self._escape(value)
            functions = [a for a in join(*args) if isinstance(a, Function | Kernel)] if args else []
            return self._decorate(Decorator(path), args, node, scope) if functions else frozenset({Decorator(path)})  # fmt: skip
        if head == "builtins":
            return self._call_builtin(name, args, named, node, scope)
        if path in {"functools.lru_cache", "functools.cache"}:
            for atom in join(*args):
                if isinstance(atom, Function):
                    atom.cached = True
            return join(*args) if any(isinstance(a, Function) for a in join(*args)) else frozenset({Decorator(path)})  # fmt: skip
        if path == "functools.partial":
            return args[0] if args else UNKNOWN
        if head == "itertools":
            return self.made(bag(join(*(elements(a) for a in args))), node, scope)
        if path == "triton.Config":
            for key in _HOOKS & named.keys():
                self._hook(named[key], key, node, scope)
        if head.startswith("torch") or head.startswith("triton"):
            if path == "torch.Tensor" and not self.setup:
                self.facts.add("S-torch", scope.file, node, "makes a tensor with torch.Tensor(…)")
            if "out" in named:
                self.facts.add("S-torch", scope.file, node, f"lets {path} write with `out=`")
            if name.endswith("_like"):
                self.used_as_tensor(join(*args[:1]))
            if path == "torch.tensor" and not self.setup and "tensor" in flat(join(*args)):
                self.facts.add("operation", scope.file, node, "copies elements with torch.tensor")
            for value in (*args, *named.values()):
                self._escape(value)
        if head in {"dataclasses", "typing"} and name in {"replace", "cast"} and args:
            return args[-1] if name == "cast" else args[0]
        if head in {"collections", "typing", "dataclasses"} and name in {
            "defaultdict",
            "OrderedDict",
            "field",
        }:
            return self.made(bag(UNKNOWN), node, scope)
        return self.result_of_path(path, args)

    def _hook(self, value: Value, key: str, node: ast.AST, scope: Scope) -> None:
        if value <= NUMBER and value:
            return
        functions = [atom for atom in value if isinstance(atom, Function)]
        before = self.facts.launches
        for function in functions:
            setup, self.setup = self.setup, False
            self.call(function, (UNKNOWN,), {}, UNKNOWN)
            self.setup = setup
        if not functions or self.facts.launches != before or key == "post_hook":
            self.facts.add(
                "hook", scope.file, node, f"sets a {key} that does more than fill in a block shape"
            )

    def _call_builtin(
        self, name: str, args: list[Value], named: dict[str, Value], node: ast.Call, scope: Scope
    ) -> Value:
        inside = (
            join(*(flat(a) for a in args))
            if name in {"sum", "max", "min", "sorted", "any", "all"}
            else join(*args)
        )
        if name in names.READS_TENSORS and "tensor" in inside and not self.setup:
            self.facts.add("operation", scope.file, node, f"computes with a tensor ({name}())")
        if name in {"map", "filter"}:
            over = join(*(elements(a) for a in args[1:])) if len(args) > 1 else UNKNOWN
            results = [self.call(a, [elements(b) for b in args[1:]], {}, UNKNOWN)
                       for a in (args[0] if args else ()) if isinstance(a, Function)]  # fmt: skip
            if any(isinstance(a, Path) and a.name.startswith("builtins") for a in (args[0] if args else ())) and "tensor" in over:  # fmt: skip
                self.facts.add("operation", scope.file, node, "computes with a tensor (map())")
            return self.made(bag(join(over, *results)), node, scope)
        if name == "print":
            self.facts.add("output", scope.file, node, "prints")
        if name == "next":
            if args and any(isinstance(a, State) for a in args[0]):
                self.facts.add(
                    "state", scope.file, node, "counts calls with an iterator that outlives them"
                )
            return elements(args[0]) if args else UNKNOWN
        if name == "type" and len(args) > 1:
            self.facts.add("dynamic", scope.file, node, "makes a class while running")
        if name in {"id", "hash"} and "tensor" in join(*args):
            self.facts.add("state", scope.file, node, "identifies a tensor")
        if name in _SAME:
            if name == "zip" or name == "enumerate":
                parts = [elements(a) for a in args]
                if name == "enumerate":
                    parts = [NUMBER, *parts[:1]]
                inner: Value = bag(frozenset({Sequence(tuple(parts))}))
            else:
                inner = bag(join(*(elements(a) for a in args), *named.values()))
                if len(args) == 1 and name in {"tuple", "list"}:
                    known = frozenset(a for a in args[0] if isinstance(a, Sequence))
                    inner = known or inner
            return self.made(inner, node, scope) if name not in {"tuple", "frozenset"} else inner
        if name in {"max", "min"}:
            result = join(*(elements(a) if len(args) == 1 else a for a in args))
            return result or NUMBER
        if name == "getattr":
            return UNKNOWN
        return (
            NUMBER
            if name not in {"object", "property", "staticmethod", "classmethod"}
            else join(*args)
        )
