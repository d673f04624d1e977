from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from kernel_skills.executor.cross_compile import (
    CompileFailure,
    compile_solution,
    meta_inputs,
)
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.errors import Unsatisfiable, WorkerError
from kernel_skills.executor.models import Definition, SourceFile, Workload
from kernel_skills.executor.recording_driver import recording
from kernel_skills.executor.targets import find_target
from kernel_skills.executor.trace import KernelReport

KERNELS = Path(__file__).parent / "kernels"
Compile = Callable[..., list[KernelReport]]


def definition(*inputs: str, scalars: dict[str, Any] | None = None) -> Definition:
    tensors = {name: {"shape": ("rows", "cols"), "dtype": "T"} for name in inputs}
    return Definition.model_validate(
        {
            "name": "sample",
            "op_type": "sample",
            "dtypes": {"T": ("bfloat16", "float32")},
            "axes": {"rows": {"type": "var"}, "cols": {"type": "var"}},
            "inputs": {**tensors, **(scalars or {})},
            "outputs": {"y": {"shape": ("rows", "cols"), "dtype": "T"}},
            "reference": "reference.py::sample",
        }
    )


def workload(dtype: str = "bfloat16", **fields: Any) -> Workload:
    return Workload.model_validate(
        {
            "definition": "sample",
            "name": "square",
            "purpose": "smoke",
            "axes": {"rows": 512, "cols": 512},
            "dtypes": {"T": dtype},
            **fields,
        }
    )


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> SourceTree:
    files = [SourceFile(path=p.name, content=p.read_text()) for p in sorted(KERNELS.glob("*.py"))]
    return SourceTree(files, tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module", autouse=True)
def empty_triton_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path_factory.mktemp("triton"))
        yield


@pytest.fixture
def compile_for(kernels: SourceTree) -> Compile:
    def run(
        entry: str, target: str, dtype: str = "bfloat16", inputs: str = "x", **config: Any
    ) -> list[KernelReport]:
        function = kernels.function(entry)
        return compile_solution(
            function, definition(*inputs), workload(dtype), find_target(target), config
        )

    return run


@pytest.mark.parametrize(
    ("target", "present", "absent"),
    [
        ("a100", "mma", "wgmma"),
        ("h100", "wgmma", "mma"),
        ("b200", "tcgen05", "wgmma"),
        ("mi300x", "mfma", "mma"),
    ],
)
def test_a_matmul_uses_the_matrix_instructions_of_its_target(
    compile_for: Compile, target: str, present: str, absent: str
) -> None:
    [report] = compile_for(
        "matmul.py::matmul", target, inputs="ab", STAGES=2 if target == "mi300x" else 3
    )
    assert report.arch == find_target(target).arch
    assert report.instructions[present] > 0
    assert absent not in report.instructions
    assert report.spill_bytes == 0
    assert report.warnings == ()
    assert 0 < (report.registers or 0) <= 255
    assert 0 < (report.occupancy or 0) <= 1


def test_constants_and_launch_options_are_those_of_the_launch(compile_for: Compile) -> None:
    [report] = compile_for("matmul.py::matmul", "h100", inputs="ab", STAGES=4, WARPS=4)
    assert report.kernel == "matmul_kernel"
    assert report.constants == {"BM": 128, "BN": 128, "BK": 64}
    assert (report.num_warps, report.num_stages) == (4, 4)
    # four stages of a 128x64 and a 64x128 tile in bfloat16
    assert report.shared_bytes >= 4 * 2 * 128 * 64 * 2


def test_every_kernel_of_an_entry_is_reported_once_whatever_the_loop(compile_for: Compile) -> None:
    reports = compile_for("matmul.py::matmul_twice", "a100", inputs="ab")
    assert [report.kernel for report in reports] == ["matmul_kernel", "double_kernel"]


def test_every_configuration_of_an_autotuner_is_reported(compile_for: Compile) -> None:
    reports = compile_for("matmul.py::tuned_double", "a100")
    assert [(r.constants["BLOCK"], r.num_warps) for r in reports] == [(256, 2), (512, 4)]


def test_a_configuration_that_does_not_fit_is_a_warning_where_another_does(
    compile_for: Compile,
) -> None:
    fits, does_not = compile_for("matmul.py::tuned_matmul", "a100", inputs="ab")
    assert fits.warnings == ()
    assert "out of shared memory" in does_not.warnings[0]


def test_too_much_shared_memory_is_a_failure_with_both_figures(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match=r"out of shared memory: \d+ bytes.*166912") as failure:
        compile_for("matmul.py::matmul", "a100", inputs="ab", STAGES=8)
    assert failure.value.kernel == "matmul_kernel"


def test_a_spill_is_a_warning(compile_for: Compile) -> None:
    [report] = compile_for("broken.py::spilling", "h100", dtype="float32")
    assert (report.spill_bytes or 0) > 0
    assert report.instructions["local_memory"] > 0
    assert any(text.startswith("spills") for text in report.warnings)


@pytest.mark.parametrize(
    ("entry", "kernel", "message", "line"),
    [
        ("wrong_shapes", "wrong_shapes_kernel", "64.*128", "x = tl.load(x_ptr + index) +"),
        ("unknown_name", "unknown_name_kernel", "undefined_value", "tl.store(x_ptr + index"),
        ("wrong_type", "wrong_type_kernel", "pointer", "return x_ptr * 2"),
    ],
)
def test_a_kernel_that_does_not_compile_names_its_line(
    compile_for: Compile, entry: str, kernel: str, message: str, line: str
) -> None:
    with pytest.raises(CompileFailure, match=message) as failure:
        compile_for(f"broken.py::{entry}", "h100", dtype="float32")
    assert failure.value.kernel == kernel
    assert line in failure.value.log
    assert len(failure.value.log.splitlines()) <= 12


def test_the_line_of_an_error_is_the_line_of_the_file(compile_for: Compile) -> None:
    text = (KERNELS / "broken.py").read_text().splitlines()
    number = next(n for n, line in enumerate(text, 1) if "2 * BLOCK" in line)
    with pytest.raises(CompileFailure, match=rf"broken\.py:{number}: x = tl\.load"):
        compile_for("broken.py::wrong_shapes", "h100", dtype="float32")


def test_an_error_of_the_host_function_names_no_kernel(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match="ValueError: x has too few columns") as failure:
        compile_for("broken.py::refused", "h100")
    assert failure.value.kernel == ""
    assert "broken.py" in failure.value.log


def test_a_grid_that_cannot_be_launched_is_a_failure(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match="at most 65535 in y"):
        compile_for("broken.py::tall_grid", "h100", dtype="float32")


def test_a_block_of_too_many_threads_is_a_failure(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match="4096 threads per block, mi300x allows 1024"):
        compile_for("broken.py::crowded", "mi300x", dtype="float32")


def test_an_error_of_the_assembler_is_said_once(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match="bogus") as failure:
        compile_for("broken.py::unknown_instruction", "h100", dtype="float32")
    assert failure.value.log.count("bogus") == 1


def test_host_code_cannot_read_data(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match=r"broken\.py:\d+: return x\[: int"):
        compile_for("broken.py::reads_data", "h100", dtype="float32")


@pytest.mark.parametrize("entry", ["host_copy", "device_copy"])
def test_descriptors_become_bulk_copies(compile_for: Compile, entry: str) -> None:
    [report] = compile_for(f"descriptors.py::{entry}", "h200")
    assert report.instructions["tma_load"] == 1
    assert report.instructions["tma_store"] == 1


def test_a_gluon_kernel_compiles(compile_for: Compile) -> None:
    [report] = compile_for("in_gluon.py::double", "h100", dtype="float32")
    assert report.instructions["global_load"] >= 1
    assert report.num_warps == 4


@pytest.mark.parametrize("target", ["a100", "mi355x"])
def test_host_code_sees_the_target(kernels: SourceTree, target: str) -> None:
    chip = find_target(target)
    grids: list[tuple[int, ...]] = []
    with recording(chip, lambda launch: grids.append(launch.grid)):
        x = torch.empty(64, 64, device="cuda")
        kernels.function("matmul.py::one_block_per_multiprocessor")(x)
        assert x.device == torch.device("cuda", 0)
        assert torch.cuda.get_device_name() == chip.device_names[0]
        assert torch.cuda.get_device_properties(x.device).L2_cache_size == chip.l2_bytes
    assert grids == [(chip.multiprocessors,)] * 2
    assert x.device == torch.device("meta")


def test_everything_is_as_it_was_afterwards(compile_for: Compile) -> None:
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    def state() -> list[Any]:
        names = ("get_device_properties", "current_device", "device", "is_available")
        return [
            triton.runtime.driver._active,
            JITFunction.run,
            Autotuner.run,
            triton.knobs.nvidia.dump_ptxas_log,
            dict(os.environ),
            os.fstat(2).st_ino,
            torch.empty(1, device="meta").is_cuda,
            *(getattr(torch.cuda, name) for name in names),
        ]

    before = state()
    compile_for("matmul.py::tuned_double", "h100")
    with pytest.raises(CompileFailure):
        compile_for("broken.py::unknown_name", "h100")
    assert state() == before


def test_the_second_reading_comes_from_the_cache(compile_for: Compile) -> None:
    first = compile_for("matmul.py::matmul", "h100", inputs="ab")
    again = compile_for("matmul.py::matmul", "h100", inputs="ab")
    assert [r.model_copy(update={"compile_seconds": 0.0}) for r in first] == [
        r.model_copy(update={"compile_seconds": 0.0}) for r in again
    ]
    assert again[0].compile_seconds < 0.1


def test_an_autotuner_without_a_configuration_that_fits_fails(compile_for: Compile) -> None:
    with pytest.raises(CompileFailure, match="out of shared memory"):
        compile_for("matmul.py::tuned_matmul", "rtx4090", dtype="float32", inputs="ab")


def test_a_process_that_interprets_kernels_is_refused(compile_for: Compile) -> None:
    with triton.knobs.runtime.scope():
        triton.knobs.runtime.interpret = True
        with pytest.raises(WorkerError, match="interpreted"):
            compile_for("matmul.py::tuned_double", "h100")


def test_a_target_without_a_compiler_is_refused(compile_for: Compile) -> None:
    with pytest.raises(Unsatisfiable, match="cannot compile for cpu"):
        compile_for("matmul.py::tuned_double", "cpu")


def test_inputs_have_the_shapes_dtypes_and_layouts_of_the_workload() -> None:
    given = {"x": {"type": "random", "layout": "padded"}}
    tensors = meta_inputs(definition("x", "w"), workload("float32", inputs=given))
    assert list(tensors) == ["x", "w"]
    assert tensors["x"].stride() == (528, 1)
    assert tensors["w"].stride() == (512, 1)
    assert {(tensor.dtype, tensor.device.type) for tensor in tensors.values()} == {
        (torch.float32, "meta")
    }
