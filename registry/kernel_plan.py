"""What one kind of call runs: the chosen function with its shapes, scalars and tuning, resolved once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.kernel_binding import BadCall, Bound
from kernel_skills.registry.kernel_choice import Choice, OutsideEnvelope, choose

if TYPE_CHECKING:
    from kernel_skills.registry.kernel_operator import Operator


@dataclass(frozen=True, slots=True)
class Output:
    """What the contract says of one output of a plan."""

    name: str
    dtype: torch.dtype
    flat_shape: tuple[Any, ...]
    caller_shape: tuple[Any, ...]


@dataclass(slots=True)
class Plan:
    """A function ready to be called with tensors of the shapes that it was made for."""

    function: Callable[..., Any]
    choice: Choice
    inputs: tuple[tuple[int, tuple[Any, ...] | None], ...]
    """Position of each tensor and, where leading dimensions collapse, the shape that the function gets."""
    keywords: Mapping[str, Any]
    """Scalars and tuning parameters."""
    varying: tuple[tuple[int, str], ...]
    """Scalars that may differ from call to call: their positions and names."""
    outputs: tuple[Output, ...]
    device_index: int | None
    collapsed: bool
    checked: bool = False

    @property
    def by_reference(self) -> bool:
        return self.choice.variant is None

    def run(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """Return the outputs, auxiliary ones too, in the shapes that the caller sees."""
        # Triton launches on the current device, whatever device the tensors are on
        if self.device_index is not None and torch.cuda.current_device() != self.device_index:
            with torch.cuda.device(self.device_index):
                return self._run(values)
        return self._run(values)

    def _run(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        tensors = [
            values[i] if shape is None else values[i].reshape(shape) for i, shape in self.inputs
        ]
        keywords = self.keywords
        if self.varying:
            given = {name: values[i] for i, name in self.varying if values[i] is not None}
            keywords = {**keywords, **given}
        result = self.function(*tensors, **keywords)
        if type(result) is not tuple:
            result = tuple(result) if isinstance(result, list) else (result,)
        if self.by_reference:
            return self._coerced(result)
        if not self.checked:
            self._check(result, tensors[0].device)
        if not self.collapsed:
            return result
        return tuple(
            out if spec.flat_shape == spec.caller_shape else out.view(spec.caller_shape)
            for out, spec in zip(result, self.outputs, strict=True)
        )

    def _coerced(self, result: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        if len(result) != len(self.outputs):
            raise InvalidPackage(
                f"the reference returns {len(result)} outputs, not {len(self.outputs)}"
            )
        return tuple(
            out.to(spec.dtype).reshape(spec.caller_shape)
            for out, spec in zip(result, self.outputs, strict=True)
        )

    def _check(self, result: tuple[torch.Tensor, ...], device: torch.device) -> None:
        if len(result) != len(self.outputs):
            raise InvalidPackage(
                f"variant {self.choice.variant} returns {len(result)} outputs, not {len(self.outputs)}"
            )
        for out, spec in zip(result, self.outputs, strict=True):
            got = (tuple(out.shape), out.dtype, out.device)
            want = (tuple(spec.flat_shape), spec.dtype, device)
            if got != want:
                raise InvalidPackage(
                    f"variant {self.choice.variant} returns {spec.name} as {got}, the definition says {want}"
                )
        self.checked = True


def kernel_plan(
    operator: Operator, values: Sequence[Any], on_miss: str, config: Mapping[str, Any]
) -> Plan:
    """Return the plan for a call: a variant, or the reference where none fits.

    Raises:
        BadCall: the arguments break the Definition.
        OutsideEnvelope: no variant fits and `on_miss` is `raise`.
    """
    bound, choice = choice_of(operator, values, config)
    if choice.variant is None:
        if on_miss == "raise":
            raise OutsideEnvelope(operator.label, choice.reasons)
        operator.warn(
            f"{operator.definition.name} runs as the plain reference: {'; '.join(choice.reasons)}"
        )
        return reference_plan(operator, bound, choice)
    variant = next(v for v in operator.variants if v.id == choice.variant)
    function = operator.source.function(variant.entry)
    device = values[operator.signature.tensors[0]].device
    return _plan(operator, bound, choice, function, device.index if device.type == "cuda" else None)


def choice_of(
    operator: Operator, values: Sequence[Any], config: Mapping[str, Any]
) -> tuple[Bound, Choice]:
    """Return what a call says and which variant it takes.

    Raises:
        BadCall: the arguments break the Definition.
    """
    bound = operator.signature.bind(values)
    operator.signature.check_constraints(bound)
    device = _common_device(operator, values)
    return bound, choose(
        operator.skill, operator.definition, bound, device, config, operator.evidence
    )


def reference_plan(operator: Operator, bound: Bound, choice: Choice) -> Plan:
    return _plan(
        operator, bound, choice, operator.source.function(operator.definition.reference), None
    )


def _plan(
    operator: Operator,
    bound: Bound,
    choice: Choice,
    function: Callable[..., Any],
    device_index: int | None,
) -> Plan:
    signature = operator.signature
    inputs = []
    for i in signature.tensors:
        name = signature.names[i]
        flat = signature.flat_shape(name, bound)
        inputs.append((i, None if flat == signature.caller_shape(name, bound) else flat))
    outputs = tuple(
        Output(
            name,
            getattr(torch, signature.output_dtype(name, bound)),
            signature.flat_shape(name, bound),
            signature.caller_shape(name, bound),
        )
        for name in operator.definition.outputs
    )
    return Plan(
        function=function,
        choice=choice,
        inputs=tuple(inputs),
        keywords={**bound.scalars, **choice.config},
        varying=tuple(
            (i, signature.names[i]) for i in signature.scalars if i not in operator.deciding
        ),
        outputs=outputs,
        device_index=device_index,
        collapsed=any(out.flat_shape != out.caller_shape for out in outputs),
    )


def _common_device(operator: Operator, values: Sequence[Any]) -> torch.device:
    signature = operator.signature
    first = signature.tensors[0]
    device: torch.device = values[first].device
    for i in signature.tensors:
        if values[i].device != device:
            raise BadCall(
                f"{operator.definition.name}: {signature.names[i]} is on {values[i].device}, "
                f"{signature.names[first]} on {device}"
            )
    return device
