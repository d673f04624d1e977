"""A call's arguments as JSON: tensors by name, and the other values that an operator of PyTorch takes.

Runs in the workers. What one process writes, another that runs foreign code reads; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch

_LITERALS = bool | int | str | None


class NotPassable(TypeError):
    """A value that has no form here: a function, a generator, a complex number, a sparse tensor."""


def encode(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[dict[str, torch.Tensor], str]:
    """Return the tensors of a call, named in the order in which they occur, and the JSON of all the rest.

    Raises:
        NotPassable: a value has no form here.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = [_encoded(list(arguments), tensors), _encoded(dict(keywords), tensors)]
    return tensors, json.dumps(tree, separators=(",", ":"))


def encode_value(value: Any, name: str) -> tuple[dict[str, torch.Tensor], str]:
    """Return the tensors of one argument, called `name.0`, `name.1` and so on, and the JSON of the rest.

    Raises:
        NotPassable: a part has no form here.
    """
    tensors: dict[str, torch.Tensor] = {}
    tree = _encoded(value, tensors, f"{name}.")
    return tensors, json.dumps(tree, separators=(",", ":"))


def decode_value(text: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return an argument that `encode_value` has written."""
    return _decoded(json.loads(text), tensors, _device_of(tensors))


def decode(text: str, tensors: Mapping[str, torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
    """Return (arguments, keywords) of an encoded call."""
    device = _device_of(tensors)
    arguments, keywords = (_decoded(item, tensors, device) for item in json.loads(text))
    return arguments, keywords


def _device_of(tensors: Mapping[str, torch.Tensor]) -> torch.device:
    return next((tensor.device for tensor in tensors.values()), torch.device("cpu"))


def _encoded(value: Any, tensors: dict[str, torch.Tensor], prefix: str = "x") -> Any:
    if isinstance(value, torch.Tensor):
        return {"tensor": _named(value, tensors, prefix)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, _LITERALS):
        return value
    if isinstance(value, list | tuple):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encoded(item, tensors, prefix) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encoded(item, tensors, prefix) for key, item in value.items()}}
    if isinstance(value, slice):
        return {
            "slice": [_encoded(v, tensors, prefix) for v in (value.start, value.stop, value.step)]
        }
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
        return {"torch": str(value).removeprefix("torch.")}
    if value is ...:
        return {"ellipsis": True}
    if isinstance(value, torch.device):
        return {"device": True}
    raise NotPassable(f"an argument is a {type(value).__name__}")


def _named(value: torch.Tensor, tensors: dict[str, torch.Tensor], prefix: str) -> str:
    plain = type(value) is torch.Tensor and value.layout is torch.strided
    if not plain or value.is_complex() or value.is_quantized or value.is_nested:
        raise NotPassable(f"a tensor is {value.layout} of {value.dtype}")
    name = f"{prefix}{len(tensors)}"
    tensors[name] = value
    return name


def _decoded(item: Any, tensors: Mapping[str, torch.Tensor], device: torch.device) -> Any:
    if not isinstance(item, dict):
        return item
    ((kind, value),) = item.items()
    match kind:
        case "tensor":
            return tensors[value]
        case "float":
            return float(value)
        case "list":
            return [_decoded(part, tensors, device) for part in value]
        case "tuple":
            return tuple(_decoded(part, tensors, device) for part in value)
        case "dict":
            return {key: _decoded(part, tensors, device) for key, part in value.items()}
        case "slice":
            return slice(*(_decoded(part, tensors, device) for part in value))
        case "torch":
            return getattr(torch, value)
        case "ellipsis":
            return ...
        case "device":
            return device
    raise NotPassable(f"no value of kind {kind!r}")
