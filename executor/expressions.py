"""Arithmetic over axes as text: constraints, FLOP counts, defaults. Parsed, never `eval`uated."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.models import Scalar

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "log2": math.log2,
    "sqrt": math.sqrt,
}

# no size in bytes needs more; a package must not make us compute 9**9**9
_LARGEST_EXPONENT = 64
_LARGEST_BASE = 2**64


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression over `names`.

    Raises:
        InvalidPackage: the text does not parse, uses more than arithmetic, or names something unknown.
    """
    try:
        return _value(_parse(text), names)
    except (ArithmeticError, TypeError, ValueError, RecursionError) as error:
        raise InvalidPackage(f"expression {text!r}: {error}") from error


def holds(text: str, names: Mapping[str, Any]) -> bool:
    return bool(evaluate(text, names))


def scalar_default(default: Scalar | None, names: Mapping[str, Any]) -> Scalar | None:
    """Return a scalar input's default: text that parses as an expression over known names is computed."""
    if not isinstance(default, str):
        return default
    try:
        value = evaluate(default, names)
    except InvalidPackage:
        return default
    return value if isinstance(value, bool | int | float | str) else default


@lru_cache(maxsize=1024)
def _parse(text: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = getattr(error, "msg", None) or str(error) or "too deep"
        raise InvalidPackage(f"expression {text!r} does not parse: {reason}") from error


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as constant):
            return constant
        case ast.Name(id=name):
            if name not in names:
                raise InvalidPackage(
                    f"expression names {name!r}; known: {', '.join(sorted(names))}"
                )
            return names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _value(left, names), _value(right, names)
            return _arithmetic(op, a, b)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, names)
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, names) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(value, names) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compare(left, ops, comparators, names)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.Call(func=ast.Name(id=call), args=args, keywords=[]) if call in _CALLS:
            return _CALLS[call](*(_value(arg, names) for arg in args))
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return tuple(_value(element, names) for element in elements)
    raise InvalidPackage(
        f"{ast.unparse(node)!r} is not allowed in an expression; use arithmetic over axes"
    )


def _arithmetic(op: ast.operator, a: Any, b: Any) -> Any:
    # text has a `*` and a `%` of its own, which make gigabytes
    if not (isinstance(a, int | float) and isinstance(b, int | float)):
        raise TypeError("arithmetic is over numbers only")
    if isinstance(op, ast.Pow):
        if abs(b) > _LARGEST_EXPONENT or abs(a) > _LARGEST_BASE:
            raise InvalidPackage(f"{a} ** {b} is too large")
        if a < 0 and not float(b).is_integer():
            raise InvalidPackage(f"{a} ** {b} is not a real number")
    return _BINARY[type(op)](a, b)


def _compare(
    left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr], names: Mapping[str, Any]
) -> bool:
    a = _value(left, names)
    for op, right in zip(ops, comparators, strict=True):
        b = _value(right, names)
        if type(op) not in _COMPARE:
            raise InvalidPackage(
                "only ==, !=, <, <=, >, >=, in and not in compare in an expression"
            )
        if not _COMPARE[type(op)](a, b):
            return False
        a = b
    return True
