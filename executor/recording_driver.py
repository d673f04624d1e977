"""A Triton driver that compiles every launch for a wished Target and launches nothing.

Inside `recording(...)` this process looks like a machine with that chip: Triton asks the driver for its target,
`torch.cuda` answers for the chip, and meta tensors say that they are on `cuda:0`. Foreign code runs here, so this
belongs in a worker process. Nothing touches CUDA.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from kernel_skills.executor.errors import Unsatisfiable, WorkerError
from kernel_skills.executor.pretended_device import (
    PRETENDED,
    capability,
    pretended_device,
    replaced,
)
from kernel_skills.executor.targets import Target


@dataclass(frozen=True)
class Launch:
    """One launch, compiled: what Triton made, and what its tools said meanwhile."""

    kernel: Any
    """`triton.compiler.CompiledKernel`."""
    grid: tuple[int, ...]
    seconds: float
    output: str
    """What the compiler printed, the log of ptxas in it; empty where the kernel came from Triton's cache."""
    tuned: bool
    """One of several configurations that an autotuner would try."""


class LaunchError(Exception):
    """A launch that did not compile; the cause is Triton's exception."""

    def __init__(self, function: Any, output: str, tuned: bool) -> None:
        super().__init__(f"{function.__name__} does not compile")
        self.function = function
        self.output = output
        self.tuned = tuned


@dataclass
class Recorder:
    """What was launched, in order, and the configurations that an autotuner would have skipped."""

    target: Target
    launched: Callable[[Launch], None] = lambda launch: None
    """Called after each launch, so that its machine code can be read while the next one compiles."""
    launches: list[Launch] = field(default_factory=list)
    skipped: list[tuple[Mapping[str, Any], LaunchError]] = field(default_factory=list)
    tuning: bool = False

    def add(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.launched(launch)


def gpu_target(target: Target) -> GPUTarget:
    """Return Triton's word for a Target.

    Raises:
        Unsatisfiable: this Triton has no backend for it.
    """
    arch: Any = int(target.arch.removeprefix("sm_")) if target.backend == "cuda" else target.arch
    wished = GPUTarget(target.backend, arch, target.warp_size)
    backends = triton.backends.backends
    if not any(backend.compiler.supports_target(wished) for backend in backends.values()):
        known = ", ".join(sorted(backends))
        raise Unsatisfiable(f"Triton cannot compile for {target.name}; its backends: {known}")
    return wished


@contextlib.contextmanager
def recording(
    target: Target, launched: Callable[[Launch], None] = lambda launch: None
) -> Iterator[Recorder]:
    """Compile launches for `target` instead of running them; on leaving, everything is as it was.

    Raises:
        Unsatisfiable: Triton cannot compile for the target.
        WorkerError: this process runs kernels in the interpreter, where nothing is compiled.
    """
    if knobs.runtime.interpret:
        raise WorkerError(
            "kernels are interpreted in this process (TRITON_INTERPRET); compile in another"
        )
    wished = gpu_target(target)
    recorder = Recorder(target, launched)
    driver = triton.runtime.driver
    # `_active` and not `active`: reading that one would start a driver, which fails without a GPU
    previous = driver._active
    with contextlib.ExitStack() as restored:
        restored.callback(driver.set_active, previous)
        driver.set_active(RecordingDriver(target, wished))
        for owner, name, value in _launchers(recorder):
            restored.enter_context(replaced(owner, name, value))
        restored.enter_context(pretended_device(target))
        yield recorder


# --- Triton -----------------------------------------------------------------------------------


class RecordingDriver(DriverBase):  # type: ignore[misc]
    """Answers for a Target; its launcher does nothing."""

    def __init__(self, target: Target, wished: GPUTarget) -> None:
        super().__init__()
        self._target, self._wished = target, wished
        # JITFunction caches its binder, and with it the target, by this value
        self._device = f"recording:{target.name}"
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: triton_properties(target),
            load_binary=self._load_binary,
            set_printf_fifo_size=lambda size: None,
        )
        self.launcher_cls = lambda source, metadata: lambda *args: None

    @classmethod
    def is_active(cls) -> bool:
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self._wished

    def get_current_device(self) -> str:
        return self._device

    def set_current_device(self, device: object) -> None:
        pass

    def get_current_stream(self, device: object) -> int:
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return capability(self._target)

    def get_active_torch_device(self) -> torch.device:
        return PRETENDED

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., list[float]]:
        return lambda kernel_call, quantiles, **options: [0.0 for _ in quantiles]

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.int32, device="meta")

    def clear_cache(self, cache: torch.Tensor) -> None:
        pass

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args

    def _load_binary(
        self, name: str, binary: bytes, shared: int, device: object
    ) -> tuple[None, int, int, int, int]:
        # a host function that sizes its grid by registers gets the most that a thread may have
        return None, 0, self._target.max_registers_per_thread, 0, 1024


def triton_properties(target: Target) -> dict[str, Any]:
    """Return what `driver.active.utils.get_device_properties` says of a Target."""
    return {
        "max_shared_mem": target.shared_bytes_per_block,
        "max_num_regs": target.registers_per_multiprocessor,
        "multiprocessor_count": target.multiprocessors,
        "warpSize": target.warp_size,
        "arch": target.arch,
    }


def _compile_launch(
    recorder: Recorder,
    original: Callable[..., Any],
    function: JITFunction[Any],
    args: tuple[Any, ...],
    grid: Any,
    options: dict[str, Any],
) -> Any:
    begin = time.perf_counter()
    with captured_output() as output, knobs.nvidia.scope():
        # Triton then prints the log of ptxas, so that ptxas need not run twice
        knobs.nvidia.dump_ptxas_log = True
        try:
            kernel = original(function, *args, grid=grid, warmup=True, **options)
        except Exception as error:
            raise LaunchError(function, output(), recorder.tuning) from error
        text = output()
    seconds = time.perf_counter() - begin
    size = _grid_size(function, args, grid, options)
    recorder.add(Launch(kernel, size, seconds, text, recorder.tuning))
    return kernel


def _grid_size(
    function: JITFunction[Any], args: tuple[Any, ...], grid: Any, options: dict[str, Any]
) -> tuple[int, ...]:
    if callable(grid):
        defaults = {p.name: p.default for p in function.params if p.has_default}
        grid = grid({**defaults, **dict(zip(function.arg_names, args, strict=False)), **options})
    return tuple(int(size) for size in grid or ())


def _compile_every_config(
    recorder: Recorder, tuner: Autotuner, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Compile what an autotuner would time; a configuration that it would skip is set aside with the reason."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    configs = tuner.prune_configs(options) if len(tuner.configs) > 1 else tuner.configs
    outer, recorder.tuning = recorder.tuning, recorder.tuning or len(configs) > 1
    kernel = None
    try:
        for config in configs:
            values = {**options, **config.all_kwargs()}
            if config.pre_hook is not None:
                config.pre_hook({**tuner.nargs, **values})
            try:
                kernel = tuner.fn.run(*args, **values)
            except LaunchError as error:
                if not (recorder.tuning and isinstance(error.__cause__, _skippable())):
                    raise
                recorder.skipped.append((config.all_kwargs(), error))
    finally:
        recorder.tuning = outer
        tuner.nargs = None
    if kernel is None:
        raise recorder.skipped[-1][1]
    return kernel


def _skippable() -> tuple[type[Exception], ...]:
    """Return the errors on which Triton's autotuner goes on to the next configuration."""
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, CompileTimeAssertionFailure, PTXASError


# --- patches ----------------------------------------------------------------------------------


def _launchers(recorder: Recorder) -> Iterator[tuple[Any, str, Any]]:
    original = JITFunction.run

    def launch(function: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        return _compile_launch(recorder, original, function, args, grid, options)

    def tune(tuner: Autotuner, *args: Any, **options: Any) -> Any:
        return _compile_every_config(recorder, tuner, args, options)

    yield JITFunction, "run", launch
    yield Autotuner, "run", tune


@contextlib.contextmanager
def captured_output() -> Iterator[Callable[[], str]]:
    """Collect what is printed inside, by Python and by the C++ parts of the compiler on file descriptor 2."""
    printed = io.StringIO()
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        os.dup2(errors.fileno(), 2)

        def text() -> str:
            errors.seek(0)
            found = errors.read()
            errors.seek(0, os.SEEK_END)
            return printed.getvalue() + found

        try:
            with contextlib.redirect_stdout(printed):
                yield text
        finally:
            os.dup2(kept, 2)
            os.close(kept)
