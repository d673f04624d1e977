"""The reference of a Task, run in float64 and in the candidate's own dtype. Lives in the task worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.inputs import (
    axis_values,
    draw_inputs,
    dtype_of,
    scalar_values,
    shape_of,
)
from kernel_skills.executor.models import Definition, Task, Workload
from kernel_skills.executor.seeds import derive_seed


class Reference:
    """A Definition with its package's code loaded."""

    def __init__(self, task: Task) -> None:
        self.definition: Definition = task.definition
        self.sources = SourceTree(task.sources, Path("task"))
        self.function: Callable[..., Any] = self.sources.function(task.definition.reference)

    def draw(
        self, workload: Workload, seed: int, device: str, layout: str | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return (tensors, scalars) of a Workload; the same arguments give the same values."""
        if workload.generator is None:
            tensors = draw_inputs(self.definition, workload, seed, device, layout)
            return tensors, scalar_values(self.definition, workload)
        make = self.sources.function(workload.generator)
        values = make(
            axis_values(self.definition, workload), dict(workload.dtypes), derive_seed(seed), device
        )
        tensors = {name: values[name] for name in self.definition.tensor_inputs}
        scalars = {**scalar_values(self.definition, workload)}
        scalars.update(
            {name: values[name] for name in self.definition.scalar_inputs if name in values}
        )
        return tensors, scalars

    def run(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run the reference as it stands, in the dtype of its inputs."""
        result = self.function(*tensors.values(), **scalars)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        if len(outputs) != len(self.definition.outputs):
            raise InvalidPackage(
                f"reference of {self.definition.name} returns {len(outputs)} values; "
                f"the definition names {len(self.definition.outputs)}"
            )
        return outputs

    def exact(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run the reference with every floating input widened to float64."""
        wide = {
            name: tensor.to(torch.float64) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }
        return self.run(wide, scalars)

    def honest(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], workload: Workload
    ) -> list[torch.Tensor]:
        """Run the reference in the inputs' dtypes, results cast to the dtypes of the definition."""
        outputs = self.run(tensors, scalars)
        specs = self.definition.outputs.values()
        return [
            output.to(dtype_of(spec, self.definition, workload))
            for output, spec in zip(outputs, specs, strict=True)
        ]

    def expected(self, workload: Workload) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Return (shape, dtype) of every output."""
        axes = axis_values(self.definition, workload)
        return [
            (shape_of(spec, axes), dtype_of(spec, self.definition, workload))
            for spec in self.definition.outputs.values()
        ]
