"""Which ATen operators a candidate calls outside of its kernels, and which of them the policy lets pass.

The candidate worker logs and reports; the task worker decides. A log of the current thread alone, which its process
could switch off: the lint forbids what would, and the kernels are also left out for one call and timed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from kernel_skills.executor.lint import Policy

_CONVERTS = " to another dtype"
_MOST_NAMES = 64

_VIEWS = (
    "alias as_strided detach detach_ diagonal expand narrow permute select slice split split_with_sizes squeeze t"
    " transpose unbind unfold unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze view view_as_real"
    " view_as_complex _unsafe_view _reshape_alias lift_fresh numpy_T movedim"
)  # fmt: skip
_ALLOCATIONS = (
    "empty empty_like empty_permuted empty_strided new_empty new_empty_strided zeros zeros_like new_zeros ones"
    " ones_like new_ones full full_like new_full fill_ zero_"
)  # fmt: skip
_IDLE = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
_COPIES = "clone _to_copy copy_ contiguous _reshape_copy"
_FREE = frozenset(f"aten::{name}" for name in f"{_VIEWS} {_ALLOCATIONS} {_COPIES}".split())
"""Operators that place values and compute none."""


class OperatorLog(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Counts the operators that run on real tensors while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counts: Counter[str] = Counter()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from importing its compiler, for 0.9 s, to keep that away from this method."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        tensors = [x for x in tree_leaves((args, kwargs, result)) if isinstance(x, torch.Tensor)]
        if not tensors or not all(tensor.is_meta for tensor in tensors):
            self._counts[_name(func, args, result)] += 1
        return result

    def found(self) -> dict[str, int]:
        """Return how often each operator ran."""
        return dict(self._counts.most_common(_MOST_NAMES))


def hide_interpreters_copies() -> None:
    """Keep out of every log what Triton's interpreter does to hand tensors to a kernel: it copies them to the host."""
    from triton.runtime.interpreter import GridExecutor

    for name in ("_init_args_hst", "_restore_args_dev"):
        setattr(GridExecutor, name, _unlogged(getattr(GridExecutor, name)))


def _unlogged(method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with _disable_current_modes():
            return method(*args)

    return call


def _name(func: Any, args: tuple[Any, ...], result: Any) -> str:
    """Return an operator's name, as in `aten::mm`; a copy that converts says so."""
    name = str(func._schema.name)
    if name not in ("aten::_to_copy", "aten::copy_"):
        return name
    source = args[1] if name == "aten::copy_" else args[0]
    converts = isinstance(source, torch.Tensor) and source.dtype != result.dtype
    return name + (_CONVERTS if converts else "")


def compute_operators(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the operators of a log that compute: neither views nor allocations nor copies in the same dtype."""
    return {name: count for name, count in counts.items() if name not in _FREE}


def moves_data(counts: Mapping[str, int]) -> bool:
    """Tell whether a log holds anything that takes time on a device: more than views and uninitialised memory."""
    idle = {*(f"aten::{name}" for name in _VIEWS.split()), *(f"aten::{name}" for name in _IDLE)}
    return any(name not in idle for name in counts)


def objection_to_operators(counts: Mapping[str, int], policy: Policy) -> str:
    """Return what a policy has against a log, or nothing."""
    found = compute_operators(counts)
    if policy == "assist" or not found:
        return ""
    names = ", ".join(f"{name} ({count} times)" for name, count in sorted(found.items()))
    return f"torch computes outside of the candidate's kernels: {names}"
