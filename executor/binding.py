"""Bind a candidate to its inputs by a Calling. Runs in the workers: it imports torch, and runs foreign code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernel_skills.executor.call_tree import decode, decode_value
from kernel_skills.executor.calling import Calling
from kernel_skills.executor.models import Definition
from kernel_skills.executor.workload_values import shape_of

_PLAIN_MODULES = ("builtins", "torch.return_types")


class ParametersDiffer(Exception):
    """The candidate's module cannot take over the parameters of the problem's."""


def bind(
    entry: Callable[..., Any],
    calling: Calling,
    definition: Definition | None,
    tensors: Mapping[str, torch.Tensor],
    keywords: Mapping[str, Any],
) -> Callable[[], Any]:
    """Return a callable without arguments that runs the candidate once.

    A module is constructed and given its parameters here, outside of what is timed.

    Args:
        keywords: scalar inputs, and tuning parameters for the style `keywords`.

    Raises:
        ParametersDiffer: a module's parameters match neither by name nor in order.
    """
    if calling.style == "keywords":
        arguments = tuple(tensors.values())
        return lambda: entry(*arguments, **keywords)
    if calling.style == "tree":
        given, named = decode(keywords["call"], tensors)
        return lambda: entry(*given, **named)
    grouped = {name: decode_value(tree, tensors) for name, tree in calling.groups.items()}
    values = {**tensors, **keywords, **grouped}
    arguments = tuple(values[name] for name in calling.order)
    if calling.style == "module":
        module = _constructed(entry, calling, values)
        return lambda: _without_gradients(module, arguments)
    if calling.destination:
        assert definition is not None, "a destination needs shapes"
        contract = definition
        return lambda: _into(entry, arguments, empty_outputs(contract, tensors))
    return lambda: flat_outputs(entry(*arguments))


def flat_outputs(result: Any) -> Any:
    """Return tuples, lists and dictionaries as one list, without what is None; anything else as it is.

    Plain ones only: a class of the candidate's own could act when it is read.
    """
    if type(result) is dict:
        result = list(result.values())
    if not isinstance(result, tuple | list) or type(result).__module__ not in _PLAIN_MODULES:
        return result
    flat: list[Any] = []
    for item in result:
        if item is None:
            continue
        inner = flat_outputs(item)
        flat.extend(inner if type(inner) is list else [inner])
    return flat


def as_entry(
    entry: Callable[..., Any], calling: Calling, definition: Definition
) -> Callable[..., Any]:
    """Return the candidate as an entry of ours: tensors by position, scalars by keyword."""
    if calling.style == "keywords":
        return entry
    names = tuple(definition.tensor_inputs)

    def call(*tensors: torch.Tensor, **keywords: Any) -> Any:
        return bind(entry, calling, definition, dict(zip(names, tensors, strict=True)), keywords)()

    return call


def empty_outputs(
    definition: Definition, tensors: Mapping[str, torch.Tensor]
) -> list[torch.Tensor]:
    """Return uninitialised outputs of the shapes that the inputs imply."""
    axes = {name: axis.value for name, axis in definition.axes.items() if axis.type == "const"}
    for name, spec in definition.tensor_inputs.items():
        axes.update(zip(spec.shape or (), tensors[name].shape, strict=True))
    device = next(iter(tensors.values())).device
    return [
        torch.empty(shape_of(spec, axes), dtype=getattr(torch, spec.dtype), device=device)
        for spec in definition.outputs.values()
    ]


def _into(
    entry: Callable[..., Any], arguments: Sequence[Any], outputs: list[torch.Tensor]
) -> list[torch.Tensor]:
    entry(*arguments, *outputs)
    return outputs


def _without_gradients(module: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    with torch.no_grad():
        return flat_outputs(module(*arguments))


def _constructed(
    entry: Callable[..., Any], calling: Calling, values: Mapping[str, Any]
) -> Callable[..., Any]:
    device = next(v.device for v in values.values() if isinstance(v, torch.Tensor))
    torch.manual_seed(values[calling.seed_input])
    with torch.device(device):
        module = entry(*calling.init, **calling.init_keywords)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{entry.__name__} is no torch.nn.Module")
    if calling.dtype:
        module.to(getattr(torch, calling.dtype))
    if calling.evaluation:
        module.eval()
    given = {key: values[name] for name, key in calling.parameters.items()}
    for parameter, tensor in _matched(dict(module.named_parameters()), given):
        parameter.data = tensor
    buffers = dict(module.named_buffers())
    for name, key in calling.buffers.items():
        if key in buffers and buffers[key].shape == values[name].shape:
            buffers[key].data = values[name].clone()
    return module


def _matched(
    own: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pair parameters by name, else in order where all shapes agree."""
    if all(key in given and given[key].shape == p.shape for key, p in own.items()):
        return [(parameter, given[key]) for key, parameter in own.items()]
    if [p.shape for p in own.values()] == [p.shape for p in given.values()]:
        return list(zip(own.values(), given.values(), strict=True))
    wanted = ", ".join(f"{key} {tuple(p.shape)}" for key, p in given.items()) or "none"
    found = ", ".join(f"{key} {tuple(p.shape)}" for key, p in own.items())
    raise ParametersDiffer(
        f"ModelNew has the parameters {found}; Model has {wanted}: keep their names, or their order and shapes"
    )
