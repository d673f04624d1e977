"""Bind a caller's tensors and scalars to a Definition: axes, dtypes, defaults, shapes of the outputs.

Nothing here imports torch. A tensor is read by its `shape` and `dtype` alone, so real, fake and symbolically shaped
tensors bind alike.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_skills.executor.errors import InvalidPackage, UsageError
from kernel_skills.executor.expressions import evaluate, holds, scalar_default
from kernel_skills.executor.models import DTYPE_BYTES, ConstAxis, Definition, TensorSpec, VarAxis
from kernel_skills.registry.models import Variant


class BadCall(UsageError, ValueError):
    """The arguments of a call break the Definition: no kernel and no reference could serve it."""


@dataclass(slots=True)
class Bound:
    """What a call says about a Definition."""

    axes: dict[str, Any] = field(default_factory=dict)
    """Axis -> length; symbolic while a graph is traced with dynamic shapes."""
    owners: dict[str, str] = field(default_factory=dict)
    """Axis -> the input that gave it, for error texts."""
    leading: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    """Collapsed axis -> the dimensions that the caller passed in its place."""
    dtypes: dict[str, str] = field(default_factory=dict)
    """Type variable -> the dtype of the first tensor that has it."""
    tensor_dtypes: set[str] = field(default_factory=set)
    scalars: dict[str, Any] = field(default_factory=dict)
    mismatches: list[str] = field(default_factory=list)
    """Dtypes outside the contract: the reference may take them, the kernels were not verified with them."""


class Signature:
    """The callable face of a Definition.

    Raises:
        InvalidPackage: an output has an axis or a type variable that no input determines.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.names = tuple(definition.inputs)
        self.tensors = tuple(i for i, n in enumerate(self.names) if n in definition.tensor_inputs)
        self.scalars = tuple(i for i, n in enumerate(self.names) if n in definition.scalar_inputs)
        self.required = frozenset(
            name
            for name, spec in definition.inputs.items()
            if spec.shape is not None or spec.default is None
        )
        self.visible = tuple(
            i for i, spec in enumerate(definition.outputs.values()) if not spec.auxiliary
        )
        self._derived = self._derived_axes()
        self._check_output_dtypes()

    def positional(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the arguments in the Definition's order; None for a scalar left to its default.

        `torch.compile` traces this function, so it holds plain loops only.

        Raises:
            TypeError: as for any Python function: too many, missing, unknown or doubled arguments.
        """
        if len(args) > len(self.names):
            raise TypeError(
                f"{self.definition.name} takes {len(self.names)} arguments, got {len(args)}"
            )
        values = list(args)
        used = 0
        for name in self.names[len(args) :]:
            if name in kwargs:
                values.append(kwargs[name])
                used += 1
            elif name in self.required:
                raise TypeError(f"{self.definition.name} misses the argument {name!r}")
            else:
                values.append(None)
        if used != len(kwargs):
            odd = [name for name in kwargs if name not in self.names[len(args) :]]
            raise TypeError(
                f"{self.definition.name} got unknown or doubled arguments {odd}; it takes {list(self.names)}"
            )
        return values

    def bind(self, values: Sequence[Any]) -> Bound:
        """Resolve axes, type variables and scalars.

        Raises:
            BadCall: a rank, an axis or a scalar does not fit; the text names tensor, axis, expected and got.
        """
        bound = self.bind_tensors(values)
        for index in self.scalars:
            name = self.names[index]
            spec = self.definition.inputs[name]
            value = values[index]
            if value is None:
                value = scalar_default(spec.default, {**bound.axes, **bound.scalars})
            bound.scalars[name] = self._scalar(name, spec, value)
        for name, expression in self._derived.items():
            bound.axes[name] = evaluate(expression, {**bound.axes, **bound.scalars})
        return bound

    def bind_outputs(self, values: Sequence[Any]) -> Bound:
        """Resolve what the outputs' shapes and dtypes hang on, and no more.

        The square root of a symbolic length, in a default, would make a traced graph special to that length.
        """
        return self.bind(values) if self._derived else self.bind_tensors(values)

    def bind_tensors(self, values: Sequence[Any]) -> Bound:
        """Resolve axes and type variables.

        Raises:
            BadCall: a rank, an axis or a scalar does not fit; the text names tensor, axis, expected and got.
        """
        bound = Bound()
        for index in self.tensors:
            name = self.names[index]
            spec = self.definition.inputs[name]
            self._bind_shape(bound, name, spec, tuple(values[index].shape))
            self._bind_dtype(bound, name, spec, str(values[index].dtype).removeprefix("torch."))
        for name, axis in self.definition.axes.items():
            if isinstance(axis, ConstAxis):
                bound.axes.setdefault(name, axis.value)
        return bound

    def check_constraints(self, bound: Bound) -> None:
        """Raise BadCall for a constraint of the Definition that does not hold."""
        names = {**bound.axes, **bound.scalars}
        for constraint in self.definition.constraints:
            if not holds(constraint, names):
                said = ", ".join(
                    f"{n}={names[n]}" for n in sorted(_names(constraint)) if n in names
                )
                raise BadCall(
                    f"{self.definition.name}: the constraint {constraint!r} does not hold for {said}"
                )

    def flat_shape(self, name: str, bound: Bound) -> tuple[Any, ...]:
        """Return the shape in which a kernel gets the input or output `name`."""
        spec = self.definition.inputs.get(name) or self.definition.outputs[name]
        return tuple(bound.axes[axis] for axis in spec.shape or ())

    def caller_shape(self, name: str, bound: Bound) -> tuple[Any, ...]:
        """Return the shape that the caller sees: a collapsed first axis in the caller's own dimensions."""
        spec = self.definition.inputs.get(name) or self.definition.outputs[name]
        axes = spec.shape or ()
        if not axes or axes[0] not in bound.leading:
            return self.flat_shape(name, bound)
        return (*bound.leading[axes[0]], *(bound.axes[axis] for axis in axes[1:]))

    def output_dtype(self, name: str, bound: Bound) -> str:
        dtype = self.definition.outputs[name].dtype
        if dtype not in self.definition.dtypes:
            return dtype
        return bound.dtypes.get(dtype) or self.definition.dtypes[dtype][0]

    def deciding_scalars(self, variants: Sequence[Variant]) -> tuple[int, ...]:
        """Return the positions of scalars on which the choice of a kernel may depend.

        Flags and words always may. A number may only where an expression names it: an epsilon or a seed that
        changes with every call must not fill the cache of choices.
        """
        definition = self.definition
        texts = [*definition.constraints, definition.flops, definition.bytes_moved or "0"]
        texts += [
            str(spec.default)
            for spec in definition.scalar_inputs.values()
            if isinstance(spec.default, str)
        ]
        texts += self._derived.values()
        for variant in variants:
            texts += [*variant.constraints, *variant.parameter_constraints]
        named = set().union(*(_names(text) for text in texts))
        return tuple(
            i for i in self.scalars
            if self.names[i] in named or definition.inputs[self.names[i]].dtype in ("bool", "string")
        )  # fmt: skip

    def _bind_shape(
        self, bound: Bound, name: str, spec: TensorSpec, shape: tuple[Any, ...]
    ) -> None:
        axes = spec.shape or ()
        want = f"({', '.join(axes)})"
        first = self.definition.axes[axes[0]] if axes else None
        if isinstance(first, VarAxis) and first.collapses:
            count = len(shape) - len(axes) + 1
            if count < 0:
                raise BadCall(
                    f"{self.definition.name}: {name} has shape {_show(shape)}, expected {want}"
                )
            leading = shape[:count]
            known = bound.leading.setdefault(axes[0], leading)
            if known != leading:
                raise BadCall(
                    f"{self.definition.name}: {name}: axis {axes[0]!r}: expected the leading dimensions "
                    f"{_show(known)} of {bound.owners[axes[0]]}, got {_show(leading)}"
                )
            shape = (math.prod(leading), *shape[count:])
        elif len(shape) != len(axes):
            raise BadCall(
                f"{self.definition.name}: {name} has shape {_show(shape)}, expected {want}"
            )
        for axis, size in zip(axes, shape, strict=True):
            self._bind_axis(bound, name, axis, size)

    def _bind_axis(self, bound: Bound, name: str, axis: str, size: Any) -> None:
        fixed = self.definition.axes[axis]
        if isinstance(fixed, ConstAxis):
            known, owner = fixed.value, "the definition"
        else:
            known, owner = bound.axes.setdefault(axis, size), bound.owners.setdefault(axis, name)
        if known != size:
            raise BadCall(
                f"{self.definition.name}: {name}: axis {axis!r}: expected {known} (from {owner}), got {size}"
            )
        bound.axes[axis] = known

    def _bind_dtype(self, bound: Bound, name: str, spec: TensorSpec, dtype: str) -> None:
        bound.tensor_dtypes.add(dtype)
        choices = self.definition.dtypes.get(spec.dtype)
        if choices is None:
            if dtype != spec.dtype:
                bound.mismatches.append(f"{name} is {dtype}, the definition takes {spec.dtype}")
            return
        known = bound.dtypes.setdefault(spec.dtype, dtype)
        if known != dtype:
            bound.mismatches.append(
                f"{name} is {dtype} where other inputs of dtype {spec.dtype} are {known}"
            )
        elif dtype not in choices:
            if all(_is_floating(choice) for choice in choices) and not _is_floating(dtype):
                # the reference would run on integers and return zeros
                raise BadCall(
                    f"{self.definition.name}: {name} is {dtype}, the definition takes {', '.join(choices)}"
                )
            bound.mismatches.append(f"{name} is {dtype}, the definition takes {', '.join(choices)}")

    def _scalar(self, name: str, spec: TensorSpec, value: Any) -> Any:
        # a traced graph passes torch.SymInt and torch.SymFloat; they act as numbers
        if type(value).__module__.partition(".")[0] == "torch" and type(value).__name__.startswith(
            "Sym"
        ):
            return value
        kind = scalar_kind(spec)
        if kind == "float" and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
            return int(value)
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind == "str" and isinstance(value, str):
            return value
        raise BadCall(
            f"{self.definition.name}: {name}: expected a value of type {kind}, got {value!r}"
        )

    def _derived_axes(self) -> dict[str, str]:
        definition = self.definition
        given = {axis for spec in definition.tensor_inputs.values() for axis in spec.shape or ()}
        given |= {name for name, axis in definition.axes.items() if isinstance(axis, ConstAxis)}
        derived = {}
        for axis in dict.fromkeys(
            a for spec in definition.outputs.values() for a in spec.shape or ()
        ):
            if axis in given:
                continue
            expression = (
                axis
                if axis in definition.scalar_inputs
                else _solved_for(axis, definition.constraints)
            )
            if expression is None:
                raise InvalidPackage(
                    f"{definition.name}: the output axis {axis!r} is in no input; add a constraint `{axis} == ...`"
                )
            derived[axis] = expression
        return derived

    def _check_output_dtypes(self) -> None:
        given = {spec.dtype for spec in self.definition.tensor_inputs.values()}
        for name, spec in self.definition.outputs.items():
            choices = self.definition.dtypes.get(spec.dtype)
            if choices is not None and spec.dtype not in given and len(choices) > 1:
                raise InvalidPackage(
                    f"{self.definition.name}: no input determines the dtype of the output {name!r}"
                )


def scalar_kind(spec: TensorSpec) -> str:
    """Return the Python type of a scalar input: `bool`, `int`, `float` or `str`."""
    if spec.dtype == "string":
        return "str"
    if spec.dtype == "bool":
        return "bool"
    return "float" if "float" in spec.dtype or spec.dtype not in DTYPE_BYTES else "int"


def _solved_for(axis: str, constraints: Sequence[str]) -> str | None:
    for constraint in constraints:
        match ast.parse(constraint.strip(), mode="eval").body:
            case ast.Compare(left=ast.Name(id=name), ops=[ast.Eq()], comparators=[right]) if (
                name == axis
            ):
                return ast.unparse(right)
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Name(id=name)]) if (
                name == axis
            ):
                return ast.unparse(left)
    return None


def _names(text: str) -> set[str]:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        # a default that is a word, not an expression
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _show(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(str(size) for size in shape)})"


def _is_floating(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))
