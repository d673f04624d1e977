"""What of a call decides speed: axes, dtypes and scalars, as a comparable value with a stable key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from kernel_skills.executor.expressions import scalar_default
from kernel_skills.executor.models import (
    ConstAxis,
    Definition,
    Record,
    Scalar,
    ScalarInput,
    Workload,
)


class Shape(Record):
    """Values of all axes (constant ones too), type variables and scalar inputs (defaults filled in)."""

    axes: Mapping[str, int]
    dtypes: Mapping[str, str] = Field(default_factory=dict)
    scalars: Mapping[str, Scalar | None] = Field(default_factory=dict)

    @property
    def key(self) -> str:
        """Canonical JSON: equal for equal shapes, whatever the order in which they were written."""
        return json.dumps(self.model_dump(), sort_keys=True, separators=(",", ":"))

    @property
    def names(self) -> dict[str, Any]:
        """What expressions of the Definition may name."""
        return {**self.axes, **self.scalars}


def shape_of_workload(definition: Definition, workload: Workload) -> Shape:
    """Return the Shape of a Workload."""
    scalars = {
        name: item.value for name, item in workload.inputs.items() if isinstance(item, ScalarInput)
    }
    return shape_of(definition, workload.axes, workload.dtypes, scalars)


def shape_of(
    definition: Definition,
    axes: Mapping[str, int],
    dtypes: Mapping[str, str] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
) -> Shape:
    """Return the Shape of a call; constant axes and the defaults of scalars are filled in."""
    fixed = {
        name: axis.value for name, axis in definition.axes.items() if isinstance(axis, ConstAxis)
    }
    values: dict[str, Scalar | None] = dict(scalars or {})
    for name, spec in definition.scalar_inputs.items():
        if name not in values:
            values[name] = scalar_default(spec.default, {**fixed, **axes, **values})
    return Shape(axes={**axes, **fixed}, dtypes=dict(dtypes or {}), scalars=values)
