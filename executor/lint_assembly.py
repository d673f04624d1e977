"""Inline assembly: opaque to everything else, so it is written out, and it reads no clock."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_skills.executor.lint_program import Fact, decorated_name
from kernel_skills.executor.lint_values import Kernel

_NEVER = re.compile(
    r"%\s*(?:globaltimer|clock|pm\d)|\b(?:nanosleep|trap|brkpt|exit|pmevent|createpolicy|applypriority|discard|s_sleep"
    r"|s_memtime|s_memrealtime|s_endpgm|s_trap)\b|s_getreg|L2::evict|L2::cache_hint|\.(?:text|section|global|entry)\b"
)
"""Clocks, sleep, ends of a program, the L2 cache's policy, other code; of PTX and of AMD's instructions."""
_MAX_TEXTS = 16
"""Combinations of choices that are looked at."""


def assembly(kernel: Kernel) -> Iterator[Fact]:
    """Facts on `inline_asm_elementwise` in the body of a jit function."""
    for node in ast.walk(kernel.node):
        if isinstance(node, ast.Call) and _is_assembly(node, kernel):
            given = [one.value for one in node.keywords if one.arg == "asm"] + node.args[:1]
            texts = _texts(given[0], kernel) if given else None
            found = [one for text in texts or () if (one := _NEVER.search(text))]
            if texts is None:
                reason = "takes assembly that is not written out"
            elif found:
                reason = f"holds {found[0][0].strip()!r} in assembly"
            else:
                continue
            yield Fact("kernel", kernel.file.path, node.lineno, reason)


def _is_assembly(node: ast.Call, kernel: Kernel) -> bool:
    name = decorated_name(node.func)
    if name.endswith("inline_asm_elementwise"):
        return True
    found = kernel.file.scope.find(name) or frozenset()
    return any(getattr(atom, "name", "").endswith(".inline_asm_elementwise") for atom in found)


def _texts(node: ast.expr, kernel: Kernel) -> list[str] | None:
    """Every text that the expression may be, where it is literals, sums, choices of them, or names of such."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Constant(value=int(number)):
            return [str(number)]
        case ast.JoinedStr(values=parts):
            return _joined([_texts(one, kernel) for one in parts])
        case ast.FormattedValue(value=value):
            return _texts(value, kernel)
        case ast.IfExp(body=first, orelse=second):
            return _either(_texts(first, kernel), _texts(second, kernel))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            if _is_number(left) or _is_number(right):
                return ["0"]
            return _joined([_texts(left, kernel), _texts(right, kernel)])
        case ast.Call(args=[only]) if decorated_name(node.func).rpartition(".")[2] == "constexpr":
            return _texts(only, kernel)
        case ast.Name(id=name):
            return _bound_once(name, kernel)
    return None


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int)


def _either(first: list[str] | None, second: list[str] | None) -> list[str] | None:
    return None if first is None or second is None else first + second


def _joined(parts: list[list[str] | None]) -> list[str] | None:
    texts = [""]
    for choices in parts:
        if choices is None or len(texts) * len(choices) > _MAX_TEXTS:
            return None
        texts = [text + one for text in texts for one in choices]
    return texts


def _bound_once(name: str, kernel: Kernel) -> list[str] | None:
    """Texts of the one value that the kernel, or else its module, gives to a name."""
    inside = [one for one in ast.walk(kernel.node) if _binds(one, name)]
    bound = inside or [
        one
        for statement in kernel.file.tree.body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for one in ast.walk(statement)
        if _binds(one, name)
    ]
    value = getattr(bound[0], "value", None) if len(bound) == 1 else None
    return None if value is None or isinstance(value, ast.Name) else _texts(value, kernel)


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.arg(arg=found) | ast.alias(asname=found):
            return found == name
        case ast.Assign(targets=targets):
            return any(isinstance(one, ast.Name) and one.id == name for one in targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target) | ast.For(target=target):
            return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(target))
        case ast.NamedExpr(target=target):
            return target.id == name
    return False
