"""What of a call decides speed: axes, dtypes and scalars, as a comparable value with a stable key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from kernel_skills.executor.models import Definition, Record, Scalar, Workload
from kernel_skills.executor.workload_values import all_axes, all_scalars, given_scalars


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
    return shape_of(definition, workload.axes, workload.dtypes, given_scalars(workload))


def shape_of(
    definition: Definition,
    axes: Mapping[str, int],
    dtypes: Mapping[str, str] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
) -> Shape:
    """Return the Shape of a call; constant axes and the defaults of scalars are filled in."""
    lengths = all_axes(definition, axes)
    values = all_scalars(definition, lengths, scalars or {})
    return Shape(axes=lengths, dtypes=dict(dtypes or {}), scalars=values)
