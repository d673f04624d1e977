"""What a candidate leaves alone in its own process: functions, flags, threads, children. Runs in the candidate worker.

The worker reports what changed since before the candidate was imported; the task worker decides (`objection_to_state`).
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernel_skills.executor.lint import Policy

_RANDOM = "random numbers"
_MODULES = (
    "builtins", "time", "math", "statistics", "json", "os", "socket", "struct", "threading", "gc", "itertools",
    "torch", "torch.cuda", "torch.cuda.streams", "torch.cuda.graphs", "torch.testing", "torch.nn.functional",
    "torch.random", "triton", "triton.testing", "triton.runtime.jit", "triton.runtime.driver",
    *(f"kernel_skills.executor.{name}" for name in (
        "binding", "candidate_worker", "channel", "failure", "launch_modes", "operator_log", "process_state", "sanitizer",
        "shadow_memory", "timing", "wire",
    )),
)  # fmt: skip
"""Whose functions and classes are looked at: timers, comparisons, random numbers, and the harness itself."""
_CLASSES = (
    "torch.Tensor", "torch.cuda.Event", "torch.cuda.CUDAGraph", "torch.cuda.Stream", "torch.nn.Module",
    "triton.runtime.jit.JITFunction",
)  # fmt: skip


class ProcessState:
    """A picture of this process, taken when it is made."""

    def __init__(self) -> None:
        self._functions = dict(_functions())
        self._flags = flags()
        self._threads = len(sys._current_frames())

    def changes(self) -> list[str]:
        """Return what is not as it was, by name."""
        now = dict(_functions())
        changed = [name for name, seen in self._functions.items() if now.get(name) != seen]
        # a method set on a class hides that of its base; modules get new names as their parts are imported
        changed += [
            name for name in now.keys() - self._functions.keys() if name.startswith(_CLASSES)
        ]
        flags_now = flags()
        changed += [name for name, value in self._flags.items() if flags_now[name] != value]
        if len(sys._current_frames()) > self._threads:
            changed.append("threads left running")
        if has_children():
            changed.append("processes left running")
        return changed


def random_state() -> str:
    """Return a digest of the default generators."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_initialized():
        states.append(torch.cuda.get_rng_state())
    return hashlib.sha256(b"".join(state.numpy().tobytes() for state in states)).hexdigest()


@contextlib.contextmanager
def watching_random_numbers(changed: list[str]) -> Iterator[None]:
    """Add to `changed` where the block draws from a default generator, or seeds it."""
    before = random_state()
    yield
    if random_state() != before:
        changed.append(_RANDOM)


def _functions() -> Iterator[tuple[str, tuple[int, int]]]:
    for label, owner in _owners():
        for name, value in list(vars(owner).items()):
            if callable(value):
                yield f"{label}.{name}", (id(value), id(getattr(value, "__code__", None)))


def _owners() -> Iterator[tuple[str, Any]]:
    for name in _MODULES:
        if name in sys.modules:
            yield name, sys.modules[name]
    for name in _CLASSES:
        module, _, attribute = name.rpartition(".")
        yield name, getattr(importlib.import_module(module), attribute)


def flags() -> dict[str, Any]:
    """Return the settings that decide what others compute, and how fast."""
    found = {name: _quietly(read) for name, read in _FLAGS.items()}
    found["signal handlers"] = tuple(id(signal.getsignal(one)) for one in signal.valid_signals())
    return found


def _quietly(read: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return read()
        except RuntimeError:
            # torch refuses to read a flag that was set by another of its interfaces
            return "set twice"


_FLAGS: Mapping[str, Callable[[], Any]] = {
    "default dtype": torch.get_default_dtype,
    "default device": lambda: str(torch.get_default_device()),
    "TF32 in matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
    "TF32 in cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "float32 precision": torch.get_float32_matmul_precision,
    "reduced precision": lambda: (
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    ),
    "cuDNN": lambda: (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark),
    "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "fill of uninitialised memory": torch._C._get_deterministic_fill_uninitialized_memory,
    "grad mode": lambda: (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    "anomaly mode": torch.is_anomaly_enabled,
    "autocast": lambda: (torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda")),
    "torch's threads": torch.get_num_threads,
    "modes of torch": lambda: (
        torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(),
    ),
    "trace and profile hooks": lambda: (id(sys.gettrace()), id(sys.getprofile())),
    "garbage collection": lambda: (gc.isenabled(), len(gc.callbacks)),
    "environment": lambda: hash(tuple(sorted(os.environ.items()))),
    "import hooks": lambda: (len(sys.meta_path), len(sys.path_hooks)),
    "folder": os.getcwd,
    "recursion limit": sys.getrecursionlimit,
}  # fmt: skip


def has_children() -> bool:
    """Tell whether this process has a child, dead or alive."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def objection_to_state(changed: list[str], policy: Policy) -> str:
    """Return what a policy has against changes of state, or nothing: under `assist` torch may draw random numbers."""
    found = [name for name in changed if not (policy == "assist" and name == _RANDOM)]
    return f"changed in its process: {', '.join(found[:8])}" if found else ""
