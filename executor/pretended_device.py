"""Make `torch.cuda` and meta tensors answer as if the chip of a Target were there.

For host functions that ask about their device while they are compiled for a chip that is somewhere else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernel_skills.executor.targets import Target

PRETENDED = torch.device("cuda", 0)
"""Where meta tensors say that they are."""


@contextlib.contextmanager
def pretended_device(target: Target) -> Iterator[None]:
    """Answer for `target` in this process until the block ends. Nothing touches CUDA."""
    with contextlib.ExitStack() as restored:
        for name, value in _torch_cuda(target).items():
            restored.enter_context(replaced(torch.cuda, name, value))
        restored.enter_context(_OnDevice())
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Give an attribute another value until the block ends."""
    original = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _torch_cuda(target: Target) -> dict[str, Any]:
    properties = torch_properties(target)
    answers: dict[str, Any] = {
        "get_device_properties": properties,
        "get_device_capability": capability(target),
        "get_device_name": properties.name,
        "current_device": 0,
        "device_count": 1,
        "is_available": True,
        "set_device": None,
        "synchronize": None,
        "current_stream": SimpleNamespace(cuda_stream=0, device=PRETENDED),
    }
    functions: dict[str, Any] = {name: _always(answer) for name, answer in answers.items()}
    return {**functions, "device": _DeviceContext, "device_of": _DeviceContext}


def _always(answer: Any) -> Any:
    return lambda *args, **options: answer


class _OnDevice(TorchFunctionMode):
    """Meta tensors say that they are on `cuda:0`, and what is created there is created on meta."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in _ANSWERS:
            return _ANSWERS[func]
        if func is torch.Tensor.cuda:
            return args[0]
        to_meta = func is torch.Tensor.to
        args = tuple(_meta_device(arg, names_too=to_meta) for arg in args)
        named = {
            key: _meta_device(value, names_too=key == "device")
            for key, value in (kwargs or {}).items()
        }
        return func(*args, **named)


_ANSWERS: Mapping[Any, Any] = {
    torch.Tensor.device.__get__: PRETENDED,
    torch.Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_meta.__get__: False,  # type: ignore[attr-defined]
    torch.Tensor.get_device: 0,
}


def _meta_device(value: Any, *, names_too: bool) -> Any:
    named = names_too and isinstance(value, str | int) and not isinstance(value, bool)
    return torch.device("meta") if isinstance(value, torch.device) or named else value


class _DeviceContext:
    """Stands in for `torch.cuda.device` and its like: any argument, no effect."""

    def __init__(self, *args: object, **options: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


def torch_properties(target: Target) -> SimpleNamespace:
    """Return what `torch.cuda.get_device_properties` says of a Target."""
    major, minor = capability(target)
    return SimpleNamespace(
        name=device_name(target),
        major=major,
        minor=minor,
        gcnArchName=target.arch,
        warp_size=target.warp_size,
        multi_processor_count=target.multiprocessors,
        regs_per_multiprocessor=target.registers_per_multiprocessor,
        max_threads_per_multi_processor=target.max_warps_per_multiprocessor * target.warp_size,
        shared_memory_per_block=min(49152, target.shared_bytes_per_block),
        shared_memory_per_block_optin=target.shared_bytes_per_block,
        shared_memory_per_multiprocessor=target.shared_bytes_per_multiprocessor,
        L2_cache_size=target.l2_bytes,
        total_memory=target.memory_bytes,
    )


def capability(target: Target) -> tuple[int, int]:
    """Return `torch.cuda.get_device_capability` of a Target: (9, 0) for `sm_90`, (9, 4) for `gfx942`."""
    digits = target.arch.removeprefix("sm_").removeprefix("gfx")
    if target.backend == "cuda":
        return int(digits[:-1]), int(digits[-1])
    return int(digits[:-2]), int(digits[-2], 16)


def device_name(target: Target) -> str:
    return target.device_names[0] if target.device_names else target.title
