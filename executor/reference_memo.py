"""A Reference that draws and computes each case once, for many candidates of one problem. Lives in the task worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch

from kernel_skills.executor.models import Task, Workload
from kernel_skills.executor.reference import Reference

_MOST_BYTES = 4 << 30
_MOST_OF_A_DEVICE = 0.15
"""Of inputs and results together; what does not fit is computed again for each candidate.

On an H200 21 GB: a measurement of the largest KernelBench problems takes 90 GB besides, in both processes together.
"""

_Kept = TypeVar("_Kept")

_Drawn = tuple[dict[str, torch.Tensor], dict[str, Any]]


class KeptReference(Reference):
    """Keeps inputs and results by case. A judge copies inputs for every candidate, so what is kept stays as drawn."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._bytes = 0
        self._drawn: dict[tuple[Any, ...], _Drawn] = {}
        self._results: dict[int, list[torch.Tensor]] = {}
        self._small: dict[tuple[object, ...], Any] = {}

    def draw(self, workload: Workload, seed: int, device: str, layout: str | None = None) -> _Drawn:
        key = (workload.uuid, seed, device, layout)
        if key not in self._drawn:
            drawn = super().draw(workload, seed, device, layout)
            if not self._fits(list(drawn[0].values())):
                return drawn
            self._drawn[key] = drawn
        return self._drawn[key]

    def exact(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any]
    ) -> list[torch.Tensor]:
        # a mapping that is kept lives as long as this, so its identity is no other's
        if not any(kept is tensors for kept, _ in self._drawn.values()):
            return super().exact(tensors, scalars)
        if id(tensors) not in self._results:
            result = super().exact(tensors, scalars)
            if not self._fits(result):
                return result
            self._results[id(tensors)] = result
        return self._results[id(tensors)]

    def remembered(self, key: tuple[object, ...], compute: Callable[[], _Kept]) -> _Kept:
        if key not in self._small:
            self._small[key] = compute()
        return self._small[key]  # type: ignore[no-any-return]

    def uncached(self) -> Reference:
        plain = Reference.__new__(Reference)
        plain.definition, plain.sources, plain.function = (
            self.definition,
            self.sources,
            self.function,
        )
        return plain

    def _fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        if self._bytes + size > _most_bytes(tensors):
            return False
        self._bytes += size
        return True


def _most_bytes(tensors: Sequence[torch.Tensor]) -> int:
    if not tensors or not tensors[0].is_cuda:
        return _MOST_BYTES
    properties = torch.cuda.get_device_properties(tensors[0].device)
    return int(_MOST_OF_A_DEVICE * properties.total_memory)
