"""Tensors on the channel: on a GPU as CUDA IPC handles into the candidate's memory, on the CPU as raw bytes.

Both ways describe a tensor by its whole storage plus shape, strides and offset, so that a strided view arrives as
the same strided view. Nothing of the task worker is ever mapped by the candidate: the candidate allocates, exports,
and the task worker maps and fills or reads.
"""

from __future__ import annotations

import base64
import math
from typing import Any

import torch

from kernel_skills.executor.channel import MalformedFrame

_HANDLE_FIELDS = ("handle", "ref_counter", "event")


def describe(tensor: torch.Tensor) -> dict[str, Any]:
    """Return what is needed to rebuild the tensor over a storage of its own."""
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "storage_bytes": tensor.untyped_storage().nbytes(),
    }


def rebuild(storage: torch.UntypedStorage, description: dict[str, Any]) -> torch.Tensor:
    """Return the tensor over a storage.

    Raises:
        MalformedFrame: the description does not fit the storage.
    """
    try:
        dtype = getattr(torch, description["dtype"])
        shape, stride = tuple(description["shape"]), tuple(description["stride"])
        offset = description["offset"]
        reach = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        ints = all(type(i) is int and i >= 0 for i in (*shape, *stride, offset))
        needed = (reach + 1) * dtype.itemsize if math.prod(shape) else 0
        if not ints or not isinstance(dtype, torch.dtype) or needed > storage.nbytes():
            raise MalformedFrame("a tensor does not fit its storage")
        empty = torch.empty(0, dtype=dtype, device=storage.device)
        return empty.set_(storage, offset, shape, stride)
    except (
        KeyError, TypeError, AttributeError, ValueError, RuntimeError, ArithmeticError,
    ) as error:  # fmt: skip
        raise MalformedFrame(f"bad tensor description: {error}") from error


def storage_bytes(tensor: torch.Tensor) -> memoryview:
    """Return a copy of the storage of a CPU tensor."""
    storage = tensor.untyped_storage()
    flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return memoryview(flat.numpy().tobytes())


def storage_from_bytes(data: bytes | bytearray | memoryview) -> torch.UntypedStorage:
    """Return a CPU storage of its own with these bytes."""
    if not len(data):
        return torch.UntypedStorage(0)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).clone().untyped_storage()


def flat_bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a storage as a flat uint8 tensor."""
    empty = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return empty.set_(storage, 0, (storage.nbytes(),), (1,))


def export_handle(storage: torch.UntypedStorage) -> dict[str, Any]:
    """Return a CUDA IPC handle of a device storage as JSON; the storage must outlive its use elsewhere."""
    device, handle, size, offset, counter, counter_offset, event, sync = storage._share_cuda_()
    values = (handle, counter, event)
    coded = {
        name: base64.b64encode(value).decode() if value is not None else None
        for name, value in zip(_HANDLE_FIELDS, values, strict=True)
    }
    return {
        **coded, "device": device, "size": size, "offset": offset,
        "counter_offset": counter_offset, "sync": bool(sync),
    }  # fmt: skip


def import_handle(coded: dict[str, Any], device: int) -> torch.UntypedStorage:
    """Map another process's device storage.

    Raises:
        MalformedFrame: the handle cannot be mapped.
    """
    try:
        handle, counter, event = (
            base64.b64decode(coded[name]) if coded[name] is not None else None
            for name in _HANDLE_FIELDS
        )
        return torch.UntypedStorage._new_shared_cuda(
            device, handle, coded["size"], coded["offset"],
            counter, coded["counter_offset"], event, coded["sync"],
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise MalformedFrame(f"cannot map a device handle: {error}") from error
