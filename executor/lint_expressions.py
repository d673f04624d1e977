"""What an expression of the host code is: tensor, number, kernel, a name of a library."""

from __future__ import annotations

import ast
from abc import abstractmethod

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_containers import Containers
from kernel_skills.executor.lint_program import MAX_STEPS, Scope, TooLarge
from kernel_skills.executor.lint_values import (
    MAYBE,
    NUMBER,
    TENSOR,
    UNKNOWN,
    Class,
    Computed,
    Function,
    Instance,
    Kernel,
    Launcher,
    Made,
    Path,
    Sequence,
    State,
    Value,
    bag,
    elements,
    flat,
    join,
    sequence,
)

_TENSOR_RESULTS = names.ALLOCATORS | names.VIEW_FUNCTIONS | names.SETUP_FUNCTIONS


class Expressions(Containers):
    """Evaluates expressions; what is wrong with them goes to `facts`."""

    @abstractmethod
    def call_node(self, node: ast.Call, scope: Scope) -> Value:
        """Return what a call gives."""

    @abstractmethod
    def bind(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Give a target of an assignment its value."""

    def value(self, node: ast.expr | None, scope: Scope) -> Value:
        if node is None:
            return UNKNOWN
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TooLarge
        visit = getattr(self, f"_{type(node).__name__.lower()}", None)
        if visit is None:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr):
                    self.value(child, scope)
            return MAYBE
        result: Value = visit(node, scope) or MAYBE
        if not self.setup and isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            self._judge_again(result, node, scope)
        return result

    def _judge_again(self, value: Value, node: ast.expr, scope: Scope) -> None:
        """What set-up may name, a call may not: `F = torch.exp` at module level, `F(x)` in the entry."""
        for atom in value:
            if isinstance(atom, Path) and atom.name.startswith("torch."):
                rule = names.judge_path(atom.name, False)
                if rule:
                    self.facts.add(rule, scope.file, node, f"names {atom.name!r}")

    def _constant(self, node: ast.Constant, scope: Scope) -> Value:
        return NUMBER

    def _name(self, node: ast.Name, scope: Scope) -> Value:
        found = scope.find(node.id)
        if found is not None:
            self.named(found)
            if any(isinstance(a, Function | Class) and a.name == node.id for a in found):
                self._task_name(node.id, scope, node)
            return found
        return self._builtin(node, scope)

    def _task_name(self, name: str, scope: Scope, node: ast.AST) -> None:
        if name in names.TASK_NAMES - {"Model"}:
            self.facts.add("task", scope.file, node, f"names the task's own {name!r}")

    def _builtin(self, node: ast.Name, scope: Scope) -> Value:
        if node.id in names.TASK_NAMES:
            self._task_name(node.id, scope, node)
            if node.id == "Model":
                self.facts.add("task", scope.file, node, "names the task's own 'Model'")
            return UNKNOWN
        if node.id.startswith("__") and node.id not in names.DUNDER_READS:
            self.facts.add("dunder", scope.file, node, f"names {node.id!r}")
            return UNKNOWN
        path = f"builtins.{node.id}"
        if names.judge_path(path, self.setup):
            self.facts.add("builtin", scope.file, node, f"uses {node.id!r}")
            return UNKNOWN
        return frozenset({Path(path)})

    # --- subscripts and operators -----------------------------------------------------------

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        owner, index = self.value(node.value, scope), self.value(node.slice, scope)
        self.pointer_use(index, node, scope)
        found: Value = UNKNOWN
        for atom in owner:
            if isinstance(atom, Kernel):
                self._grid(index, node, scope)
                found |= {Launcher(atom)}
            elif atom == "tensor":
                self.reads(index, node, scope, "as an index")
                found |= owner & {"tensor", "fresh", "kept"}
            elif isinstance(atom, Sequence):
                self.reads(index, node, scope, "as an index")
                found |= self.element(atom, node.slice)
            elif isinstance(atom, State | Made):
                self.reads(index, node, scope, "as an index")
                found |= self.put_in(frozenset({atom})) | {atom}
            elif atom in ("number", "holder") or (
                isinstance(atom, Path) and not atom.name.startswith("builtins.")
            ):
                found |= {atom}
            elif isinstance(atom, Instance) and (method := atom.of.find("__getitem__")):
                for one in method:
                    if isinstance(one, Function):
                        found |= self.call(one, (index,), {}, frozenset({atom}))
        return found

    def _grid(self, index: Value, node: ast.AST, scope: Scope) -> None:
        self.reads(index, node, scope, "as a grid")
        for atom in index:
            if isinstance(atom, Function):
                before = self.facts.launches
                size = self.call(atom, (NUMBER,), {}, UNKNOWN)
                self.reads(size, node, scope, "as a grid")
                if self.facts.launches != before:
                    self.facts.add("hook", scope.file, node, "launches while a grid is computed")

    def pointer_use(self, value: Value, node: ast.AST, scope: Scope) -> None:
        if "pointer" in flat(value):
            self.facts.add(
                "pointer", scope.file, node, "uses an address for more than its alignment"
            )

    def _binop(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.value(node.left, scope), self.value(node.right, scope)
        return self.operate(node.op, left, right, node, scope)

    def operate(
        self, op: ast.operator, left: Value, right: Value, node: ast.AST, scope: Scope
    ) -> Value:
        if "pointer" in left and "pointer" not in right and isinstance(op, ast.Mod | ast.BitAnd):
            return NUMBER
        self.pointer_use(join(left, right), node, scope)
        if isinstance(op, ast.MatMult):
            self.facts.add("operation", scope.file, node, "multiplies matrices with `@`")
            return TENSOR
        both = join(left, right)
        if "tensor" in both or "holder" in both:
            if not self.setup and not self._text_format(op, left):
                self.facts.add(
                    "operation", scope.file, node, f"computes with a tensor ({_symbol(op)})"
                )
            return TENSOR
        sequences = [atom for atom in both if isinstance(atom, Sequence)]
        if sequences:
            return self.made(bag(self.elements(both)), node, scope)
        return NUMBER if _known(left) and _known(right) else self._computed(node, scope)

    @staticmethod
    def _computed(node: ast.AST, scope: Scope) -> Value:
        return frozenset({Computed(scope.file.path, getattr(node, "lineno", 1))})

    @staticmethod
    def _text_format(op: ast.operator, left: Value) -> bool:
        return isinstance(op, ast.Mod) and left == NUMBER

    def _unaryop(self, node: ast.UnaryOp, scope: Scope) -> Value:
        if isinstance(node.op, ast.Not):
            self.truth(node.operand, scope)
            return NUMBER
        value = self.value(node.operand, scope)
        self.pointer_use(value, node, scope)
        if "tensor" in value:
            if not self.setup:
                self.facts.add("operation", scope.file, node, "computes with a tensor (a sign)")
            return TENSOR
        return value if _known(value) else self._computed(node, scope)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Value:
        for one in node.values[:-1]:
            self.truth(one, scope)
        return join(*(self.value(one, scope) for one in node.values))

    def _slice(self, node: ast.Slice, scope: Scope) -> Value:
        return join(*(self.value(one, scope) for one in (node.lower, node.upper, node.step)))

    def _compare(self, node: ast.Compare, scope: Scope) -> Value:
        values = [self.value(one, scope) for one in (node.left, *node.comparators)]
        plain = all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops)
        member = all(isinstance(op, ast.In | ast.NotIn) for op in node.ops)
        for value in values:
            self.pointer_use(value, node, scope)
        if member:
            for value in values:
                self.reads(value & {"tensor"}, node, scope, "to look it up")
                self._consumes(value, node, scope)
        if not (plain or member) and any("tensor" in value for value in values):
            none = any(
                isinstance(one, ast.Constant) and one.value is None for one in node.comparators
            )
            if not none and not self.setup:
                self.facts.add("operation", scope.file, node, "compares the elements of a tensor")
                return TENSOR
        if plain or member or all(_known(value) for value in values):
            return NUMBER
        return self._computed(node, scope)

    def truth(self, node: ast.expr, scope: Scope) -> None:
        """The test of a branch."""
        value = self.value(node, scope)
        named = isinstance(node, ast.Name) and value - {"fresh", "kept"} == TENSOR
        if named or isinstance(node, ast.Subscript | ast.Call):
            self.reads(value & {"tensor"}, node, scope, "to branch on them")

    def _yield(self, node: ast.Yield, scope: Scope) -> Value:
        self.yielded(self.value(node.value, scope))
        return UNKNOWN

    def _yieldfrom(self, node: ast.YieldFrom, scope: Scope) -> Value:
        self.yielded(elements(self.value(node.value, scope)))
        return UNKNOWN

    @abstractmethod
    def yielded(self, value: Value) -> None:
        """Note what a generator yields."""

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Value:
        self.truth(node.test, scope)
        return join(self.value(node.body, scope), self.value(node.orelse, scope))

    # --- literals, comprehensions, functions -------------------------------------------------

    def _tuple(self, node: ast.Tuple, scope: Scope) -> Value:
        return self._items(node.elts, scope)

    def _list(self, node: ast.List, scope: Scope) -> Value:
        return self.made(self._items(node.elts, scope), node, scope)

    def _set(self, node: ast.Set, scope: Scope) -> Value:
        values = [self.value(one, scope) for one in node.elts]
        for value in values:
            self.pointer_use(value, node, scope)
            self._hashes(value, node, scope)
        return self.made(bag(join(*values)), node, scope)

    def _items(self, nodes: list[ast.expr], scope: Scope) -> Value:
        values = [self.value(one, scope) for one in nodes]
        if any(isinstance(one, ast.Starred) for one in nodes):
            return bag(join(*values))
        return sequence(values)

    def _starred(self, node: ast.Starred, scope: Scope) -> Value:
        value = self.value(node.value, scope)
        self._consumes(value, node, scope)
        return self.elements(value)

    def _dict(self, node: ast.Dict, scope: Scope) -> Value:
        for key in node.keys:
            name = self.value(key, scope)
            self.pointer_use(name, node, scope)
            if key is not None:
                self._hashes(name, node, scope)
            if isinstance(key, ast.Constant) and key.value in names.FOREIGN_CODE:
                self.facts.add("launch-argument", scope.file, node, f"sets {key.value!r}")
        parts = []
        for key, one in zip(node.keys, node.values, strict=True):
            value = self.value(one, scope)
            parts.append(self.elements(value) if key is None else value)
        return self.made(bag(join(*parts)), node, scope)

    def _joinedstr(self, node: ast.JoinedStr, scope: Scope) -> Value:
        for one in node.values:
            if isinstance(one, ast.FormattedValue):
                value = self.value(one.value, scope)
                self.pointer_use(value, one.value, scope)
                if not self.messages:
                    self.reads(value, one.value, scope, "as text")
                self.value(one.format_spec, scope)
        return NUMBER

    def _listcomp(self, node: ast.ListComp, scope: Scope) -> Value:
        return self.made(bag(self._comprehend(node.generators, [node.elt], scope)), node, scope)

    def _generatorexp(self, node: ast.GeneratorExp, scope: Scope) -> Value:
        found = bag(self._comprehend(node.generators, [node.elt], scope))
        return self.made(found, node, scope, iterator=True)

    _setcomp = _listcomp

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Value:
        value = self._comprehend(node.generators, [node.key, node.value], scope)
        self.pointer_use(value, node, scope)
        return self.made(bag(value), node, scope)

    def _comprehend(
        self, generators: list[ast.comprehension], results: list[ast.expr], scope: Scope
    ) -> Value:
        inner = Scope(scope.file, scope, globals=scope.globals, function=scope.function)
        inner.comprehension = True
        for one in generators:
            over = self.value(one.iter, inner)
            self._consumes(over, one.iter, scope)
            self.bind(one.target, self.elements(over), inner)
            if one.is_async:
                self.facts.add("async", scope.file, one.target, "iterates asynchronously")
            for condition in one.ifs:
                self.truth(condition, inner)
        return [self.value(one, inner) for one in results][-1]

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        function = Function(node, scope.file, scope)
        function.defaults = self.defaults(node, scope)
        self.waiting.setdefault(function)
        return frozenset({function})

    def defaults(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope
    ) -> dict[str, Value]:
        spec = node.args
        positional = [*spec.posonlyargs, *spec.args]
        pairs = list(zip(reversed(positional), reversed(spec.defaults), strict=False))
        pairs += [(a, d) for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d]
        return {one.arg: self.value(default, scope) for one, default in pairs}

    def _namedexpr(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.value(node.value, scope)
        inner = scope
        while scope.comprehension and scope.parent is not None:
            scope = scope.parent
        self.bind(node.target, join(value, scope.names.get(node.target.id, UNKNOWN)) if inner is not scope else value, scope)  # fmt: skip
        return value

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        return self.call_node(node, scope)

    def _await(self, node: ast.Await, scope: Scope) -> Value:
        self.facts.add("async", scope.file, node, "awaits")
        return self.value(node.value, scope)

    def allocated(self) -> Value:
        """A new tensor: of this call, or one that all calls find."""
        return frozenset({"tensor", "kept" if self.setup else "fresh"})

    def result_of_path(self, path: str, args: list[Value]) -> Value:
        """What a call of an allowed name returns."""
        head, _, name = path.rpartition(".")
        if path.startswith("torch.nn.init."):
            return TENSOR
        if head == "torch.nn" and name in names.HOLDERS:
            self.facts.holders = True
            inside = join(*(flat(elements(a)) for a in args), *(flat(a) for a in args))
            own = frozenset(a for a in inside if isinstance(a, Instance))
            found = frozenset({"holder"}) if self.setup else frozenset({"holder", "fresh"})
            return bag(own) | own if own else found
        if path.endswith(("nn.Parameter", "nn.parameter.Parameter")):
            return TENSOR
        if head == "torch" and name in names.VIEW_FUNCTIONS:
            return kept_kind(args)
        if head == "torch" and name in _TENSOR_RESULTS:
            return self.allocated()
        if name in {"finfo", "iinfo", "get_device_properties"} or head.startswith("triton."):
            return frozenset({"props"})
        return NUMBER if head in ("torch", "torch.cuda", "math", "triton") else UNKNOWN


def _known(value: Value) -> bool:
    return bool(value - MAYBE) and not any(
        atom == "maybe" or isinstance(atom, Computed) for atom in value
    )


def kept_kind(args: list[Value]) -> Value:
    first = args[0] if args else UNKNOWN
    return (first & {"tensor", "fresh", "kept"}) | TENSOR


def _symbol(op: ast.operator) -> str:
    table = {
        "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
        "LShift": "<<", "RShift": ">>", "BitOr": "|", "BitXor": "^", "BitAnd": "&",
    }  # fmt: skip
    return table.get(type(op).__name__, "@")
