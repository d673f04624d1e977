"""The API for a package's `validate.py`: properties, traps and gradients beyond the generic checks.

    from kernel_skills.executor.validation import Kernel, check

    @check("rms-norm")
    def check_scale_invariance(kernel: Kernel) -> None:
        x, weight = kernel.randn(4, 96), kernel.randn(96)
        kernel.assert_close(kernel(x * 8, weight, eps=0.0), kernel(x, weight, eps=0.0))

A check gets the kernel as a callable whose work happens in another process, and raises AssertionError when the kernel
is wrong. It runs on the device at hand, or on the CPU against the interpreter: keep its tensors small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

DEFINITION_ATTRIBUTE = "_kernel_skills_definition"


class Kernel(Protocol):
    """The candidate, as a check sees it."""

    device: str
    dtype: torch.dtype
    """The dtype under test; checks run once for each that the variant declares."""
    interpreted: bool
    """True on the CPU, under Triton's interpreter: keep to small shapes."""

    def __call__(self, *tensors: torch.Tensor, **scalars: Any) -> Any:
        """Run the candidate: a tensor, or a tuple in the definition's output order."""

    def reference(self, *tensors: torch.Tensor, **scalars: Any) -> Any:
        """Run the reference in float64."""

    def randn(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        """Return seeded normal values in `dtype` on `device`."""

    def assert_matches_reference(self, *tensors: torch.Tensor, **scalars: Any) -> None:
        """Run both and compare under the earned tolerance."""

    def assert_close(
        self, actual: torch.Tensor, expected: torch.Tensor, factor: float = 4.0
    ) -> None:
        """Compare two results of the kernel: within `factor` eps of the dtype of the largest element."""


def check(definition: str) -> Callable[[Callable[[Kernel], None]], Callable[[Kernel], None]]:
    """Mark a function as a check of one Definition."""

    def mark(function: Callable[[Kernel], None]) -> Callable[[Kernel], None]:
        setattr(function, DEFINITION_ATTRIBUTE, definition)
        return function

    return mark


def as_list(result: Any) -> Sequence[torch.Tensor]:
    """Return one or several outputs as a list."""
    return list(result) if isinstance(result, tuple | list) else [result]
