"""Calls of builtins, torch and Triton."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Sequence as Items

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_expressions import Expressions
from kernel_skills.executor.lint_program import Scope
from kernel_skills.executor.lint_values import (
    MAYBE,
    NUMBER,
    UNKNOWN,
    Class,
    Decorator,
    Function,
    Instance,
    Kernel,
    Partial,
    Path,
    Sequence,
    Value,
    bag,
    flat,
    join,
)

JIT = frozenset({"triton.jit", "triton.experimental.gluon.jit"})
WRAPPERS = frozenset({"triton.autotune", "triton.heuristics"})
CACHES = frozenset({"functools.lru_cache", "functools.cache"})
_SAME = names.words("tuple list set frozenset reversed iter enumerate zip filter sorted map dict")
_HOOKS = names.words("pre_hook post_hook")


class LibraryCalls(Expressions):
    """Evaluates calls of what is not the Solution's own."""

    def _escape(self, value: Value) -> None:
        for atom in flat(value):
            if isinstance(atom, Function):
                self.waiting.setdefault(atom)

    @abstractmethod
    def kernel_of(self, node: ast.FunctionDef, path: str) -> Kernel:
        """Return the kernel that a jit function is."""

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
                    atom.cached |= decorator.path in CACHES
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
            if path in WRAPPERS:
                self._configuring((*args, *named.values()), path, node, scope)
            for value in (*args, *named.values()):
                self._escape(value)
            functions = [a for a in join(*args) if isinstance(a, Function | Kernel)] if args else []
            return self._decorate(Decorator(path), args, node, scope) if functions else frozenset({Decorator(path)})  # fmt: skip
        if head == "builtins":
            return self._call_builtin(name, args, named, node, scope)
        if path in CACHES:
            for atom in join(*args):
                if isinstance(atom, Function):
                    atom.cached = True
            return join(*args) if any(isinstance(a, Function) for a in join(*args)) else frozenset({Decorator(path)})  # fmt: skip
        if path == "functools.partial":
            for value in (*args, *named.values()):
                self._escape(value)
            wrapped = [a for a in join(*args[:1]) if isinstance(a, Path) and a.name in JIT | WRAPPERS]  # fmt: skip
            if wrapped:
                return frozenset({Decorator(wrapped[0].name)})
            return frozenset({Partial(join(*args[:1]), tuple(args[1:]), tuple(named.items()))})
        if path == "functools.wraps":
            return frozenset({Decorator(path)})
        if path == "contextlib.nullcontext":
            return join(*args)
        if path == "collections.namedtuple":
            return self._named_tuple(node, scope)
        if head == "math":
            for value in (*args, *named.values()):
                self.reads(value, node, scope, f"with math.{name}")
            unsure = name in {"prod", "sumprod"} and "maybe" in flat(join(*args))
            return self._computed(node, scope) if unsure else NUMBER
        if head == "itertools":
            found = bag(join(*args, *(self.elements(a) for a in args)))
            return self.made(found, node, scope, iterator=True)
        if path == "triton.Config":
            for key in _HOOKS & named.keys():
                self._hook(named[key], key, node, scope)
            for key in sorted(names.FOREIGN_CODE & named.keys()):
                self.facts.add("launch-argument", scope.file, node, f"sets {key!r}")
        if head.startswith("torch") or head.startswith("triton"):
            if path == "torch.Tensor" and not self.setup:
                self.facts.add("S-torch", scope.file, node, "makes a tensor with torch.Tensor(…)")
            if "out" in named:
                self.facts.add("S-torch", scope.file, node, f"lets {path} write with `out=`")
            if name.endswith("_like"):
                self.used_as_tensor(join(*args[:1]))
            sizes = args[1:] if name.endswith("_like") or name in names.VIEW_FUNCTIONS else args
            if name in names.ALLOCATORS | names.VIEW_FUNCTIONS | {"Size", "device", "arange"}:
                for value in (*sizes, *named.values()):
                    self.reads(value, node, scope, f"with {path}")
            elif head.startswith("triton") and "TensorDescriptor" not in path:
                for value in (*args, *named.values()):
                    self.reads(value, node, scope, f"with {path}")
            for value in (*args, *named.values()):
                self._escape(value)
        if head in {"dataclasses", "typing"} and name in {"replace", "cast"} and args:
            for atom in args[0]:
                if isinstance(atom, Instance):
                    self.set_fields(atom.of, (), named)
            return args[-1] if name == "cast" else args[0]
        if head in {"collections", "typing", "dataclasses"} and name in {
            "defaultdict",
            "OrderedDict",
            "field",
        }:
            return self.made(bag(UNKNOWN), node, scope)
        return self.result_of_path(path, args)

    def _named_tuple(self, node: ast.Call, scope: Scope) -> Value:
        """A class with the fields that the call spells out."""
        fields = node.args[1] if len(node.args) > 1 else None
        found: list[str] = []
        if isinstance(fields, ast.Constant) and isinstance(fields.value, str):
            found = fields.value.replace(",", " ").split()
        elif isinstance(fields, ast.List | ast.Tuple):
            found = [str(one.value) for one in fields.elts if isinstance(one, ast.Constant)]
        body = ast.ClassDef("namedtuple", [], [], [ast.Pass()], [])
        cls = Class(ast.copy_location(body, node), scope.file, frozenset({Path("typing.NamedTuple")}))  # fmt: skip
        cls.fields = tuple(found)
        cls.attributes = dict.fromkeys(found, UNKNOWN)
        return frozenset({cls})

    @staticmethod
    @abstractmethod
    def set_fields(cls: Class, args: Items[Value], named: dict[str, Value]) -> None:
        """Note what a dataclass's own constructor puts into its fields."""

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

    def _configuring(self, values: Items[Value], path: str, node: ast.AST, scope: Scope) -> None:
        """Functions that choose a configuration see the arguments of the launch, and only look at them."""
        for atom in flat(join(*values)):
            if isinstance(atom, Function) and not isinstance(atom, Kernel):
                setup, self.setup = self.setup, False
                before = self.facts.launches
                self.call(atom, (), {}, UNKNOWN)
                self.setup = setup
                if self.facts.launches != before and path in WRAPPERS:
                    self.facts.add("hook", scope.file, node, f"launches while {path} configures")

    def _hashes_all(self, value: Value, name: str, node: ast.AST, scope: Scope) -> None:
        for atom in self.elements(value):
            pair = atom.items if isinstance(atom, Sequence) else None
            key = pair[0] if name == "dict" and pair else frozenset({atom})
            if name != "dict" or pair:
                self._hashes(key, node, scope)

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
            over = join(*(self.elements(a) for a in args[1:])) if len(args) > 1 else UNKNOWN
            if not any(isinstance(a, Function) for a in join(*args[:1])):
                self.reads(over, node, scope, f"to {name} them")
            results = [self.call(a, [self.elements(b) for b in args[1:]], {}, UNKNOWN)
                       for a in (args[0] if args else ()) if isinstance(a, Function)]  # fmt: skip
            if any(isinstance(a, Path) and a.name.startswith("builtins") for a in (args[0] if args else ())) and "tensor" in over:  # fmt: skip
                self.facts.add("operation", scope.file, node, "computes with a tensor (map())")
            return self.made(bag(join(over, *results)), node, scope, iterator=True)
        if name == "print":
            self.facts.add("output", scope.file, node, "prints")
        for value in args:
            self._consumes(value, node, scope)
            if name in {"set", "frozenset", "dict"}:
                self._hashes_all(value, name, node, scope)
        for value in named.values():
            for atom in value:
                if isinstance(atom, Function):
                    self.call(atom, (self.elements(join(*args)),), {}, UNKNOWN)
        if name == "next":
            return join(*(self.elements(one) for one in args[:1]), *args[1:])
        if name == "iter" and len(args) > 1:
            results = [self.call(a, (), {}, UNKNOWN) for a in args[0] if isinstance(a, Function)]
            return self.made(bag(join(*results)), node, scope, iterator=True)
        if name == "type" and len(args) > 1:
            self.facts.add("dynamic", scope.file, node, "makes a class while running")
        if name in {"id", "hash"} and "tensor" in join(*args):
            self.facts.add("state", scope.file, node, "identifies a tensor")
        if name in _SAME:
            if name == "zip" or name == "enumerate":
                parts = [self.elements(a) for a in args]
                if name == "enumerate":
                    parts = [NUMBER, *parts[:1]]
                inner: Value = bag(frozenset({Sequence(tuple(parts))}))
            else:
                inner = bag(join(*(self.elements(a) for a in args), *named.values()))
                if len(args) == 1 and name in {"tuple", "list"}:
                    known = frozenset(a for a in args[0] if isinstance(a, Sequence))
                    inner = inner if self.put_in(args[0]) else known or inner
            if name in {"tuple", "frozenset"}:
                return inner
            return self.made(inner, node, scope, iterator=name not in {"list", "set", "dict", "sorted"})  # fmt: skip
        if name in {"max", "min"}:
            return join(*(self.elements(a) if len(args) == 1 else a for a in args)) or MAYBE
        if name in {"sum", "abs", "pow", "round", "divmod"} and "maybe" in flat(inside):
            return self._computed(node, scope)
        if name == "slice":
            return join(NUMBER, *args)
        if name == "getattr":
            return UNKNOWN
        return (
            NUMBER
            if name not in {"object", "property", "staticmethod", "classmethod"}
            else join(*args)
        )
