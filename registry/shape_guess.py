"""Guess the axes of tensors from the host function's own words about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

_SAME_SHAPE = {"empty_like", "zeros_like", "ones_like", "full_like", "clone", "contiguous"}
_ALLOCATIONS = {"empty", "zeros", "ones", "full", "new_empty", "new_zeros"}


# parameters of a norm or a linear layer run along the last axis
_PER_COLUMN = re.compile(r"(w|b|weights?|bias(es)?|gamma|beta|gain)(_ptr)?")


class ShapeGuess:
    """The axes of each tensor that a host function takes or returns.

    Three passes over its body: `rows, cols = x.shape` names axes, `x.shape[1] == w.shape[0]` joins them, and
    `torch.empty((rows, cols))` gives an output its own.
    """

    def __init__(self, host: ast.FunctionDef, inputs: Sequence[str]) -> None:
        self._host = host
        self._inputs = inputs
        self._axes: dict[str, dict[int, str]] = {name: {} for name in inputs}
        self._variables: dict[str, str] = {}
        """Local variable -> axis."""
        self._results: dict[str, ast.expr] = {}
        for node in ast.walk(host):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._read_assignment(node.targets[0], node.value)
        for node in ast.walk(host):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                self._join(node.left, node.comparators[0])
        self._shapes = {name: self._finish(name) for name in inputs}

    def of(self, name: str) -> tuple[str, ...]:
        """Return the axes of an input."""
        return self._shapes[name]

    def outputs(self) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Yield (name, axes, dtype) of what is returned; an empty dtype was not said."""
        returned = [
            n.value
            for n in ast.walk(self._host)
            if isinstance(n, ast.Return) and n.value is not None
        ]
        if not returned:
            return
        last = returned[-1]
        values = last.elts if isinstance(last, ast.Tuple) else [last]
        for position, value in enumerate(values):
            name = value.id if isinstance(value, ast.Name) else _plain_name(value)
            if not name or name in self._inputs:
                name = f"out{position}" if len(values) > 1 else "out"
            made = self._results.get(value.id, value) if isinstance(value, ast.Name) else value
            shape, dtype = self._made(made)
            yield name.lower(), shape or self._shapes[self._inputs[0]], dtype

    # --- reading ------------------------------------------------------------------------------

    def _read_assignment(self, target: ast.expr, value: ast.expr) -> None:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._read_assignment(one, other)
            return
        tensor = _shape_of(value)
        if isinstance(target, ast.Tuple) and tensor in self._axes:
            self._name_axes(tensor, target.elts)
        elif isinstance(target, ast.Name):
            place = _axis_place(value)
            if place and place[0] in self._axes:
                self._name_axis(place[0], place[1], target.id)
            elif _numel_of(value) in self._axes:
                self._name_axis(str(_numel_of(value)), 0, target.id)
            else:
                self._results[target.id] = value

    def _name_axes(self, tensor: str, elements: Sequence[ast.expr]) -> None:
        starred = any(isinstance(element, ast.Starred) for element in elements)
        for position, element in enumerate(elements):
            # after a star, positions count from the end
            index = position - len(elements) if starred and position else position
            match element:
                case ast.Name(id=name) if name != "_":
                    self._name_axis(tensor, index, name)
                case ast.Starred(value=ast.Name(id=name)):
                    self._name_axis(tensor, index, name)
                case _:
                    self._axes[tensor].setdefault(index, "")

    def _name_axis(self, tensor: str, index: int, variable: str) -> None:
        axis = self._variables.setdefault(variable, _axis_name(variable))
        self._axes[tensor][index] = axis

    def _join(self, left: ast.expr, right: ast.expr) -> None:
        """Give both sides of `a.shape[1] == b.shape[0]`, `K == b.shape[0]` or `a.shape == b.shape` one axis."""
        whole = _shape_of(left), _shape_of(right)
        if whole[0] in self._axes and isinstance(right, ast.Tuple):
            self._name_axes(str(whole[0]), right.elts)
            return
        if whole[0] in self._axes and whole[1] in self._axes:
            first, second = self._axes[str(whole[0])], self._axes[str(whole[1])]
            first.update({k: v for k, v in second.items() if k not in first})
            second.update(first)
            return
        axes = self._axis_of(left), self._axis_of(right)
        if axes[0] and axes[1] and axes[0] != axes[1]:
            self._rename(axes[1], axes[0])
        for side, axis in ((left, axes[1]), (right, axes[0])):
            place = _axis_place(side)
            if place and place[0] in self._axes and axis and not self._axes[place[0]].get(place[1]):
                self._axes[place[0]][place[1]] = axis
        places = _axis_place(left), _axis_place(right)
        if not any(axes) and all(place and place[0] in self._axes for place in places):
            shared = f"{places[0][0]}_{places[0][1]}" if places[0] else ""
            for place in places:
                if place:
                    self._axes[place[0]][place[1]] = _axis_name(shared)

    def _axis_of(self, value: ast.expr) -> str:
        if isinstance(value, ast.Name):
            return self._variables.get(value.id, "")
        place = _axis_place(value)
        return self._axes[place[0]].get(place[1], "") if place and place[0] in self._axes else ""

    def _rename(self, old: str, new: str) -> None:
        for axes in self._axes.values():
            axes.update({index: new for index, axis in axes.items() if axis == old})
        self._variables.update({name: new for name, axis in self._variables.items() if axis == old})

    # --- deciding -----------------------------------------------------------------------------

    def _finish(self, name: str) -> tuple[str, ...]:
        known = self._axes[name]
        rank = self._rank(name)
        if rank == 0 and name == self._inputs[0]:
            return ("size",)
        if rank == 0:
            first = self._finish(self._inputs[0])
            return first[-1:] if _PER_COLUMN.fullmatch(name.lower()) else first
        at = {index % rank: axis for index, axis in known.items() if axis and -rank <= index < rank}
        return tuple(at.get(index) or _axis_name(f"{name}_{index}") for index in range(rank))

    def _rank(self, name: str) -> int:
        """Return the number of dimensions that the function's words ask for; 0 where it says nothing."""
        ranks = [index + 1 if index >= 0 else -index for index in self._axes[name]]
        if ranks and min(self._axes[name]) < 0 <= max(self._axes[name]):
            ranks.append(len(self._axes[name]))
        for node in ast.walk(self._host):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id=tensor), attr="stride" | "size"),
                    args=[index],
                ) if tensor == name and (place := _integer(index)) is not None:
                    ranks.append(place + 1 if place >= 0 else -place)
                case ast.Subscript() if (place_of := _axis_place(node)) and place_of[0] == name:
                    ranks.append(place_of[1] + 1 if place_of[1] >= 0 else -place_of[1])
                case ast.Compare(left=left, comparators=[right]) if _rank_asked(left) == name:
                    ranks += [number for number in [_integer(right)] if number is not None]
        return max(ranks, default=0)

    def _made(self, value: ast.expr) -> tuple[tuple[str, ...], str]:
        """Return axes and dtype of an allocation."""
        if not isinstance(value, ast.Call):
            return (), ""
        dtype = next((_dtype(k.value) for k in value.keywords if k.arg == "dtype"), "")
        function = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        if function in _SAME_SHAPE:
            source = value.args[0] if value.args else getattr(value.func, "value", None)
            name = source.id if isinstance(source, ast.Name) else ""
            return self._shapes.get(name, ()), dtype
        if function in _ALLOCATIONS and value.args:
            return self._allocated(value.args), dtype
        return (), dtype

    def _allocated(self, arguments: Sequence[ast.expr]) -> tuple[str, ...]:
        first = arguments[0]
        tensor = _shape_of(first)
        if tensor in self._shapes:
            return self._shapes[str(tensor)]
        sizes = first.elts if isinstance(first, ast.Tuple | ast.List) else arguments
        axes = [self._final_axis(size) for size in sizes]
        return tuple(axis for axis in axes if axis) if all(axes) else ()

    def _final_axis(self, size: ast.expr) -> str:
        if isinstance(size, ast.Name):
            return self._variables.get(size.id, "")
        place = _axis_place(size)
        if (
            place
            and place[0] in self._shapes
            and -len(self._shapes[place[0]]) <= place[1] < len(self._shapes[place[0]])
        ):
            return self._shapes[place[0]][place[1]]
        return ""


def _shape_of(value: ast.expr) -> str | None:
    """Return X of `X.shape` or `X.size()`."""
    match value:
        case ast.Attribute(value=ast.Name(id=name), attr="shape"):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[]):
            return name
    return None


def _numel_of(value: ast.expr) -> str | None:
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="numel"), args=[]):
            return name
    return None


def _axis_place(value: ast.expr) -> tuple[str, int] | None:
    """Return (X, i) of `X.shape[i]` or `X.size(i)`."""
    match value:
        case ast.Subscript(value=inner, slice=index) if (tensor := _shape_of(inner)) is not None:
            place = _integer(index)
            return None if place is None else (tensor, place)
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[index]):
            place = _integer(index)
            return None if place is None else (name, place)
    return None


def _rank_asked(value: ast.expr) -> str | None:
    """Return X of `X.ndim`, `X.dim()` or `len(X.shape)`."""
    match value:
        case ast.Attribute(value=ast.Name(id=name), attr="ndim"):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="dim"), args=[]):
            return name
        case ast.Call(func=ast.Name(id="len"), args=[inner]):
            return _shape_of(inner)
    return None


def _integer(value: ast.expr) -> int | None:
    match value:
        case ast.Constant(value=int(number)) if not isinstance(number, bool):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return -number
    return None


def _dtype(value: ast.expr) -> str:
    """Return the dtype word of `torch.float32`; empty for `x.dtype`, which follows its tensor."""
    match value:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name):
            return {"half": "float16", "float": "float32", "long": "int64", "int": "int32"}.get(
                name, name
            )
    return ""


def _plain_name(value: ast.expr) -> str:
    """Return Y of `Y.view(...)`, `Y.reshape(...)`."""
    while isinstance(value, ast.Call | ast.Attribute):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) and value.id != "torch" else ""


def _axis_name(variable: str) -> str:
    word = re.sub(r"\W", "_", variable.lower()).strip("_").removesuffix("_size") or "size"
    return {"n_elements": "size", "numel": "size"}.get(word, word)
