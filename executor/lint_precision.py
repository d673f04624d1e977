"""Losses of precision in a jit function, for tasks whose dtypes are all wide."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_program import Fact, parameters
from kernel_skills.executor.lint_values import Kernel, Path

NARROW = names.words(
    "float16 bfloat16 float8e4nv float8e5 float8e4b15 float8e4b8 float8e5b16 fp16 bf16"
)
_LOOSE = frozenset({"tf32", "tf32x3", "bf16", "bf16x3"})
_PRECISION_PLACE = 3
"""`tl.dot(input, other, acc, input_precision)`"""


def losses(kernel: Kernel) -> Iterator[Fact]:
    """Narrow dtypes, and products in tf32: what `tl.dot` does with float32 unless it is told."""
    called = {id(one.func) for one in ast.walk(kernel.node) if isinstance(one, ast.Call)}
    for node in ast.walk(kernel.node):
        reason = None
        name = _library_name(node, kernel)
        if name in NARROW:
            reason = f"computes in {name} where the task's dtypes are float32"
        elif name == "dot_scaled":
            reason = "multiplies numbers of 8 bits or fewer where the task's dtypes are float32"
        elif name == "dot" and id(node) not in called:
            reason = f"hands {name!r} on, so that its precision cannot be seen"
        elif (
            isinstance(node, ast.Call)
            and _library_name(node.func, kernel) == "dot"
            and _is_loose(node, kernel)
        ):
            reason = "multiplies in tf32 where the task's dtypes are float32"
        if reason:
            yield Fact("precision", kernel.file.path, getattr(node, "lineno", 1), reason)


def _library_name(node: ast.AST, kernel: Kernel) -> str:
    """The last name of `tl.NAME`, or of a name that was imported from there; else nothing."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        for atom in kernel.file.scope.find(node.id) or ():
            if isinstance(atom, Path) and atom.name.startswith("triton."):
                return atom.name.rpartition(".")[2]
    return ""


def _is_loose(call: ast.Call, kernel: Kernel) -> bool:
    named = {one.arg: one.value for one in call.keywords}
    given = named.get("input_precision")
    if given is None and len(call.args) > _PRECISION_PLACE:
        given = call.args[_PRECISION_PLACE]
    if given is None or (isinstance(given, ast.Constant) and given.value is None):
        tf32 = named.get("allow_tf32")
        if tf32 is None:
            return True
        values = _values(tf32, kernel)
        return True in values and False not in values
    values = _values(given, kernel)
    return bool(values & _LOOSE) and "ieee" not in values


def _values(node: ast.expr, kernel: Kernel) -> set[object]:
    """Constants that the expression may be: its own, or those given anywhere to the name that it is."""
    if isinstance(node, ast.Constant):
        return {node.value}
    if not isinstance(node, ast.Name):
        return {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    found: set[object] = set()
    for one in ast.walk(kernel.file.tree):
        for value in _given(one, node.id):
            found |= _constants(value, kernel)
    return found


def _given(node: ast.AST, name: str) -> Iterator[ast.expr]:
    match node:
        case ast.keyword(arg=found, value=value) if found == name:
            yield value
        case ast.Assign(targets=targets, value=value):
            if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                yield value
        case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
            yield value
        case ast.Dict(keys=keys, values=values):
            for key, value in zip(keys, values, strict=True):
                if isinstance(key, ast.Constant) and key.value == name:
                    yield value
        case ast.FunctionDef(args=spec):
            places = parameters(node)
            defaults = [*spec.defaults, *spec.kw_defaults]
            for one, default in zip(reversed(places), reversed(defaults), strict=False):
                if one.arg == name and default is not None:
                    yield default


def _constants(node: ast.expr, kernel: Kernel) -> set[object]:
    found: set[object] = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            for statement in kernel.file.tree.body:
                found |= {
                    inner.value
                    for value in _given(statement, one.id)
                    for inner in ast.walk(value)
                    if isinstance(inner, ast.Constant)
                }
    return found


def is_narrow(path: str) -> bool:
    """Whether a dotted name is a dtype of Triton that holds less than float32."""
    return path.startswith("triton.") and path.rpartition(".")[2] in NARROW
