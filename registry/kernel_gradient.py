"""Differentiate a kernel: by its backward Definition's own kernel, else by its reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from kernel_skills.registry.kernel_choice import Choice, OutsideEnvelope
from kernel_skills.registry.kernel_plan import Plan, reference_plan

if TYPE_CHECKING:
    from kernel_skills.registry.kernel_operator import Dispatcher, Operator


class Differentiated(torch.autograd.Function):
    """Joins a kernel to its gradient for plain tensors in eager mode."""

    @staticmethod
    def forward(
        ctx: Any, dispatcher: Dispatcher, plan: Plan, *values: Any
    ) -> tuple[torch.Tensor, ...]:
        # before the launch: where the gradient is to raise, nothing has run
        _prepare(ctx, dispatcher, ctx.needs_input_grad[2:])
        outputs = plan.run(values)
        _save(ctx, values, outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *gradients(ctx, *grads))


def set_up(
    ctx: Any, dispatcher: Dispatcher, values: Sequence[Any], outputs: Sequence[torch.Tensor]
) -> None:
    """Keep what the backward reads, in the context of a `torch.library` operator.

    Raises:
        OutsideEnvelope: no kernel computes a gradient that is needed, and a miss is to raise.
    """
    _prepare(ctx, dispatcher, ctx.needs_input_grad)
    _save(ctx, values, outputs)


# an auxiliary output, as a function of the inputs, would be missing from a second derivative
@once_differentiable
def gradients(ctx: Any, *grads: Any) -> tuple[Any, ...]:
    """Return the gradient of every input of the forward, None where none is wanted."""
    named = {**ctx.others, **dict(zip(ctx.kept, ctx.saved_tensors, strict=True))}
    route = _by_kernel if ctx.by_kernel else _by_reference
    found = route(ctx.dispatcher, named, ctx.wanted, grads)
    names = ctx.dispatcher.operator.signature.names
    return tuple(found[name] if name in ctx.wanted else None for name in names)


def _prepare(ctx: Any, dispatcher: Dispatcher, needs: Sequence[bool]) -> None:
    operator = dispatcher.operator
    signature, contract = operator.signature, operator.definition.gradient
    ctx.dispatcher = dispatcher
    ctx.wanted = [signature.names[i] for i in signature.tensors if needs[i]]
    missing = [name for name in ctx.wanted if contract is None or name not in contract.grads]
    ctx.by_kernel = not missing
    if missing:
        reason = (
            f"no kernel computes the gradient of {operator.definition.name} by {', '.join(missing)}"
        )
        if dispatcher.on_miss == "raise":
            raise OutsideEnvelope(operator.label, (reason,))
        operator.warn(f"{reason}; its backward differentiates the reference")


def _save(ctx: Any, values: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
    definition = ctx.dispatcher.operator.definition
    named = {
        **dict(zip(definition.inputs, values, strict=True)),
        **dict(zip(definition.outputs, outputs, strict=True)),
    }
    sources = set(definition.gradient.inputs.values()) if ctx.by_kernel else set(definition.inputs)
    ctx.kept = [
        name for name, value in named.items() if name in sources and isinstance(value, torch.Tensor)
    ]
    ctx.others = {
        name: value for name, value in named.items() if not isinstance(value, torch.Tensor)
    }
    ctx.save_for_backward(*(named[name] for name in ctx.kept))


def _by_kernel(
    dispatcher: Dispatcher, named: dict[str, Any], wanted: Sequence[str], grads: Sequence[Any]
) -> dict[str, Any]:
    operator = dispatcher.operator
    contract, backward = operator.definition.gradient, operator.gradient()
    assert contract is not None and backward is not None
    by_output = dict(zip(operator.definition.outputs, grads, strict=True))
    values: list[Any] = []
    for name in backward.signature.names:
        source = contract.inputs.get(name)
        if source is not None and source.startswith("grad:"):
            # the gradient of a sum is one element, expanded; kernels want rows in memory
            values.append(by_output[source.removeprefix("grad:")].contiguous())
        else:
            values.append(None if source is None else named[source])
    results = backward.dispatcher(dispatcher.on_miss, "")(values)
    by_name = dict(zip(backward.definition.outputs, results, strict=True))
    return {name: by_name[contract.grads[name]] for name in wanted}


def _by_reference(
    dispatcher: Dispatcher, named: dict[str, Any], wanted: Sequence[str], grads: Sequence[Any]
) -> dict[str, Any]:
    operator = dispatcher.operator
    with torch.enable_grad():
        leaves = {name: named[name].detach().requires_grad_() for name in wanted}
        values = [leaves.get(name, named[name]) for name in operator.signature.names]
        outputs = _reference(operator, values)
        pairs = [pair for pair in zip(outputs, grads, strict=True) if pair[0].requires_grad]
        found = torch.autograd.grad(
            [output for output, _ in pairs],
            [leaves[name] for name in wanted],
            [grad for _, grad in pairs],
            allow_unused=True,
        )
    return dict(zip(wanted, found, strict=True))


def _reference(operator: Operator, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
    choice = Choice(operator.label, operator.definition.name, "any", None)
    return reference_plan(operator, operator.signature.bind(values), choice).run(values)
