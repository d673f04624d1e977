"""Launch a candidate's kernels in another way for one call: not at all, or with their programs in reverse order.

A kernel that the answer does not need is a decoy; an answer that depends on the order of programs is a race.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Literal

LaunchMode = Literal["usual", "none", "reversed"]
"""`reversed` is for the interpreter, which runs one program after the other; a device orders them as it likes."""


@contextlib.contextmanager
def launching(mode: LaunchMode, interpreted: bool) -> Iterator[None]:
    """Launch in a mode while the block runs."""
    if mode == "usual" or (mode == "reversed" and not interpreted):
        yield
        return
    owner, name, replacement = _patch(mode, interpreted)
    original = getattr(owner, name)
    setattr(owner, name, replacement(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def _patch(
    mode: LaunchMode, interpreted: bool
) -> tuple[Any, str, Callable[[Callable[..., Any]], Callable[..., Any]]]:
    if not interpreted:
        from triton.runtime.jit import JITFunction

        return JITFunction, "run", _nothing
    from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

    if mode == "none":
        return GridExecutor, "__call__", _nothing
    return InterpreterBuilder, "set_grid_idx", _reversed


def _nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: None


def _reversed(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_grid_idx(builder: Any, x: int, y: int, z: int) -> None:
        last = [size - 1 for size in builder.grid_dim]
        original(builder, last[0] - x, last[1] - y, last[2] - z)

    return set_grid_idx
