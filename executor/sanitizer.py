"""Watch what kernels touch in Triton's interpreter: memory outside of their tensors, and races between programs.

Installed in the worker that runs a candidate on the CPU. An access outside is reported and left out, so that it can
neither crash the worker nor fetch anything; the task worker decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernel_skills.executor.shadow_memory import (
    Access,
    Conflict,
    Memory,
    Programs,
    find_conflict,
)

_MOST_FINDINGS = 8
_VERBS: Mapping[Access, str] = {
    "read": "reads",
    "write": "writes",
    "atomic": "updates",
    "volatile": "reads",
}
_PARTICIPLES: Mapping[Access, str] = {
    "read": "read",
    "write": "written",
    "atomic": "updated by an atomic",
    "volatile": "read",
}
_ACQUIRES = ("ACQUIRE", "ACQUIRE_RELEASE")
_RELEASES = ("RELEASE", "ACQUIRE_RELEASE")


class Sanitizer:
    """What the kernels of one call touched that they must not."""

    def __init__(self) -> None:
        self._findings: list[str] = []
        self._launch: _Launch | None = None

    def findings(self) -> list[str]:
        """Return what was found since `forget`."""
        return self._findings[:_MOST_FINDINGS]

    def forget(self) -> None:
        self._findings = []

    def install(self) -> None:
        """Wrap the interpreter's launch and its accesses of memory; call once in a process."""
        from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

        GridExecutor.__call__ = self._watched_launch(GridExecutor.__call__)
        GridExecutor._init_args_hst = self._watched_arguments(GridExecutor._init_args_hst)
        builder = InterpreterBuilder
        builder.set_grid_idx = self._watched_program(builder.set_grid_idx)
        builder.create_masked_load = self._watched_load(builder.create_masked_load)
        builder.create_masked_store = self._watched_store(builder.create_masked_store)
        builder.create_atomic_cas = self._watched_cas(builder.create_atomic_cas)
        builder.create_atomic_rmw = self._watched_rmw(builder.create_atomic_rmw)

    def _watched_launch(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        def call(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self._launch = _Launch(executor.fn.__name__)
            try:
                return launch(executor, *args, **kwargs)
            finally:
                self._findings += self._launch.findings()
                self._launch = None

        return call

    def _watched_arguments(self, to_host: Callable[..., Any]) -> Callable[..., Any]:
        def call(executor: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
            on_host = to_host(executor, args, kwargs)
            if self._launch is not None:
                positional, named = on_host
                pairs = [*zip(executor.arg_names, positional, strict=False), *named.items()]
                self._launch.memories = _memories(pairs)
            return on_host

        return call

    def _watched_program(self, set_index: Callable[..., Any]) -> Callable[..., Any]:
        def call(builder: Any, x: int, y: int, z: int) -> None:
            set_index(builder, x, y, z)
            if self._launch is not None:
                self._launch.start_program(builder.grid_idx)

        return call

    def _watched_load(self, load: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            builder: Any,
            ptrs: Any,
            mask: Any,
            other: Any,
            cache_modifier: Any,
            eviction_policy: Any,
            is_volatile: Any,
        ) -> Any:
            if self._launch is not None:
                mask = self._launch.access(ptrs, mask, "volatile" if is_volatile else "read")
                if is_volatile:
                    self._launch.synchronize(ptrs, mask, "ACQUIRE")
            return load(builder, ptrs, mask, other, cache_modifier, eviction_policy, is_volatile)

        return call

    def _watched_store(self, store: Callable[..., Any]) -> Callable[..., Any]:
        def call(builder: Any, ptrs: Any, value: Any, mask: Any, cache: Any, eviction: Any) -> Any:
            if self._launch is not None:
                mask = self._launch.access(ptrs, mask, "write", value)
            return store(builder, ptrs, value, mask, cache, eviction)

        return call

    def _watched_cas(self, swap: Callable[..., Any]) -> Callable[..., Any]:
        def call(builder: Any, ptr: Any, cmp: Any, val: Any, sem: Any, scope: Any) -> Any:
            from triton.runtime.interpreter import TensorHandle

            if self._launch is None:
                return swap(builder, ptr, cmp, val, sem, scope)
            every = _all_true(ptr)
            mask = self._launch.access(ptr, every, "atomic")
            if mask is not every:
                # it takes no mask: where a part lies outside, nothing is swapped
                return TensorHandle(np.zeros_like(cmp.data), cmp.dtype.scalar)
            result = swap(builder, ptr, cmp, val, sem, scope)
            self._launch.synchronize(ptr, mask, sem.name)
            return result

        return call

    def _watched_rmw(self, update: Callable[..., Any]) -> Callable[..., Any]:
        def call(
            builder: Any, operation: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any
        ) -> Any:
            if self._launch is None:
                return update(builder, operation, ptr, val, mask, sem, scope)
            mask = self._launch.access(ptr, mask, "atomic")
            result = update(builder, operation, ptr, val, mask, sem, scope)
            self._launch.synchronize(ptr, mask, sem.name)
            return result

        return call


class _Launch:
    """One launch of a kernel: its tensors, its programs and the first of each kind of finding."""

    def __init__(self, kernel: str) -> None:
        self.memories: list[Memory] = []
        self._kernel = kernel
        self._programs = Programs()
        self._indices: list[tuple[int, ...]] = []
        self._outside: dict[Access, str] = {}
        self._race = ""

    def findings(self) -> list[str]:
        return [*self._outside.values(), *([self._race] if self._race else [])]

    def start_program(self, index: Sequence[int]) -> None:
        self._programs.start()
        self._indices.append(tuple(int(axis) for axis in index))

    def access(self, ptrs: Any, mask: Any, access: Access, value: Any = None) -> Any:
        """Note an access; return its mask without what lies outside of every tensor."""
        from triton.runtime.interpreter import TensorHandle

        active = np.broadcast_to(mask.data, ptrs.data.shape).astype(bool)
        addresses = ptrs.data[active]
        if not addresses.size:
            return mask
        self._programs.tick()
        width = _width(ptrs)
        held = self._held(addresses, width)
        inside = np.logical_or.reduce([here for _, here in held]) if held else np.zeros(1, bool)
        if not inside.all():
            outside = addresses[~np.broadcast_to(inside, addresses.shape)]
            self._report_outside(outside, width, access)
            remaining = active.copy()
            remaining[active] = inside
            mask = TensorHandle(remaining, mask.dtype)
        for memory, here in held:
            if self._race:
                break
            changes = None if value is None else _changes(ptrs, value, active, here)
            conflict = find_conflict(
                memory, self._programs, addresses[here], width, access, changes
            )
            self._race = "" if conflict is None else self._told(memory, conflict)
        return mask

    def synchronize(self, ptrs: Any, mask: Any, order: str) -> None:
        """Note that an atomic of one element acquires or releases: larger ones carry data, no flags."""
        if ptrs.data.size != 1 or not mask.data.all():
            return
        flag = int(ptrs.data.item())
        if order in _ACQUIRES:
            self._programs.acquire(flag)
        if order in _RELEASES:
            self._programs.release(flag)

    def _held(
        self, addresses: npt.NDArray[Any], width: int
    ) -> list[tuple[Memory, npt.NDArray[np.bool_]]]:
        """Return each Memory that holds elements at these addresses, and which; mostly one holds all."""
        low, high = int(addresses.min()), int(addresses.max()) + width
        for memory in self.memories:
            if memory.start <= low and high <= memory.end:
                return [(memory, np.ones(addresses.shape, dtype=bool))]
        held = [(memory, memory.holds(addresses, width)) for memory in self.memories]
        return [(memory, here) for memory, here in held if here.any()]

    def _report_outside(self, addresses: npt.NDArray[Any], width: int, access: Access) -> None:
        if access in self._outside:
            return
        first = int(addresses[0])
        self._outside[access] = (
            f"{self._kernel} {_VERBS[access]} out of bounds: {len(addresses)} elements of {width} bytes"
            f" in program {self._indices[-1]}, the first {_place(self.memories, first)}"
        )

    def _told(self, memory: Memory, conflict: Conflict) -> str:
        return (
            f"race between programs of {self._kernel}: byte {conflict.address - memory.start} of {memory.name} is"
            f" {_PARTICIPLES[conflict.earlier]} in program {self._indices[conflict.earlier_program]} and"
            f" {_PARTICIPLES[conflict.later]} in program {self._indices[-1]}, and nothing orders the two"
        )


def _memories(pairs: Sequence[tuple[str, Any]]) -> list[Memory]:
    """Return the storages of a launch's tensors; several tensors may lie in one."""
    found: dict[int, Memory] = {}
    for name, tensor in (leaf for pair in pairs for leaf in _tensors(*pair)):
        storage = tensor.untyped_storage()
        if not storage.nbytes():
            continue
        start, width = storage.data_ptr(), tensor.element_size()
        if start in found:
            found[start].name += f", {name}"
            found[start].grain = min(found[start].grain, width)
        else:
            found[start] = Memory(name, start, storage.nbytes(), width)
    return list(found.values())


def _tensors(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of an argument: it may be a tuple, a descriptor or a tensor in another dtype."""
    if isinstance(value, tuple):
        for index, part in enumerate(value):
            yield from _tensors(f"{name}[{index}]", part)
    elif hasattr(value, "untyped_storage"):
        yield name, value
    elif hasattr(value, "base"):
        yield from _tensors(name, value.base)


def _width(ptrs: Any) -> int:
    """Return the bytes of what a pointer points to; a boolean takes one."""
    return max(1, int(ptrs.get_element_ty().primitive_bitwidth) // 8)


def _all_true(ptrs: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(np.ones_like(ptrs.data, dtype=bool), tl.int1)


def _changes(
    ptrs: Any, value: Any, active: npt.NDArray[np.bool_], here: npt.NDArray[np.bool_]
) -> Callable[[], npt.NDArray[np.bool_]]:
    """Return a function that tells which elements of a store differ from what lies there."""

    def call() -> npt.NDArray[np.bool_]:
        from triton._C.libtriton import interpreter

        values = np.broadcast_to(value.data, active.shape)[active][here]
        addresses = ptrs.data[active][here]
        every = np.ones(addresses.shape, dtype=bool)
        present = interpreter.load(addresses, every, np.zeros_like(values), values.dtype)
        # by their bits: a NaN is what it was
        bits = f"V{values.dtype.itemsize}"
        different: npt.NDArray[np.bool_] = values.view(bits) != present.view(bits)
        return different

    return call


def _place(memories: Sequence[Memory], address: int) -> str:
    """Say where an address lies, seen from the nearest tensor: which one it was meant for, an address does not tell."""
    if not memories:
        return "with no tensor at all in the launch"
    nearest = min(
        memories, key=lambda m: m.start - address if address < m.start else address - m.end
    )
    if address < nearest.start:
        return f"{nearest.start - address} bytes before {nearest.name}, the nearest tensor"
    if address >= nearest.end:
        return f"{address - nearest.end} bytes after the end of {nearest.name}, the nearest tensor"
    return f"across the end of {nearest.name}"
