"""What annotations and uses say of a parameter."""

from __future__ import annotations

import ast

from kernel_skills.executor import lint_names as names
from kernel_skills.executor.lint_pointers import pointers_of
from kernel_skills.executor.lint_program import Scope, decorated_name, parameters
from kernel_skills.executor.lint_values import (
    NUMBER,
    TENSOR,
    UNKNOWN,
    Class,
    Function,
    Instance,
    Kernel,
    Path,
    Value,
    bag,
    join,
)

_NUMBERS = names.words("int float bool str bytes complex dtype device layout Size")
_UNIONS = names.words("Optional Union Annotated Final ClassVar")
_SEQUENCES = names.words(
    "tuple list set frozenset dict Tuple List Set Dict Sequence Iterable Iterator Mapping Collection"
)


def annotated(node: ast.expr | None, scope: Scope) -> Value:
    """The value that an annotation promises."""
    match node:
        case ast.Constant(value=None):
            return NUMBER
        case ast.Constant(value=str(text)):
            try:
                return annotated(ast.parse(text, mode="eval").body, scope)
            except (SyntaxError, ValueError):
                return UNKNOWN
        case ast.BinOp(left=left, right=right):
            return join(annotated(left, scope), annotated(right, scope))
        case ast.Name() | ast.Attribute():
            return _named(decorated_name(node), scope)
        case ast.Subscript(value=base, slice=inner):
            return _generic(decorated_name(base).rpartition(".")[2], inner, scope)
    return UNKNOWN


def _named(dotted: str, scope: Scope) -> Value:
    last = dotted.rpartition(".")[2]
    if last in {"Tensor", "Parameter"}:
        return TENSOR
    if last in _NUMBERS:
        return NUMBER
    return frozenset(Instance(a) for a in scope.find(last) or () if isinstance(a, Class))


def _generic(name: str, inner: ast.expr, scope: Scope) -> Value:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        return NUMBER
    if name in _UNIONS:
        return join(*(annotated(part, scope) for part in parts))
    if name in _SEQUENCES:
        return bag(join(*(annotated(part, scope) for part in parts)))
    return UNKNOWN


_CACHE_KEY = "_tensor_evidence"


def tensor_evidence(function: Function) -> frozenset[str]:
    """Parameters that the function uses as tensors: by their attributes, or as a kernel's pointers."""
    node = function.node
    known = getattr(node, _CACHE_KEY, None)
    if known is not None:
        return known  # type: ignore[no-any-return]
    setattr(node, _CACHE_KEY, frozenset())  # what a recursive call sees
    mine = {one.arg for one in parameters(node)}
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
            if one.attr in names.TENSOR_EVIDENCE and one.value.id in mine:
                found.add(one.value.id)
        elif isinstance(one, ast.Call):
            found |= _handed(one, function) & mine
    setattr(node, _CACHE_KEY, frozenset(found))
    return frozenset(found)


def _handed(call: ast.Call, function: Function) -> set[str]:
    """Names that a call takes as tensors."""
    handed: set[str] = set()
    if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_like"):
        handed |= {one.id for one in call.args[:1] if isinstance(one, ast.Name)}
    if isinstance(call.func, ast.Name):
        for atom in function.file.scope.find(call.func.id) or ():
            if isinstance(atom, Function):
                evidence = tensor_evidence(atom)
                for one, given in zip(parameters(atom.node), call.args, strict=False):
                    if one.arg in evidence and isinstance(given, ast.Name):
                        handed.add(given.id)
    if isinstance(call.func, ast.Subscript) and isinstance(call.func.value, ast.Name):
        for atom in function.file.scope.find(call.func.value.id) or ():
            if isinstance(atom, Kernel):
                places = [one.arg for one in parameters(atom.node)]
                for name, given in zip(places, call.args, strict=False):
                    if name in pointers_of(atom) and isinstance(given, ast.Name):
                        handed.add(given.id)
    return handed


def runs_code(annotation: ast.expr) -> bool:
    """Whether to evaluate the annotation is more than to look names up."""
    kinds = ast.Call | ast.NamedExpr | ast.Lambda
    return any(isinstance(one, kinds) for one in ast.walk(annotation))


_GENERATOR_KEY = "_is_generator"


def is_generator(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function itself yields, not one that it holds."""
    known = getattr(node, _GENERATOR_KEY, None)
    if known is None:
        known = any(_yields(one) for one in node.body)
        setattr(node, _GENERATOR_KEY, known)
    return bool(known)


def _yields(node: ast.AST) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    return any(_yields(one) for one in ast.iter_child_nodes(node))


def never_runs(test: ast.expr, scope: Scope) -> bool:
    """`if __name__ == "__main__"` and `if TYPE_CHECKING`: no worker runs what follows."""
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name):
        main = ast.Constant("__main__")
        is_eq = len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq)
        return (
            is_eq
            and scope.is_module
            and test.left.id == "__name__"
            and "__name__" not in scope.names
            and ast.dump(test.comparators[0]) == ast.dump(main)
        )
    if not isinstance(test, ast.Name):
        return False
    return scope.find(test.id) == frozenset({Path("typing.TYPE_CHECKING")})
