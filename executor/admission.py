"""Whether a Workload can tell a kernel from nothing: run before any candidate is judged. In the task worker.

A task that zeros pass proves nothing about a kernel that passes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kernel_skills.executor.compare import compare, factor
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.failure import describe_failure
from kernel_skills.executor.inputs import dtype_of
from kernel_skills.executor.models import SourceFile, Workload
from kernel_skills.executor.problem_adapter import Adapter, make, run
from kernel_skills.executor.problem_kinds import KINDS
from kernel_skills.executor.problem_values import is_constant, redrawn
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.seeds import derive_seed

_MOST_PERMUTED = 1 << 24
"""Elements; a permutation is eight bytes each beside the tensor itself."""

Tensors = Mapping[str, torch.Tensor]


def refusal(reference: Reference, workload: Workload, seed: int, device: str) -> str:
    """Return why a Workload is refused, or nothing.

    Every null candidate must fail the earned tolerance: zeros, the mean, an input of the right shape, the output of
    other inputs. Every tensor input must have influence; a module's parameters and buffers (`state.*`) may have none,
    as a bias before a normalisation has none.
    """
    tensors, scalars = reference.draw(workload, derive_seed(seed, workload.uuid, "admit"), device)
    try:
        honest = reference.honest(tensors, scalars, workload)
    except InvalidPackage as error:
        return str(error)
    try:
        exact = reference.exact(tensors, scalars)
    except InvalidPackage as error:
        return f"the reference does not run in float64: {error}"
    bounds = Bounds(reference, workload, exact, honest)
    others, _ = reference.draw(workload, derive_seed(seed, workload.uuid, "other"), device)
    if title := null_that_passes(bounds, reference, tensors, others, scalars):
        return f"{title} passes"
    return _without_influence(reference, tensors, scalars, bounds, seed)


class Bounds:
    """The earned tolerance of one draw, for outputs that no kernel computed."""

    def __init__(
        self,
        reference: Reference,
        workload: Workload,
        exact: Sequence[torch.Tensor],
        honest: Sequence[torch.Tensor],
    ) -> None:
        definition = reference.definition
        specs = definition.tensor_inputs.values()
        inputs = [dtype_of(spec, definition, workload) for spec in specs]
        self._tolerance, self.exact, self._honest = definition.tolerance, exact, honest
        self._factors = [factor([*inputs, output.dtype], self._tolerance) for output in honest]

    def passes(self, outputs: Sequence[torch.Tensor]) -> bool:
        """Tell whether all outputs are within tolerance; outputs without elements say nothing."""
        told = False
        for output, exact, honest, k in zip(
            outputs, self.exact, self._honest, self._factors, strict=True
        ):
            if not exact.numel():
                continue
            told = True
            if output.shape != exact.shape:
                return False
            if not compare(output.to(honest.dtype), exact, honest, self._tolerance, k).passed:
                return False
        return told


def null_that_passes(
    bounds: Bounds,
    reference: Reference,
    tensors: Tensors,
    others: Tensors,
    scalars: Mapping[str, Any],
) -> str:
    """Return what computes nothing and is within tolerance all the same, or nothing.

    Args:
        others: another draw of the same inputs.
    """
    for title, outputs in _null_candidates(reference, tensors, others, scalars, bounds.exact):
        if bounds.passes(outputs):
            return title
    return ""


def _null_candidates(
    reference: Reference,
    tensors: Tensors,
    others: Tensors,
    scalars: Mapping[str, Any],
    exact: Sequence[torch.Tensor],
) -> Iterator[tuple[str, list[torch.Tensor]]]:
    yield "an output of zeros", [torch.zeros_like(output) for output in exact]
    # one element is its own mean
    if all(output.numel() > 1 for output in exact):
        floating = all(output.is_floating_point() for output in exact)
        title = "the mean everywhere" if floating else "one value everywhere"
        yield title, [_one_value(output).expand(output.shape) for output in exact]
    for name, tensor in tensors.items():
        if all(tensor.shape == output.shape for output in exact):
            yield f"the input {name!r} returned as it is", [tensor for _ in exact]
    if any(not torch.equal(tensor, others[name]) for name, tensor in tensors.items()):
        yield "the output of other inputs", reference.exact(others, scalars)


def _one_value(output: torch.Tensor) -> torch.Tensor:
    return output.mean() if output.is_floating_point() else output.flatten()[0]


def _without_influence(
    reference: Reference, tensors: Tensors, scalars: Mapping[str, Any], bounds: Bounds, seed: int
) -> str:
    for name, tensor in tensors.items():
        changed = _perturbed(tensor, derive_seed(seed, name))
        if changed is None or name.startswith("state."):
            continue
        if bounds.passes(reference.exact({**tensors, name: changed}, scalars)):
            return f"the input {name!r} has no influence on the output"
    return ""


def _perturbed(tensor: torch.Tensor, seed: int) -> torch.Tensor | None:
    """Return other values that the input may take: its own in another order, or drawn anew where it has only one."""
    dice = torch.Generator(device=tensor.device).manual_seed(seed)
    if not tensor.numel():
        return None
    if is_constant(tensor):
        return redrawn(tensor, dice) if tensor.is_floating_point() else None
    if tensor.numel() > _MOST_PERMUTED:
        changed = tensor.flip(tuple(range(tensor.dim())))
    else:
        order = torch.randperm(tensor.numel(), generator=dice, device=tensor.device)
        changed = tensor.flatten()[order].view(tensor.shape)
    # a sum is blind to order, a comparison to scale
    return changed * 1.5 if tensor.is_floating_point() else changed


# --- what a problem draws and returns ---------------------------------------------------------


def describe_problem(
    sources: Sequence[SourceFile], adapter_path: str, device: str
) -> dict[str, Any]:
    """Return inputs, outputs and calling of a problem, and the kinds of values that it cannot take, with reasons."""
    tree = SourceTree(sources, Path("problem"))
    adapter: Adapter = tree.module(adapter_path).adapter
    values = make(adapter, "as-given", derive_seed("describe"), device)
    torch.manual_seed(1)
    outputs = _outputs(adapter, values)
    torch.manual_seed(2)
    again = _outputs(adapter, values)
    random = not all(map(_same_values, outputs, again))
    del again
    finite = [bool(torch.isfinite(output).all()) for output in outputs]
    impossible = {
        kind: reason
        for kind in KINDS
        if kind != "as-given" and (reason := _impossible(adapter, kind, device, values, finite))
    }
    return {
        **adapter.describe(),
        "inputs": [_described(name, value) for name, value in values.items()],
        "outputs": [_described("output", output) for output in outputs],
        "impossible": impossible,
        "random": random,
    }


def _same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether a second run gave the same, sums of another order aside."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    # atomics on a device reorder a sum; random numbers change far more
    return torch.allclose(one, other, rtol=1e-2, atol=1e-3, equal_nan=True)


def _impossible(
    adapter: Adapter, kind: str, device: str, given: Mapping[str, Any], finite: Sequence[bool]
) -> str:
    try:
        values = make(adapter, kind, derive_seed("describe"), device)
        if _same(values, given) and kind != "fresh":
            return "nothing to vary"
        outputs = _outputs(adapter, values)
    except Exception as error:  # noqa: BLE001 - the reference is foreign code; what it refuses is not judged
        return (
            f"the reference refuses them: {describe_failure(error)['log'].splitlines()[-1][:200]}"
        )
    now = [bool(torch.isfinite(output).all()) for output in outputs]
    return "" if now == list(finite) else "the reference is not finite there"


def _same(values: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Tell whether nothing differs, neither values nor strides nor offsets."""
    return all(
        _placed_alike(value, given[name]) and torch.equal(value, given[name])
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    )


def _placed_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.stride() == other.stride() and one.storage_offset() == other.storage_offset()


def _outputs(adapter: Adapter, values: Mapping[str, Any]) -> list[torch.Tensor]:
    tensors = tuple(value for value in values.values() if isinstance(value, torch.Tensor))
    scalars = {n: value for n, value in values.items() if not isinstance(value, torch.Tensor)}
    result = run(adapter, tensors, scalars)
    outputs = list(result) if isinstance(result, tuple | list) else [result]
    if strange := [type(o).__name__ for o in outputs if not isinstance(o, torch.Tensor)]:
        raise TypeError(f"the reference returns a {strange[0]}; tensors are judged")
    return outputs


def _described(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, torch.Tensor):
        return {"name": name, "value": value}
    return {
        "name": name,
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
    }
