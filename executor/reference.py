"""The reference of a Task, run in float64 and in the candidate's own dtype. Lives in the task worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.failure import short_log
from kernel_skills.executor.inputs import draw_inputs, dtype_of
from kernel_skills.executor.models import Definition, Task, Workload
from kernel_skills.executor.seeds import derive_seed
from kernel_skills.executor.workload_values import axis_values, scalar_values, shape_of

_Kept = TypeVar("_Kept")


class ReferenceFailed(InvalidPackage):
    """The package's own function raised: a fault of the package, of which the candidate knows nothing.

    Attributes:
        who: the function, in words.
    """

    def __init__(self, who: str, log: str) -> None:
        super().__init__(f"{who} fails: {log}")
        self.who = who


class Reference:
    """A Definition with its package's code loaded."""

    def __init__(self, task: Task) -> None:
        self.definition: Definition = task.definition
        self.sources = SourceTree(task.sources, Path("task"))
        self.function: Callable[..., Any] = self.sources.function(task.definition.reference)

    def draw(
        self, workload: Workload, seed: int, device: str, layout: str | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return (tensors, scalars) of a Workload; the same arguments give the same values.

        Raises:
            ReferenceFailed: the Workload's own generator raised.
        """
        if workload.generator is None:
            tensors = draw_inputs(self.definition, workload, seed, device, layout)
            return tensors, scalar_values(self.definition, workload)
        with self._blamed(f"the generator of workload {workload.name}"):
            make = self.sources.function(workload.generator)
            axes = axis_values(self.definition, workload)
            values = make(axes, dict(workload.dtypes), derive_seed(seed), device)
        tensors = {name: values[name] for name in self.definition.tensor_inputs}
        scalars = {**scalar_values(self.definition, workload)}
        scalars.update(
            {name: values[name] for name in self.definition.scalar_inputs if name in values}
        )
        return tensors, scalars

    def run(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        """Run the reference as it stands, in the dtype of its inputs.

        Raises:
            ReferenceFailed: it raised.
            InvalidPackage: it returned another number of values than the definition names.
        """
        with self._blamed(f"the reference of {self.definition.name}"):
            result = self.function(*tensors.values(), **scalars)
        outputs = list(result) if isinstance(result, tuple | list) else [result]
        if len(outputs) != len(self.definition.outputs):
            raise InvalidPackage(
                f"reference of {self.definition.name} returns {len(outputs)} values; "
                f"the definition names {len(self.definition.outputs)}"
            )
        return outputs

    @staticmethod
    @contextlib.contextmanager
    def _blamed(who: str) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            # the candidate may hold what is missing, so this proves nothing against the package
            raise
        except Exception as error:
            raise ReferenceFailed(who, short_log(error)) from error

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
        """Run the reference in the inputs' dtypes, results cast to the dtypes of the definition.

        Raises:
            ReferenceFailed: it raised, or returned another shape than the definition declares.
        """
        outputs = self.run(tensors, scalars)
        for name, output, (shape, _) in zip(
            self.definition.outputs, outputs, self.expected(workload), strict=True
        ):
            if tuple(output.shape) != shape:
                what = f"returns {name} of shape {tuple(output.shape)}; declared {shape}"
                raise ReferenceFailed(f"the reference of {self.definition.name}", what)
        return [
            output.to(dtype)
            for output, (_, dtype) in zip(outputs, self.expected(workload), strict=True)
        ]

    def at(self, workload: Workload) -> Reference:
        """Return the reference for one Workload: this one, unless the contract differs from sample to sample."""
        return self

    def describe(self) -> dict[str, Any]:
        """Return the samples of the Task, where it has any."""
        return {"samples": []}

    def remembered(self, key: tuple[object, ...], compute: Callable[[], _Kept]) -> _Kept:
        """Return what is computed for a key, once for many candidates where this keeps results."""
        return compute()

    def uncached(self) -> Reference:
        """Return a Reference that keeps nothing, for inputs that are written over while measuring."""
        return self

    def expected(self, workload: Workload) -> list[tuple[tuple[int, ...], torch.dtype]]:
        """Return (shape, dtype) of every output."""
        axes = axis_values(self.definition, workload)
        return [
            (shape_of(spec, axes), dtype_of(spec, self.definition, workload))
            for spec in self.definition.outputs.values()
        ]
