"""Kernels that are wrong in one place: every place where one of a few operators applies, one mutant each."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Change = Callable[[ast.AST, ast.FunctionDef], "ast.AST | None"]
"""Returns what to put in the node's place, or None where the operator does not apply."""

_LOOSER: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_OPPOSITES = {"max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum"}


@dataclass(frozen=True)
class Mutant:
    """A file with one change: an operator applied to one node, counted through one function."""

    operator: str
    function: str
    place: int
    line: int
    before: str
    count: int
    original: str

    @property
    def name(self) -> str:
        again = f" ({self.count})" if self.count else ""
        return f"{self.operator} in {self.function}: {self.before}{again}"

    @property
    def source(self) -> str:
        tree = ast.parse(self.original)
        function = next(
            one
            for one in tree.body
            if isinstance(one, ast.FunctionDef) and one.name == self.function
        )
        target = list(ast.walk(function))[self.place]
        replacement = OPERATORS[self.operator](copy.deepcopy(target), function)
        assert replacement is not None
        _Put(target, ast.copy_location(replacement, target)).visit(function)
        return ast.unparse(ast.fix_missing_locations(tree))


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of the jit functions of a file, in order of operator and place."""
    tree = ast.parse(source)
    for operator, change in OPERATORS.items():
        for function in tree.body:
            if isinstance(function, ast.FunctionDef) and _is_jit(function):
                yield from _mutants_of(source, function, operator, change)


def _mutants_of(
    source: str, function: ast.FunctionDef, operator: str, change: Change
) -> Iterator[Mutant]:
    seen: dict[str, int] = {}
    for place, node in enumerate(ast.walk(function)):
        if change(copy.deepcopy(node), function) is not None:
            before = ast.unparse(node)
            count = seen[before] = seen.get(before, -1) + 1
            line = getattr(node, "lineno", 0)
            yield Mutant(operator, function.name, place, line, before, count, source)


class _Put(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST) -> None:
        self._target, self._replacement = target, replacement

    def visit(self, node: ast.AST) -> ast.AST:
        return self._replacement if node is self._target else self.generic_visit(node)


def _is_jit(function: ast.FunctionDef) -> bool:
    return any("jit" in ast.unparse(one) for one in function.decorator_list)


def _called(node: ast.AST) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return ast.unparse(node.func).rpartition(".")[2]


# --- operators ------------------------------------------------------------------------------------


def off_by_one(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """`<=` for `<`, and so on."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _LOOSER:
        node.ops = [_LOOSER[type(node.ops[0])]()]
        return node
    return None


def no_mask(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """A load or store without its mask."""
    if _called(node) in {"load", "store"} and isinstance(node, ast.Call):
        kept = [one for one in node.keywords if one.arg not in {"mask", "other", "boundary_check"}]
        if len(kept) < len(node.keywords):
            node.keywords = kept
            return node
    return None


def wrong_other(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """Masked lanes hold 1 in place of what they should."""
    if isinstance(node, ast.keyword) and node.arg == "other":
        node.value = ast.Constant(1.0)
        return node
    return None


def wrong_start(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """0 for minus infinity, where a maximum starts."""
    return ast.Constant(0.0) if ast.unparse(node) in {"float('-inf')", "-float('inf')"} else None


def dropped_factor(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """A product or quotient without its second operand."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        return node.left
    return None


def wrong_sign(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """A difference for a sum, and a sum for a difference."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        return node
    return None


def wrong_stride(node: ast.AST, function: ast.FunctionDef) -> ast.AST | None:
    """The stride of another dimension."""
    strides = [one.arg for one in function.args.args if "stride" in one.arg]
    if isinstance(node, ast.Name) and node.id in strides and len(strides) > 1:
        node.id = strides[(strides.index(node.id) + 1) % len(strides)]
        return node
    return None


def narrow_sum(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """What is added up is rounded to half precision after each step."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        target = ast.unparse(node.target)
        if "ptr" not in target:
            text = (
                f"{target} = ({target} + ({ast.unparse(node.value)})).to(tl.float16).to(tl.float32)"
            )
            return ast.parse(text).body[0]
    return None


def skipped_sum(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """An addition onto a variable is left out."""
    return ast.Pass() if isinstance(node, ast.AugAssign) else None


def short_loop(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """A loop ends one step early."""
    if _called(node) in {"range", "static_range"} and isinstance(node, ast.Call) and node.args:
        last = min(len(node.args), 2) - 1
        step = node.args[2] if len(node.args) > 2 else ast.Constant(1)
        node.args[last] = ast.BinOp(node.args[last], ast.Sub(), step)
        return node
    return None


def rounded_down(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """A number of tiles that leaves out the last, partial one."""
    if _called(node) == "cdiv" and isinstance(node, ast.Call) and len(node.args) == 2:
        return ast.BinOp(node.args[0], ast.FloorDiv(), node.args[1])
    return None


def wrong_extreme(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """The minimum for the maximum."""
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Attribute) and called.attr in _OPPOSITES:
        called.attr = _OPPOSITES[called.attr]
        return node
    return None


def no_barrier(node: ast.AST, _: ast.FunctionDef) -> ast.AST | None:
    """A barrier is left out: nothing that runs programs one after another can tell."""
    return ast.Constant(None) if _called(node) == "debug_barrier" else None


OPERATORS: dict[str, Change] = {
    one.__name__.replace("_", "-"): one
    for one in (
        off_by_one, no_mask, wrong_other, wrong_start, dropped_factor, wrong_sign, wrong_stride, narrow_sum,
        skipped_sum, short_loop, rounded_down, wrong_extreme, no_barrier,
    )
}  # fmt: skip
