"""A Reference that draws and computes each case once, for many candidates of one problem. Lives in the task worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernel_skills.executor.models import Task, Workload
from kernel_skills.executor.reference import Reference

_MOST_BYTES = 4 << 30
"""Of inputs and results together; what does not fit is computed again for each candidate."""

_Drawn = tuple[dict[str, torch.Tensor], dict[str, Any]]


class KeptReference(Reference):
    """Keeps inputs and results by case. A judge copies inputs for every candidate, so what is kept stays as drawn."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self._bytes = 0
        self._drawn: dict[tuple[Any, ...], _Drawn] = {}
        self._results: dict[tuple[str, int], list[torch.Tensor]] = {}

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
        compute = super().exact
        return self._kept("exact", tensors, lambda: compute(tensors, scalars))

    def honest(
        self, tensors: Mapping[str, torch.Tensor], scalars: Mapping[str, Any], workload: Workload
    ) -> list[torch.Tensor]:
        compute = super().honest
        return self._kept("honest", tensors, lambda: compute(tensors, scalars, workload))

    def uncached(self) -> Reference:
        plain = Reference.__new__(Reference)
        plain.definition, plain.sources, plain.function = (
            self.definition,
            self.sources,
            self.function,
        )
        return plain

    def _kept(
        self,
        what: str,
        tensors: Mapping[str, torch.Tensor],
        compute: Callable[[], list[torch.Tensor]],
    ) -> list[torch.Tensor]:
        # a mapping that is kept lives as long as this, so its identity is no other's
        if not any(kept is tensors for kept, _ in self._drawn.values()):
            return compute()
        key = (what, id(tensors))
        if key not in self._results:
            result = compute()
            if not self._fits(result):
                return result
            self._results[key] = result
        return self._results[key]

    def _fits(self, tensors: Sequence[torch.Tensor]) -> bool:
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        if self._bytes + size > _MOST_BYTES:
            return False
        self._bytes += size
        return True
