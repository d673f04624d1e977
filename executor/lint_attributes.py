"""What an attribute of a value is: of a tensor, of a library, of the Solution's own classes."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Sequence as Items

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_program import Fact, Facts, File, Scope
from kernel_skills.executor.lint_values import (
    DTYPE,
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
    Method,
    Path,
    Sequence,
    Sibling,
    State,
    Value,
    bag,
    flat,
    join,
)


class Attributes(ABC):
    """Reads attributes; what is wrong with them goes to `facts`."""

    def __init__(self, files: dict[str, File]) -> None:
        self.files = files
        self.facts = Facts()
        self.steps = 0
        self.guessing = False
        """While a function is read that nothing was seen to call: of its parameters nothing is known."""
        self.messages = 0
        """Above zero inside `raise` and `assert`, whose text ends the call."""
        self.setup = True
        """While modules are imported or the entry's class is built; no input exists yet."""
        self.waiting: dict[Function, None] = {}
        """Functions that are named: whoever holds them may call them."""

    @abstractmethod
    def call(
        self, function: Function, args: Items[Value], named: dict[str, Value], owner: Value
    ) -> Value:
        """Return what a call of one of the Solution's own functions gives."""

    @abstractmethod
    def value(self, node: ast.expr | None, scope: Scope) -> Value:
        """Return what an expression is."""

    def named(self, value: Value) -> None:
        for atom in value:
            if isinstance(atom, Function) and atom.node is not None:
                self.waiting.setdefault(atom)
            elif isinstance(atom, Class):
                for member in atom.members.values():
                    if member:
                        self.named(member)

    def used_as_tensor(self, value: Value) -> None:
        """What operators made of unknown operands turns out to be a tensor."""
        for atom in value:
            if isinstance(atom, Computed) and not self.setup:
                fact = Fact("operation", atom.path, atom.line, "computes with a tensor")
                self.facts.all.setdefault(fact)

    def reads(self, value: Value, node: ast.AST, scope: Scope, how: str) -> None:
        """Python asks for an element of a tensor: to branch on it, to count with it, to show it."""
        if "tensor" in flat(value) and not self.setup:
            self.facts.add("operation", scope.file, node, f"reads elements of a tensor ({how})")

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        chain, base = [node.attr], node.value
        nodes = [node]
        while isinstance(base, ast.Attribute):
            chain.append(base.attr)
            nodes.append(base)
            base = base.value
        value = self.value(base, scope)
        for position in range(len(chain) - 1, -1, -1):
            value = self.attribute(
                value, chain[position], nodes[position], scope, last=position == 0
            )
        return value

    def attribute(
        self, owner: Value, name: str, node: ast.AST, scope: Scope, last: bool = True
    ) -> Value:
        """`owner.name`. Of a dotted path, only the last step is judged."""
        if name in names.NEVER:
            self.facts.add("frame", scope.file, node, f"reads {name!r}")
            return UNKNOWN
        if name.startswith("__") and name.endswith("__") and name not in names.DUNDER_READS:
            self.facts.add("dunder", scope.file, node, f"reads {name!r}")
            return UNKNOWN
        if name in {"__name__", "__doc__"}:
            return NUMBER
        if not owner:
            return self._of_unknown(owner, name, node, scope)
        return join(*(self._of(atom, owner, name, node, scope, last) for atom in owner))

    def _of(
        self, atom: object, owner: Value, name: str, node: ast.AST, scope: Scope, last: bool
    ) -> Value:
        if isinstance(atom, Path):
            path = f"{atom.name}.{name}"
            return self.path(path, scope, node) if last else frozenset({Path(path)})
        if atom == "tensor":
            return self._of_tensor(owner, name, node, scope)
        if isinstance(atom, Instance):
            return self._of_instance(atom, name, node, scope)
        if isinstance(atom, Class):
            return self._of_class(atom, name, node, scope)
        if isinstance(atom, Sibling):
            found = self.files[atom.path].scope.find(name) or UNKNOWN
            self.named(found)
            return found
        if isinstance(atom, Kernel | Launcher):
            self.facts.add("kernel-attribute", scope.file, node, f"reads {name!r} of a kernel")
            return UNKNOWN
        if isinstance(atom, Function):
            self.facts.add("function-attribute", scope.file, node, f"reads {name!r} of a function")
            return UNKNOWN
        if atom == "holder":
            if name in {"forward", "compile", "apply"} or name.startswith("_"):
                self.facts.add("holder", scope.file, node, f"reads {name!r} of a torch.nn module")
            if name in names.MODULE_METHODS:
                return frozenset({Method(owner, name)})
            if any(part in name for part in ("weight", "bias", "running")):
                return TENSOR
            return frozenset({"holder"}) if name.endswith("_proj") else NUMBER
        if isinstance(atom, Computed):
            if name in names.TENSOR_EVIDENCE:
                self.used_as_tensor(owner)
            return self._of_unknown(owner, name, node, scope)
        if atom == "context":
            return bag(TENSOR) if name == "saved_tensors" else UNKNOWN
        if atom in ("number", "pointer", "maybe"):
            return self._of_unknown(owner, name, node, scope)
        if isinstance(atom, Sequence | State | Made | Method) or atom == "props":
            if (
                any(isinstance(one, Instance) for one in owner)
                and name not in names.CONTAINER_METHODS
            ):
                return UNKNOWN
            if name.startswith("_") or (atom != "props" and name not in names.CONTAINER_METHODS):
                return self._of_unknown(owner, name, node, scope)
            if name == "base":
                return TENSOR  # what a TensorDescriptor describes
            return frozenset({Method(owner, name)}) if atom != "props" else frozenset({"props"})
        return UNKNOWN

    def _of_unknown(self, owner: Value, name: str, node: ast.AST, scope: Scope) -> Value:
        if name in names.TENSOR_VIEWS - {"data"} or name in names.TENSOR_ALLOCATORS:
            return frozenset({Method(TENSOR, name)})
        if name in names.TENSOR_FACTS:
            return DTYPE if name == "dtype" else NUMBER
        if name == "to" and not self.setup:
            return frozenset({Method(TENSOR, name)})
        if name == "data_ptr" or name in names.TENSOR_QUERIES | names.TENSOR_PIECES:
            return frozenset({Method(TENSOR, name)})
        known = names.CONTAINER_METHODS | (names.MODULE_METHODS - names.CONVERSIONS)
        if name in known or (self.setup and name in names.SETUP_METHODS):
            bound = name in names.STATE_CHANGES | names.AMBIGUOUS | {"format"}
            return frozenset({Method(owner, name)}) if bound else UNKNOWN
        self.facts.add(
            "method", scope.file, node, f"calls or reads {name!r} of what may be a tensor"
        )
        return UNKNOWN

    def _of_tensor(self, owner: Value, name: str, node: ast.AST, scope: Scope) -> Value:
        if name in names.TENSOR_FACTS:
            return DTYPE if name == "dtype" else NUMBER
        if name in {"T", "mT", "data"}:
            return owner & {"tensor", "fresh", "kept"}
        known = (
            names.TENSOR_QUERIES | names.TENSOR_VIEWS | names.TENSOR_ALLOCATORS | names.TENSOR_PIECES
            | {"data_ptr"}
        )  # fmt: skip
        fresh = name in names.FRESH_METHODS and "fresh" in owner
        if (
            name in known
            or fresh
            or name in {"to", "type", "cuda"}
            or (self.setup and name in names.SETUP_METHODS)
        ):
            return frozenset({Method(owner & {"tensor", "fresh", "kept"}, name)})
        self.facts.add("method", scope.file, node, f"calls or reads {name!r} of a tensor")
        return UNKNOWN

    def _of_instance(self, atom: Instance, name: str, node: ast.AST, scope: Scope) -> Value:
        found = atom.of.find(name)
        if found is None:
            if name in {"to", "cuda", "cpu", "eval", "train", "requires_grad_"}:
                return frozenset({Method(frozenset({atom}), name)})
            if name in names.REGISTRATION and not self._building(scope):
                self.facts.add("state", scope.file, node, f"keeps a tensor with {name!r}")
            if (name.startswith("_") and name != "__init__") or name in {"forward", "apply"}:
                self.facts.add(
                    "method", scope.file, node, f"reads {name!r}, which no class here defines"
                )
            return UNKNOWN
        if name in atom.of.fields:
            self.named(found)
            return found or MAYBE
        methods = [m for m in found if isinstance(m, Function) and m.owner is not None]
        if methods and len(methods) == len(found):
            self.named(found)
            if any(self._is_property(m) for m in methods):
                return join(*(self.call(m, (), {}, frozenset({atom})) for m in methods))
            return frozenset(Method(frozenset({atom}), name, m) for m in methods)
        return found

    def _building(self, scope: Scope) -> bool:
        """Whether this is set-up, or a method that makes an object."""
        return self.setup or (scope.function is not None and scope.function.name in names.BUILDERS)

    @staticmethod
    def _is_property(method: Function) -> bool:
        return not isinstance(method.node, ast.Lambda) and any(
            isinstance(d, ast.Name) and d.id in {"property", "cached_property"}
            for d in method.node.decorator_list
        )

    def _of_class(self, atom: Class, name: str, node: ast.AST, scope: Scope) -> Value:
        found = atom.find(name)
        if name == "apply" and atom.inherits("torch.autograd.Function"):
            return frozenset({Method(frozenset({atom}), "apply")})
        if found is None:
            if name not in names.DUNDER_READS:
                self.facts.add(
                    "method", scope.file, node, f"reads {name!r}, which the class does not define"
                )
            return UNKNOWN
        self.named(found)
        return frozenset(
            Method(frozenset({Instance(atom)}), name, a) if isinstance(a, Function) and not a.static else a
            for a in found
        )  # fmt: skip

    def path(self, path: str, scope: Scope, node: ast.AST) -> Value:
        """A dotted name outside the Solution, judged where it is named."""
        rule = names.judge_path(path, self.setup)
        if rule:
            self.facts.add(rule, scope.file, node, f"names {path!r}")
            return UNKNOWN
        return frozenset({Path(path)})
