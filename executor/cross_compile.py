"""Compile a Solution for a Target, present or not, and report what became of its kernels.

The host entry runs on meta tensors under a recording driver (recording_driver.py), so every launch is compiled with
its real constants and nothing is launched. Foreign code runs here: call it in a worker.
"""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from triton.runtime.cache import get_cache_manager

from kernel_skills.executor.inputs import dtype_of, empty_in_layout
from kernel_skills.executor.machine_code import MachineCode, amd_machine_code, cuda_machine_code
from kernel_skills.executor.models import Definition, RandomInput, Scalar, Workload
from kernel_skills.executor.occupancy import occupancy_of
from kernel_skills.executor.recording_driver import Launch, LaunchError, recording
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import KernelReport
from kernel_skills.executor.workload_values import axis_values, scalar_values, shape_of

# CUDA's limits of a grid; AMD's x is the same and its y and z are larger
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
# threads; the same on every chip that Triton compiles for
_LARGEST_BLOCK = 1024
# tensor memory of a multiprocessor, sm_100
_TENSOR_MEMORY_COLUMNS = 512
_LOG_LINES = 20
_MACHINE_CODE_FILE = "machine-code-1.json"
"""Beside Triton's own files; the number goes up with every change of what is read."""


class CompileFailure(Exception):
    """A candidate that does not compile for the Target, or whose host function fails before a launch."""

    def __init__(self, log: str, kernel: str) -> None:
        super().__init__(log, kernel)
        self.log = log
        self.kernel = kernel
        """Name of the kernel; empty where the entry's own host code failed."""

    def __str__(self) -> str:
        return f"{self.kernel}: {self.log}" if self.kernel else self.log


def compile_solution(
    entry: Callable[..., Any],
    definition: Definition,
    workload: Workload,
    target: Target,
    config: Mapping[str, Scalar],
) -> list[KernelReport]:
    """Compile every kernel that `entry` launches on a workload, and return a report each.

    Equal launches are reported once. Each configuration of an autotuner has its report; one that would be skipped on
    the device says so in its warnings. An entry that launches nothing has no reports.

    Args:
        config: tuning parameters for the entry; empty lets its own heuristic pick.

    Raises:
        CompileFailure: a kernel does not compile, does not fit the Target, or the host function raises.
        Unsatisfiable: this Triton cannot compile for the Target.
        WorkerError: this process interprets kernels, or a tool that reads machine code fails.
    """
    tensors = meta_inputs(definition, workload)
    scalars = scalar_values(definition, workload)
    # two readers: disassembly takes 0.2 s in a process of its own while the next kernel compiles
    with ThreadPoolExecutor(2) as pool:
        pending: dict[str, tuple[Launch, Future[MachineCode]]] = {}

        def launched(launch: Launch) -> None:
            _check_grid(launch)
            if launch.kernel.hash not in pending:
                reading = pool.submit(machine_code_of, launch)
                pending[launch.kernel.hash] = launch, reading

        with recording(target, launched) as recorder:
            _run_entry(entry, tensors, scalars, config)
        reports = [
            kernel_report(launch, reading.result(), target) for launch, reading in pending.values()
        ]
    _check_resources([launch for launch, _ in pending.values()], target)
    skipped = [_skipped_report(values, error, target) for values, error in recorder.skipped]
    return [*reports, *skipped]


def _run_entry(
    entry: Callable[..., Any],
    tensors: Mapping[str, torch.Tensor],
    scalars: Mapping[str, Scalar | None],
    config: Mapping[str, Scalar],
) -> None:
    try:
        entry(*tensors.values(), **scalars, **config)
    except CompileFailure:
        raise
    except LaunchError as error:
        raise CompileFailure(launch_log(error), error.function.__name__) from error
    except Exception as error:
        raise CompileFailure(_host_log(error), "") from error


# --- inputs -----------------------------------------------------------------------------------


def meta_inputs(definition: Definition, workload: Workload) -> dict[str, torch.Tensor]:
    """Return a workload's tensors without data, in the Definition's order, with the strides that it asks for."""
    axes = axis_values(definition, workload)
    tensors = {}
    for name, spec in definition.tensor_inputs.items():
        given = workload.inputs.get(name)
        layout = given.layout if isinstance(given, RandomInput) else "contiguous"
        shape, dtype = shape_of(spec, axes), dtype_of(spec, definition, workload)
        tensors[name] = empty_in_layout(shape, dtype, layout, torch.device("meta"))
    return tensors


# --- reports ----------------------------------------------------------------------------------


def kernel_report(launch: Launch, code: MachineCode, target: Target) -> KernelReport:
    """Join what Triton, the assembler and the machine code say of one compiled launch."""
    metadata = launch.kernel.metadata
    # a warp-specialised kernel has more warps than the launch asked for
    warps = max(metadata.num_warps, -(-(code.threads or 0) // target.warp_size))
    held = occupancy_of(
        target,
        registers=code.registers,
        shared_bytes=metadata.shared,
        warps_per_block=warps,
    )
    warnings = list(code.warnings)
    if code.spill_bytes:
        warnings.append(f"spills {code.spill_bytes} bytes of registers per thread")
    if too_much := resource_problem(launch, target):
        warnings.append(f"{too_much}; an autotuner skips it")
    return KernelReport(
        kernel=launch.kernel.name,
        arch=target.arch,
        constants=constants_of(launch.kernel),
        num_warps=warps,
        num_stages=getattr(metadata, "num_stages", None),
        registers=code.registers,
        spill_bytes=code.spill_bytes,
        shared_bytes=metadata.shared,
        occupancy=held.share,
        limited_by=held.limited_by,
        instructions=code.instructions,
        warnings=tuple(warnings),
        compile_seconds=round(launch.seconds, 3),
    )


def machine_code_of(launch: Launch) -> MachineCode:
    """Read a launch's machine code, or what was read of it before: it is kept beside Triton's cache entry."""
    kernel = launch.kernel
    cache = get_cache_manager(kernel.hash)
    if kept := cache.get_file(_MACHINE_CODE_FILE):
        return MachineCode.model_validate_json(Path(kept).read_bytes())
    if "ptx" in kernel.asm:
        # a kernel out of Triton's cache comes without the log of the ptxas run that made it
        log = launch.output if re.search(r"Used \d+ registers", launch.output) else ""
        code = cuda_machine_code(kernel.asm["ptx"], kernel.asm["cubin"], log)
    elif "amdgcn" in kernel.asm:
        code = amd_machine_code(kernel.asm["amdgcn"])
    else:
        code = MachineCode(registers=0, spill_bytes=0, instructions={})
    cache.put(code.model_dump_json(), _MACHINE_CODE_FILE, binary=False)
    return code


def constants_of(kernel: Any) -> dict[str, Scalar | None]:
    """Return the compile-time constants of a compiled kernel by parameter name."""
    names = kernel.src.fn.arg_names
    constants: dict[str, Scalar | None] = {}
    for path, value in kernel.src.constants.items():
        name = ".".join([names[path[0]], *(str(index) for index in path[1:])])
        constants[name] = _plain(value)
    return constants


def _plain(value: Any) -> Scalar | None:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(getattr(value, "__name__", value))


def _skipped_report(values: Mapping[str, Any], error: LaunchError, target: Target) -> KernelReport:
    reason = launch_log(error).splitlines()[0]
    return KernelReport(
        kernel=error.function.__name__,
        arch=target.arch,
        constants={name: _plain(value) for name, value in values.items()},
        num_warps=values.get("num_warps", 4),
        num_stages=values.get("num_stages"),
        shared_bytes=0,
        warnings=(f"does not compile, an autotuner skips it: {reason}",),
    )


# --- limits -----------------------------------------------------------------------------------


def resource_problem(launch: Launch, target: Target) -> str:
    """Return why a kernel does not fit a block of the Target, or nothing."""
    metadata = launch.kernel.metadata
    threads = metadata.num_warps * target.warp_size
    if threads > _LARGEST_BLOCK:
        return (
            f"{threads} threads per block, {target.name} allows {_LARGEST_BLOCK}; take fewer warps"
        )
    if metadata.shared > target.shared_bytes_per_block:
        return (
            f"out of shared memory: {metadata.shared} bytes per block, {target.name} has"
            f" {target.shared_bytes_per_block}; take smaller blocks or fewer stages"
        )
    columns = getattr(metadata, "tmem_size", None) or 0
    if columns > _TENSOR_MEMORY_COLUMNS:
        return (
            f"out of tensor memory: {columns} columns, {target.name} has {_TENSOR_MEMORY_COLUMNS}"
        )
    return ""


def _check_resources(launches: Sequence[Launch], target: Target) -> None:
    problems = [(launch, resource_problem(launch, target)) for launch in launches]
    fitting = {launch.kernel.name for launch, problem in problems if not problem}
    for launch, problem in problems:
        # an autotuner goes on to the next configuration, while there is one that fits
        if problem and not (launch.tuned and launch.kernel.name in fitting):
            raise CompileFailure(problem, launch.kernel.name)


def _check_grid(launch: Launch) -> None:
    for axis, size, largest in zip("xyz", launch.grid, _LARGEST_GRID, strict=False):
        if size > largest:
            raise CompileFailure(
                f"grid {launch.grid} is too large: at most {largest} in {axis}", launch.kernel.name
            )


# --- failures ---------------------------------------------------------------------------------


def launch_log(error: LaunchError) -> str:
    """Return why a launch does not compile: the message, the source line, the compiler's own errors."""
    from triton.compiler.errors import CompilationError

    chain = _chain(error.__cause__)
    lines = [_message(chain[-1])]
    located = [link for link in chain if isinstance(link, CompilationError)]
    if located:
        lines.append(_source_line(located[-1], error.function))
    lines += _compiler_errors(error.output)
    return _shortened(lines)


def _chain(error: BaseException | None) -> list[BaseException]:
    links = []
    while error is not None:
        links.append(error)
        error = error.__cause__
    return links


def _message(error: BaseException) -> str:
    text = getattr(error, "error_message", None) or str(error)
    kind = "" if type(error).__name__ == "CompilationError" else f"{type(error).__name__}: "
    return kind + re.sub(r"^Repro command:.*$", "", text, flags=re.MULTILINE).strip()


def _source_line(error: Any, function: Any) -> str:
    node = error.node
    if error.src is None or not isinstance(node, ast.expr | ast.stmt):
        return ""
    line = error.src.split("\n")[node.lineno - 1].strip()
    if error.src != function.src:
        return f"at line {node.lineno} of a function that {function.__name__} calls: {line}"
    file = function.fn.__code__.co_filename
    # `src` starts at the line with `def`, below the decorators
    decorators = next(
        i for i, text in enumerate(function.raw_src) if text.lstrip().startswith("def ")
    )
    return f"at {file}:{function.starting_line_number + decorators + node.lineno - 1}: {line}"


def _compiler_errors(output: str) -> list[str]:
    wanted = re.compile(r"\b(error|fatal|assertion|failed)\b", re.IGNORECASE)
    lines = [line.strip() for line in output.splitlines() if wanted.search(line)]
    return [line for line in dict.fromkeys(lines) if not line.startswith("Repro")]


def _host_log(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parent)
    inside = [
        f for f in frames if not ("site-packages" in f.filename or f.filename.startswith(ours))
    ]
    last = (inside or list(frames))[-1]
    lines = [f"{type(error).__name__}: {error}", f"at {last.filename}:{last.lineno}: {last.line}"]
    return _shortened(lines)


def _shortened(lines: list[str]) -> str:
    """Join lines; of those that differ only in numbers, as ptxas writes for every use, the first is kept."""
    flat = [line[:400] for text in lines for line in text.splitlines() if line.strip()]
    flat = [re.sub(r"\S*/tmp\w+(\.ptx)?", r"kernel\1", line) for line in flat]
    different = list({re.sub(r"\d+", "0", line): line for line in reversed(flat)}.values())[::-1]
    left_out = len(flat) - min(len(different), _LOG_LINES)
    return "\n".join(different[:_LOG_LINES] + [f"... {left_out} lines more"] * (left_out > 0))
