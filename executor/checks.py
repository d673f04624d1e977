"""Run the `check_*` functions of a package's validate.py against a candidate in another process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernel_skills.executor.compare import compare, factor
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.expressions import holds
from kernel_skills.executor.failure import short_log
from kernel_skills.executor.reference import Reference, ReferenceFailed
from kernel_skills.executor.remote import CandidateFailed, RemoteCandidate
from kernel_skills.executor.trace import CheckOutcome
from kernel_skills.executor.validation import DEFINITION_ATTRIBUTE, Kernel, as_list
from kernel_skills.executor.workload_values import all_axes, all_scalars

_FILE = "validate.py"


class OutsideVariant(Exception):
    """A check called the kernel with a shape that this variant does not take."""


def list_checks(reference: Reference) -> list[str]:
    """Return the names of the checks of this Task's Definition; none where there is no validate.py."""
    return sorted(_checks(reference))


def run_check(
    reference: Reference,
    candidate: RemoteCandidate,
    name: str,
    *,
    device: str,
    dtypes: list[str],
    seed: int,
    constraints: list[str],
) -> tuple[CheckOutcome, str]:
    """Run one check for every dtype; return how it ended, and what was wrong or not asked of the variant.

    Args:
        constraints: the variant's own; a call outside of them ends the check as skipped.

    Raises:
        CandidateFailed: the candidate's process is gone or lost its device.
        ReferenceFailed: the package's reference raised.
    """
    function = _checks(reference)[name]
    for dtype in dtypes:
        kernel = CheckedKernel(
            reference, candidate, device, getattr(torch, dtype), seed, constraints
        )
        try:
            function(kernel)
        except OutsideVariant as outside:
            return "skipped", str(outside)
        except CandidateFailed as failed:
            if failed.dead:
                raise
            return "failed", f"{dtype}: {failed.status}: {failed.log}"
        except ReferenceFailed:
            raise
        except Exception as error:  # noqa: BLE001 - a check is the package's code
            return "failed", f"{dtype}: {short_log(error)}"
    return "passed", ""


def _checks(reference: Reference) -> dict[str, Callable[[Kernel], None]]:
    try:
        module = reference.sources.module(_FILE)
    except InvalidPackage:
        return {}
    return {
        name: function
        for name, function in vars(module).items()
        if getattr(function, DEFINITION_ATTRIBUTE, None) == reference.definition.name
    }


class CheckedKernel:
    """`validation.Kernel` over a remote candidate."""

    def __init__(
        self,
        reference: Reference,
        candidate: RemoteCandidate,
        device: str,
        dtype: torch.dtype,
        seed: int,
        constraints: Sequence[str],
    ) -> None:
        self._reference, self._candidate = reference, candidate
        self._constraints = constraints
        self.device, self.dtype, self.interpreted = device, dtype, device == "cpu"
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def __call__(self, *tensors: torch.Tensor, **scalars: Any) -> Any:
        named = dict(zip(self._reference.definition.tensor_inputs, tensors, strict=True))
        self._refuse_outside(named, scalars)
        self._candidate.place(0, named)
        outputs = self._candidate.call(0, scalars, {})
        results = []
        for output in outputs:
            assert output.tensor is not None, f"returned a {output.type_name}"
            results.append(output.tensor.clone())
        return results[0] if len(results) == 1 else tuple(results)

    def _refuse_outside(self, named: dict[str, torch.Tensor], scalars: dict[str, Any]) -> None:
        """Raise OutsideVariant where the call's shape is not one that the variant takes."""
        definition = self._reference.definition
        lengths: dict[str, int] = {}
        for name, tensor in named.items():
            lengths.update(zip(definition.inputs[name].shape or (), tensor.shape, strict=False))
        axes = all_axes(definition, lengths)
        names = {**axes, **all_scalars(definition, axes, scalars)}
        for constraint in self._constraints:
            if not holds(constraint, names):
                raise OutsideVariant(f"the variant asks for `{constraint}`")

    def reference(self, *tensors: torch.Tensor, **scalars: Any) -> Any:
        named = dict(zip(self._reference.definition.tensor_inputs, tensors, strict=True))
        outputs = self._reference.exact(named, scalars)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def randn(self, *shape: int, scale: float = 1.0) -> torch.Tensor:
        values = torch.randn(shape, generator=self._generator, device=self.device)
        return (values * scale).to(self.dtype)

    def assert_matches_reference(self, *tensors: torch.Tensor, **scalars: Any) -> None:
        outputs = as_list(self(*tensors, **scalars))
        named = dict(zip(self._reference.definition.tensor_inputs, tensors, strict=True))
        exact = self._reference.exact(named, scalars)
        honest = self._reference.run(named, scalars)
        tolerance = self._reference.definition.tolerance
        names = self._reference.definition.outputs
        for name, out, ref, fair in zip(names, outputs, exact, honest, strict=True):
            assert out.shape == ref.shape, (
                f"{name}: shape {tuple(out.shape)}, not {tuple(ref.shape)}"
            )
            k = factor([*(tensor.dtype for tensor in tensors), out.dtype], tolerance)
            result = compare(out, ref, fair.to(out.dtype), tolerance, k)
            assert result.passed, f"{name}: {result.reason}"

    def assert_close(
        self, actual: torch.Tensor, expected: torch.Tensor, factor: float = 4.0
    ) -> None:
        assert actual.shape == expected.shape, (
            f"shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
        )
        if not actual.numel():
            return
        strange = ~torch.isfinite(actual.double()) & torch.isfinite(expected.double())
        assert not bool(strange.any()), (
            f"{int(strange.sum())} of {actual.numel()} elements are NaN or infinite where the expected ones are not"
        )
        largest = float(expected.abs().max())
        bound = factor * torch.finfo(actual.dtype).eps * max(largest, 1e-30)
        error = float((actual.double() - expected.double()).abs().max())
        assert error <= bound, f"differs by {error:.3g}; allowed {bound:.3g}"
