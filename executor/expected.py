"""What an output is compared with: the float64 result, and the errors of honest computations. In the task worker."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernel_skills.executor.compare import HonestError, honest_error
from kernel_skills.executor.models import Workload
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.seeds import derive_seed

_FEW_ELEMENTS, _HONEST_DRAWS = 16, 7


@dataclass(frozen=True)
class Expected:
    """The right outputs of one draw of inputs, and how far an honest computation strays from each."""

    exact: Sequence[torch.Tensor]
    honest: Sequence[HonestError]


@dataclass(frozen=True)
class Draw:
    """Where inputs come from: drawing again with another seed gives others of the same kind."""

    workload: Workload
    seed: int
    device: str
    layout: str | None = None


def expected_of(
    reference: Reference,
    draw: Draw,
    tensors: Mapping[str, torch.Tensor],
    scalars: Mapping[str, Any],
    steady: Sequence[HonestError] | None = None,
) -> Expected:
    """Return what a call on these inputs should return.

    Args:
        steady: what `steady_errors` returned for this workload; None finds it out.
    """
    exact = reference.exact(tensors, scalars)

    def earn() -> list[HonestError]:
        own = _errors(reference, draw.workload, tensors, scalars, exact)
        others = steady if steady is not None else steady_errors(reference, draw, exact)
        return [_larger(one, other, e) for one, other, e in zip(own, others, exact, strict=True)]

    key = ("honest", draw.workload.uuid, draw.seed, draw.device, draw.layout)
    return Expected(exact, reference.remembered(key, earn))


def steady_errors(
    reference: Reference, draw: Draw, outputs: Sequence[torch.Tensor]
) -> list[HonestError]:
    """Return the largest honest errors of seven more draws, for outputs of few elements; 0 for the others.

    A single sum may be exact by luck, and a tolerance earned from it would fail the next honest sum.

    Args:
        outputs: of the right shapes and kinds.
    """
    errors = [HonestError(0.0, 0.0) for _ in outputs]
    if not any(map(_is_small, outputs)):
        return errors
    for turn in range(_HONEST_DRAWS):
        seed = derive_seed(draw.seed, "honest", turn)
        tensors, scalars = reference.draw(draw.workload, seed, draw.device, draw.layout)
        exact = reference.exact(tensors, scalars)
        found = _errors(reference, draw.workload, tensors, scalars, exact)
        errors = [_larger(a, b, e) for a, b, e in zip(errors, found, exact, strict=True)]
    return errors


def _errors(
    reference: Reference,
    workload: Workload,
    tensors: Mapping[str, torch.Tensor],
    scalars: Mapping[str, Any],
    exact: Sequence[torch.Tensor],
) -> list[HonestError]:
    honest = reference.honest(tensors, scalars, workload)
    return [honest_error(h, e) for h, e in zip(honest, exact, strict=True)]


def _is_small(output: torch.Tensor) -> bool:
    return 0 < output.numel() <= _FEW_ELEMENTS and output.is_floating_point()


def _larger(one: HonestError, other: HonestError, output: torch.Tensor) -> HonestError:
    """Return the larger error where there are few elements, in norm as if each had it; else the first."""
    if not _is_small(output):
        return one
    largest = max(one.largest, other.largest)
    return HonestError(largest, largest * math.sqrt(output.numel()))
