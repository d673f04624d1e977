"""Repairs of Triton's interpreter, installed in the worker that runs a candidate on the CPU.

The interpreter (seen in 3.6, 3.7 and 3.9) keeps bfloat16 values as raw uint16 and computes on those integers: a dot,
a sum or a comparison of bfloat16 tensors is garbage, without a word. Every floating operation is wrapped so that
bfloat16 operands are widened to float32 first and a bfloat16 result is rounded back to nearest even.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

_RESULT_IS_BOOLEAN = ("create_fcmp",)
_FLOAT_OPERATIONS = (
    "create_fadd", "create_fsub", "create_fmul", "create_fdiv", "create_frem", "create_fma", "create_fcmp",
    "create_minnumf", "create_maxnumf", "create_minimumf", "create_maximumf", "create_clampf",
    "create_exp", "create_log", "create_sin", "create_cos", "create_sqrt", "create_rsqrt", "create_floor",
    "create_ceil", "create_erf", "create_fabs", "create_precise",
)  # fmt: skip


def widen(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return bfloat16 bit patterns as float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def narrow(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """Return values rounded to bfloat16 (to nearest, ties to even) as bit patterns."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # rounding a NaN's payload up could make it an infinity
    return np.where(np.isnan(single), 0x7FC0, rounded).astype(np.uint16)


def repair_interpreter() -> None:
    """Wrap the interpreter's floating operations; call once, in a process with TRITON_INTERPRET=1."""
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps

    interpreter._patch_lang_tensor = _with_index(interpreter._patch_lang_tensor)
    for name in dir(InterpreterBuilder):
        if name.startswith(_FLOAT_OPERATIONS):
            setattr(InterpreterBuilder, name, _widened(name, getattr(InterpreterBuilder, name)))
    # missing there: `x * 2` and `tl.full` of a bfloat16 need it
    InterpreterBuilder.get_bf16 = _bfloat16_constant
    InterpreterBuilder.create_dot = _widened_dot(InterpreterBuilder.create_dot)
    InterpreterBuilder.cast_impl = _widened_cast(InterpreterBuilder.cast_impl)
    for reduction in (ReduceOps, ScanOps):
        reduction.apply = _widened_reduction(reduction.apply)


def answer_device_queries() -> None:
    """Let host code ask for a device's properties where there is none: those of an H100 with two multiprocessors.

    Two, so that a persistent kernel runs several tiles in each of several programs.
    """
    import torch

    from kernel_skills.executor.pretended_device import torch_properties
    from kernel_skills.executor.targets import find_target

    properties = torch_properties(find_target("h100").model_copy(update={"multiprocessors": 2}))
    torch.cuda.get_device_properties = lambda device=None: properties  # type: ignore[assignment, return-value]


def _with_index(patch: Callable[..., Any]) -> Callable[..., Any]:
    """Let a loop bound that is an argument be an int: 3.6 converts a one-element array, which numpy 2.4 refuses."""

    def call(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        # not through the scope, which restores what it found here before its own change
        tensor.__index__ = lambda self: int(self.handle.data.item())

    return call


def _is_bfloat16(value: Any) -> bool:
    import triton.language as tl

    dtype = getattr(value, "dtype", None)
    return (
        getattr(dtype, "scalar", None) == tl.bfloat16 and getattr(value, "data", None) is not None
    )


def _to_float32(value: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(widen(value.data), tl.float32) if _is_bfloat16(value) else value


def _bfloat16_constant(_builder: Any, value: float) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(narrow(np.array([value], dtype=np.float32)), tl.bfloat16)


def _to_bfloat16(value: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(narrow(value.data), tl.bfloat16)


def _widened(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not any(_is_bfloat16(arg) for arg in args):
            return operation(self, *args, **kwargs)
        result = operation(self, *(_to_float32(arg) for arg in args), **kwargs)
        return result if name.startswith(_RESULT_IS_BOOLEAN) else _to_bfloat16(result)

    return call


def _widened_dot(dot: Callable[..., Any]) -> Callable[..., Any]:
    """The accumulator has its own dtype, so the result stays as it is."""

    def call(self: Any, a: Any, b: Any, *args: Any, **kwargs: Any) -> Any:
        return dot(self, _to_float32(a), _to_float32(b), *args, **kwargs)

    return call


def _widened_reduction(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Reduce or scan in float32 and round once; a device rounds after every addition of bfloat16."""

    def call(self: Any, inputs: Any) -> Any:
        import triton.language as tl

        # one tensor comes back here as a tuple
        if not isinstance(inputs, tuple) or not any(_is_bfloat16(x.handle) for x in inputs):
            return apply(self, inputs)
        narrowed = [_is_bfloat16(x.handle) for x in inputs]
        wide = tuple(
            self.to_tensor(widen(x.handle.data), tl.float32) if it else x
            for x, it in zip(inputs, narrowed, strict=True)
        )
        results = []
        for result, it in zip(apply(self, wide), narrowed, strict=True):
            if it:
                bits = narrow(result.handle.data)
                whole = bits if result.type.is_block() else bits.item()
                result = self.to_tensor(whole, tl.bfloat16)
            results.append(result)
        return tuple(results)

    return call


def _widened_cast(cast: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Any, src: Any, dst_type: Any) -> Any:
        import triton.language as tl

        if _is_bfloat16(src) and dst_type.scalar != tl.bfloat16:
            src = _to_float32(src)
            return src if dst_type.scalar == tl.float32 else cast(self, src, dst_type)
        if dst_type.scalar == tl.bfloat16 and src.dtype.scalar != tl.bfloat16:
            return _to_bfloat16(src)
        return cast(self, src, dst_type)

    return call
