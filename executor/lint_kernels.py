"""Bodies of jit functions: under the interpreter they are plain Python, so they name their language and no more."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_assembly import assembly
from kernel_skills.executor.lint_precision import losses
from kernel_skills.executor.lint_program import Fact, decorated_name, parameters
from kernel_skills.executor.lint_values import (
    Class,
    Function,
    Instance,
    Kernel,
    Partial,
    Path,
    Sibling,
    Value,
    flat,
)

_PRINTS = frozenset({"print", "device_print"})
WIDE = frozenset({"float32", "float64"})
_STATEMENTS = (
    ast.Import, ast.ImportFrom, ast.ClassDef, ast.AsyncFunctionDef, ast.Try, ast.TryStar, ast.Global,
    ast.Nonlocal, ast.Delete, ast.AsyncFor, ast.AsyncWith, ast.Raise,
)  # fmt: skip


def kernel_facts(kernel: Kernel, dtypes: frozenset[str]) -> Iterator[Fact]:
    """Everything in the body that a kernel does not need; losses of precision where all dtypes are wide."""
    yield from _Body(kernel).facts()
    yield from assembly(kernel)
    if dtypes and dtypes <= WIDE:
        yield from losses(kernel)


class _Body:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._path = kernel.file.path
        self._local = {one.arg for one in parameters(kernel.node)} | {
            one.id
            for one in ast.walk(kernel.node)
            if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)
        }
        if kernel.node.args.vararg:
            self._local.add(kernel.node.args.vararg.arg)
        self._inside: set[int] = set()

    def facts(self) -> Iterator[Fact]:
        for statement in self._kernel.node.body:
            for node in ast.walk(statement):
                if reason := self._objection(node):
                    yield Fact(
                        "kernel",
                        self._path,
                        getattr(node, "lineno", self._kernel.node.lineno),
                        reason,
                    )

    def _objection(self, node: ast.AST) -> str | None:
        if isinstance(node, _STATEMENTS):
            return f"holds a {type(node).__name__} statement"
        if isinstance(node, ast.FunctionDef) and node is not self._kernel.node:
            return "defines a function inside a kernel"
        if isinstance(node, ast.Await | ast.Yield | ast.YieldFrom):
            return f"holds {type(node).__name__.lower()}"
        if isinstance(node, ast.Call) and decorated_name(node).rpartition(".")[2] in _PRINTS:
            return "prints"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._called(node.func.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Name) and id(node) not in self._inside:
            return self._name(node)
        return None

    def _attribute(self, node: ast.Attribute) -> str | None:
        name = node.attr
        if name.startswith("_") or name.endswith("_") or name in names.NEVER:
            return f"reads {name!r}"
        if id(node) in self._inside:
            return None
        chain, base = [name], node.value
        while isinstance(base, ast.Attribute):
            self._inside.add(id(base))
            chain.append(base.attr)
            base = base.value
        if not isinstance(base, ast.Name) or base.id in self._local:
            return f"reads {name!r} of a value" if name in names.KERNEL_NEVER else None
        self._inside.add(id(base))
        found = self._kernel.file.scope.find(base.id)
        if found is None:
            return self._name(base)
        return self._member(base.id, found, chain[::-1])

    def _member(self, head: str, found: Value, tail: list[str]) -> str | None:
        for atom in found:
            if isinstance(atom, Path):
                path = ".".join([atom.name, *tail])
                if not names.kernel_path_allowed(path):
                    return f"names {path!r}"
            elif isinstance(atom, Kernel | Function | Instance):
                return f"reads {tail[0]!r} of {head!r}"
            elif isinstance(atom, Sibling) and len(tail) > 1:
                return f"reads {'.'.join(tail)!r} of a file"
        return None

    def _called(self, name: str) -> str | None:
        """Under the interpreter a kernel can call whatever its module holds."""
        found = None if name in self._local else self._kernel.file.scope.find(name)
        if found is None or all(isinstance(atom, Kernel | Path) for atom in found):
            return None
        return f"calls {name!r}, which is no jit function"

    def _name(self, node: ast.Name) -> str | None:
        if node.id in self._local:
            return None
        found = self._kernel.file.scope.find(node.id)
        if found is None:
            fine = node.id in names.KERNEL_BUILTINS
            return None if fine else f"uses {node.id!r}, which the kernel's language does not have"
        for atom in flat(found):
            if isinstance(atom, Function | Class | Instance | Partial):
                return f"calls {node.id!r}, which is no jit function"
            if (
                isinstance(atom, Path)
                and not names.kernel_path_allowed(atom.name)
                and atom.name != "triton"
            ):
                return f"names {atom.name!r}"
            if atom in ("tensor", "holder"):
                return f"reads the tensor {node.id!r} from outside"
        return None
