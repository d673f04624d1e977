"""What a Workload fixes of its Definition: lengths of axes, scalar inputs, dtypes and shapes, by name.

Nothing here imports torch, so that the parent, which never does, resolves them as its workers do.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernel_skills.executor.expressions import scalar_default
from kernel_skills.executor.models import (
    ConstAxis,
    Definition,
    Scalar,
    ScalarInput,
    TensorSpec,
    Workload,
)


def all_axes(definition: Definition, given: Mapping[str, int]) -> dict[str, int]:
    """Return the given lengths with those of the constant axes."""
    fixed = {
        name: axis.value for name, axis in definition.axes.items() if isinstance(axis, ConstAxis)
    }
    return {**given, **fixed}


def all_scalars(
    definition: Definition, axes: Mapping[str, int], given: Mapping[str, Scalar | None]
) -> dict[str, Scalar | None]:
    """Return every scalar input: the given value, else the definition's default.

    A default may be an expression over axes, given scalars and defaults that stand above it.
    """
    values = {name: given[name] for name in definition.scalar_inputs if name in given}
    for name, spec in definition.scalar_inputs.items():
        if name not in values:
            values[name] = scalar_default(spec.default, {**axes, **values})
    return values


def axis_values(definition: Definition, workload: Workload) -> dict[str, int]:
    """Return every axis with its length, constant ones included."""
    return all_axes(definition, workload.axes)


def given_scalars(workload: Workload) -> dict[str, Scalar]:
    """Return the scalars that a Workload sets itself."""
    return {name: i.value for name, i in workload.inputs.items() if isinstance(i, ScalarInput)}


def scalar_values(definition: Definition, workload: Workload) -> dict[str, Scalar | None]:
    """Return every scalar input: the workload's, else the definition's default."""
    return all_scalars(definition, axis_values(definition, workload), given_scalars(workload))


def workload_names(definition: Definition, workload: Workload) -> dict[str, Scalar | None]:
    """Return axes and scalar inputs by name, as expressions see them."""
    return {**axis_values(definition, workload), **scalar_values(definition, workload)}


def dtype_name(spec: TensorSpec, definition: Definition, workload: Workload) -> str:
    """Return a tensor's dtype, its type variable resolved: the workload's, else the first that it may take."""
    if spec.dtype in definition.dtypes:
        return workload.dtypes.get(spec.dtype, definition.dtypes[spec.dtype][0])
    return spec.dtype


def shape_of(spec: TensorSpec, axes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a tensor's lengths; `()` for a scalar."""
    return tuple(axes[axis] for axis in spec.shape or ())


def definition_dtypes(definition: Definition) -> frozenset[str]:
    """Return every dtype that a tensor of the Definition may have."""
    specs = [*definition.tensor_inputs.values(), *definition.outputs.values()]
    return frozenset(
        dtype for spec in specs for dtype in definition.dtypes.get(spec.dtype, (spec.dtype,))
    )
