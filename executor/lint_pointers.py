"""Which parameters of a jit function are tensors: those through which it, or a function that it calls, reaches memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_skills.executor.lint_program import decorated_name, parameters
from kernel_skills.executor.lint_values import Kernel

_MEMORY = ("load", "store", "make_block_ptr", "make_tensor_descriptor", "atomic_")
_BASE = ("base", "pointer", "ptr")
_CACHE_KEY = "_pointer_parameters"


def pointers_of(kernel: Kernel) -> frozenset[str]:
    """Parameters of a jit function through which it reads or writes memory."""
    node = kernel.node
    known = getattr(node, _CACHE_KEY, None)
    if known is not None:
        return known  # type: ignore[no-any-return]
    setattr(node, _CACHE_KEY, frozenset())  # what a recursive call sees
    source = _sources(node)
    found: set[str] = set()
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            for address in _addresses(call, kernel):
                found |= {source[name] for name in _bases(address, source)}
    setattr(node, _CACHE_KEY, frozenset(found))
    return frozenset(found)


def _sources(node: ast.FunctionDef) -> dict[str, str]:
    """Local names that are made from a parameter by adding to it, and the parameter."""
    source = {one.arg: one.arg for one in parameters(node)}
    for _ in range(2):
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                pairs = [(target, inner.value) for target in inner.targets]
            elif isinstance(inner, ast.AnnAssign | ast.NamedExpr) and inner.value is not None:
                pairs = [(inner.target, inner.value)]
            else:
                continue
            for target, value in pairs:
                _derive(target, value, source)
    return source


def _derive(target: ast.expr, value: ast.expr, source: dict[str, str]) -> None:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            _derive(one, part, source)
    elif isinstance(target, ast.Name):
        for name in _bases(value, source)[:1]:
            source.setdefault(target.id, source[name])


def _bases(node: ast.expr, source: dict[str, str]) -> list[str]:
    """The names that an address starts from: in a sum, the first operand that stems from a parameter."""
    match node:
        case ast.Name(id=name):
            return [name] if name in source else []
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _bases(left, source) or _bases(right, source)
        case ast.IfExp(body=first, orelse=second):
            return _bases(first, source) + _bases(second, source)
        case ast.Call(
            func=ast.Attribute(attr="to" | "multiple_of" | "max_contiguous" | "broadcast_to"),
            args=args,
        ):
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node
            return _bases(inner, source) or [
                name for one in args[:1] for name in _bases(one, source)
            ]
        case ast.NamedExpr(value=value):
            return _bases(value, source)
    return []


def _addresses(call: ast.Call, kernel: Kernel) -> Iterator[ast.expr]:
    """Arguments of the call that are addresses."""
    name = decorated_name(call.func).rpartition(".")[2]
    if name.startswith(_MEMORY):
        yield from call.args[:1]
        yield from (one.value for one in call.keywords if one.arg in _BASE)
    for atom in kernel.file.scope.find(name) or () if isinstance(call.func, ast.Name) else ():
        if isinstance(atom, Kernel):
            inside = pointers_of(atom)
            places = [one.arg for one in parameters(atom.node)]
            yield from (a for a, place in zip(call.args, places, strict=False) if place in inside)
            yield from (one.value for one in call.keywords if one.arg in inside)
