"""`load_kernel`: binding, choice, fallback, differentiation and compilation of a small package and of the real skills."""

from __future__ import annotations

import copy
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_skills.executor.errors import InvalidPackage, NotFound, UsageError
from kernel_skills.registry import load_kernel
from kernel_skills.registry.kernel import BadCall, Kernel, OutsideEnvelope, ReferenceFallback

ROOT = Path(__file__).parents[2]

# most tests here run on CPU tensors, which is a miss; the tests of the warning ask for it themselves
pytestmark = pytest.mark.filterwarnings("ignore::kernel_skills.registry.kernel.ReferenceFallback")

MANIFEST = """
schema_version = 1
name = "row-norm"
version = "1.2.0"
kind = "operator"
summary = "Rows divided by their root mean square."

[[definition]]
name = "row-norm"
op_type = "rmsnorm"
dtypes = { T = ["float32", "float16", "bfloat16"] }
constraints = ["cols % heads == 0"]
reference = "reference.py::row_norm"

[definition.axes]
rows = { type = "var", collapses = true }
cols = { type = "var" }

[definition.inputs]
x = { shape = ["rows", "cols"], dtype = "T" }
weight = { shape = ["cols"], dtype = "T" }
eps = { dtype = "float32", default = 1e-6 }
gain = { dtype = "float32", default = "1 / sqrt(cols)" }
heads = { dtype = "int64", default = 1 }
raised = { dtype = "bool", default = false }
mode = { dtype = "string", default = "rms" }

[definition.outputs]
y = { shape = ["rows", "cols"], dtype = "T" }
scale = { shape = ["rows"], dtype = "float32", auxiliary = true }

[definition.gradient]
definition = "row-norm-backward"
inputs = { dy = "grad:y", x = "x", weight = "weight", scale = "scale", gain = "gain" }
grads = { x = "dx", weight = "dweight" }

[[definition]]
name = "row-norm-backward"
op_type = "rmsnorm"
dtypes = { T = ["float32", "float16", "bfloat16"] }
reference = "reference.py::row_norm_backward"

[definition.axes]
rows = { type = "var", collapses = true }
cols = { type = "var" }

[definition.inputs]
dy = { shape = ["rows", "cols"], dtype = "T" }
x = { shape = ["rows", "cols"], dtype = "T" }
weight = { shape = ["cols"], dtype = "T" }
scale = { shape = ["rows"], dtype = "float32" }
gain = { dtype = "float32", default = "1 / sqrt(cols)" }

[definition.outputs]
dx = { shape = ["rows", "cols"], dtype = "T" }
dweight = { shape = ["cols"], dtype = "T" }

[[definition]]
name = "row-peak"
op_type = "reduction"
dtypes = { T = ["float32"] }
reference = "reference.py::row_peak"

[definition.axes]
rows = { type = "var", collapses = true }
cols = { type = "const", value = 8 }

[definition.inputs]
x = { shape = ["rows", "cols"], dtype = "T" }

[definition.outputs]
peak = { shape = ["rows"], dtype = "T" }

[[variant]]
id = "rows"
definition = "row-norm"
entry = "kernels/rows.py::row_norm"
archs = ["any"]
constraints = ["cols <= 64", "mode == 'rms'"]
parameters = { WARPS = [1, 2] }

[[variant]]
id = "rows"
definition = "row-norm-backward"
entry = "kernels/rows.py::row_norm_backward"
archs = ["any"]
constraints = ["cols <= 64"]

[[variant]]
id = "rows"
definition = "row-peak"
entry = "kernels/rows.py::row_peak"
archs = ["any"]
"""

REFERENCE = """
import torch


def row_norm(x, weight, *, eps, gain, heads, raised, mode):
    wide = x.float()
    scale = gain * torch.rsqrt((wide * wide).mean(-1) + eps)
    y = wide * scale[:, None] * weight.float() + (1.0 if raised else 0.0)
    return y.to(x.dtype), scale


def row_norm_backward(dy, x, weight, scale, *, gain):
    part = dy.float() * weight.float()
    plain = scale / gain
    inner = (part * x.float()).mean(-1, keepdim=True)
    dx = gain * plain[:, None] * (part - x.float() * plain[:, None] ** 2 * inner)
    dweight = (dy.float() * x.float() * scale[:, None]).sum(0)
    return dx.to(x.dtype), dweight.to(weight.dtype)


def row_peak(x):
    return x.amax(-1)
"""

KERNELS = """
import torch
import triton
import triton.language as tl

from .blocks import block_of


def row_norm(x, weight, *, eps, gain, heads, raised, mode, WARPS=None):
    y, scale = torch.empty_like(x), torch.empty(x.shape[0], device=x.device, dtype=torch.float32)
    block = block_of(x)
    _forward[(x.shape[0],)](
        x, weight, y, scale, x.stride(0), y.stride(0), x.shape[1], eps, gain, raised, block, num_warps=WARPS or 1
    )
    return y, scale


def row_norm_backward(dy, x, weight, scale, *, gain):
    dx, partial = torch.empty_like(dy), torch.empty(1, x.shape[1], device=x.device, dtype=weight.dtype)
    _backward[(1,)](dy, x, weight, scale, dx, partial, x.shape[0], x.shape[1], gain, block_of(x))
    return dx, partial[0]


def row_peak(x):
    peak = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
    _peak[(x.shape[0],)](x, peak, x.shape[1], block_of(x))
    return peak


@triton.jit
def _forward(x, weight, y, scale, x_stride, y_stride, cols, eps, gain, RAISED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    mask = col < cols
    value = tl.load(x + row * x_stride + col, mask=mask, other=0.0).to(tl.float32)
    by = gain * tl.rsqrt(tl.sum(value * value) / cols + eps)
    out = value * by * tl.load(weight + col, mask=mask, other=0.0).to(tl.float32)
    if RAISED:
        out += 1.0
    tl.store(y + row * y_stride + col, out.to(y.dtype.element_ty), mask=mask)
    tl.store(scale + row, by)


@triton.jit
def _backward(dy, x, weight, scale, dx, dweight, ROWS: tl.constexpr, cols, gain, BLOCK: tl.constexpr):
    col = tl.arange(0, BLOCK)
    mask = col < cols
    w = tl.load(weight + col, mask=mask, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for row in range(ROWS):
        value = tl.load(x + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        grad = tl.load(dy + row * cols + col, mask=mask, other=0.0).to(tl.float32)
        by = tl.load(scale + row)
        plain = by / gain
        inner = tl.sum(grad * w * value) / cols
        out = by * (grad * w - value * plain * plain * inner)
        tl.store(dx + row * cols + col, out.to(dx.dtype.element_ty), mask=mask)
        total += grad * value * by
    tl.store(dweight + col, total.to(dweight.dtype.element_ty), mask=mask)


@triton.jit
def _peak(x, peak, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + col, mask=col < cols, other=-float("inf"))
    tl.store(peak + row, tl.max(value))
"""

NOTES = """---
name: row-norm
description: Rows divided by their root mean square. Use for tests.
license: Apache-2.0
---
Divide.
"""


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    write_package(tmp_path / "packages")
    return tmp_path / "packages"


def write_package(folder: Path, manifest: str = MANIFEST) -> None:
    package = folder / "row-norm"
    (package / "kernels").mkdir(parents=True)
    (package / "skill.toml").write_text(manifest)
    (package / "SKILL.md").write_text(NOTES)
    (package / "reference.py").write_text(REFERENCE)
    (package / "kernels" / "rows.py").write_text(KERNELS)
    (package / "kernels" / "blocks.py").write_text(
        "import triton\n\n\ndef block_of(x):\n    return triton.next_power_of_2(x.shape[1])\n"
    )


def norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, gain: float | None = None
) -> torch.Tensor:
    gain = x.shape[-1] ** -0.5 if gain is None else gain
    wide = x.float()
    scale = gain * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def load(skills: Path, definition: str = "row-norm", **options: Any) -> Kernel:
    return load_kernel("row-norm", definition=definition, skills_dir=skills, **options)


# --- the call ---------------------------------------------------------------------------------


def test_importing_the_registry_does_not_import_torch() -> None:
    code = "import sys, kernel_skills.registry; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env=environment())


def test_takes_arguments_by_position_or_name_and_fills_defaults(skills: Path) -> None:
    kernel = load(skills)
    x, weight = torch.randn(3, 8), torch.randn(8)
    torch.testing.assert_close(kernel(x, weight), norm(x, weight))
    torch.testing.assert_close(kernel(weight=weight, x=x, eps=0.5), norm(x, weight, eps=0.5))
    torch.testing.assert_close(kernel(x, weight, 0.5, 2), norm(x, weight, eps=0.5, gain=2.0))
    torch.testing.assert_close(kernel(x, weight, raised=True), norm(x, weight) + 1)


def test_a_number_that_no_expression_names_may_change_without_a_new_plan(skills: Path) -> None:
    kernel = load(skills)
    x, weight = torch.randn(3, 8), torch.randn(8)
    kernel(x, weight, eps=0.1)
    before = len(kernel._dispatcher._plans)
    torch.testing.assert_close(kernel(x, weight, eps=0.2), norm(x, weight, eps=0.2))
    assert len(kernel._dispatcher._plans) == before


def test_an_auxiliary_output_is_kept_from_the_caller(skills: Path) -> None:
    assert isinstance(load(skills)(torch.ones(2, 8), torch.ones(8)), torch.Tensor)


@pytest.mark.parametrize("leading", [(), (6,), (2, 3), (2, 1, 3), (0, 3)], ids=str)
def test_leading_dimensions_collapse_and_come_back(skills: Path, leading: tuple[int, ...]) -> None:
    x, weight = torch.randn(*leading, 8), torch.randn(8)
    y = load(skills)(x, weight)
    torch.testing.assert_close(y, norm(x, weight))


def test_leading_dimensions_that_are_not_adjacent_in_memory_collapse_too(skills: Path) -> None:
    x, weight = torch.randn(3, 2, 8).transpose(0, 1), torch.randn(8)
    torch.testing.assert_close(load(skills)(x, weight), norm(x, weight))


@pytest.mark.parametrize(
    ("x", "weight", "options", "text"),
    [
        ((3, 8), (7,), {}, r"row-norm: weight: axis 'cols': expected 8 \(from x\), got 7"),
        ((3, 8), (1, 8), {}, r"row-norm: weight has shape \(1, 8\), expected \(cols\)"),
        ((), (8,), {}, r"row-norm: x has shape \(\), expected \(rows, cols\)"),
        ((3, 8), (8,), {"heads": 3}, r"'cols % heads == 0' does not hold for cols=8, heads=3"),
        (
            (3, 8),
            (8,),
            {"eps": "small"},
            r"row-norm: eps: expected a value of type float, got 'small'",
        ),
    ],
    ids=["axis", "rank", "no axis at all", "constraint", "scalar"],
)
def test_arguments_that_break_the_definition_say_where(
    skills: Path, x: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text) as caught:
        load(skills)(torch.randn(x), torch.randn(weight), **options)
    assert isinstance(caught.value, BadCall)


def test_integers_where_floats_are_meant_break_the_definition(skills: Path) -> None:
    x = torch.ones(2, 8, dtype=torch.int64)
    with pytest.raises(BadCall, match="x is int64, the definition takes"):
        load(skills)(x, x[0])


def test_a_constant_axis_and_unequal_leading_dimensions_say_where(skills: Path) -> None:
    peak = load(skills, "row-peak")
    with pytest.raises(BadCall, match=r"x: axis 'cols': expected 8 \(from the definition\), got 9"):
        peak(torch.randn(2, 9))
    backward = load(skills, "row-norm-backward")
    with pytest.raises(
        BadCall,
        match=r"x: axis 'rows': expected the leading dimensions \(2, 3\) of dy, got \(3, 2\)",
    ):
        backward(torch.randn(2, 3, 8), torch.randn(3, 2, 8), torch.randn(8), torch.randn(2, 3))


def test_a_wrong_call_is_a_type_error(skills: Path) -> None:
    kernel = load(skills)
    with pytest.raises(TypeError, match="misses the argument 'weight'"):
        kernel(torch.ones(2, 8))
    with pytest.raises(TypeError, match=r"unknown or doubled arguments \['x'\]"):
        kernel(torch.ones(2, 8), torch.ones(8), x=torch.ones(2, 8))
    with pytest.raises(TypeError, match="takes 7 arguments, got 8"):
        kernel(*range(8))
    with pytest.raises(TypeError, match="weight: expected a tensor, got 3"):
        kernel(torch.ones(2, 8), 3)


def test_unknown_names_are_refused(skills: Path) -> None:
    with pytest.raises(NotFound, match="did you mean row-peak"):
        load(skills, "row-peek")
    with pytest.raises(NotFound, match="did you mean row-norm"):
        load_kernel("row-nrm", skills_dir=skills)
    with pytest.raises(UsageError, match="on_miss"):
        load(skills, on_miss="explode")


def test_an_output_axis_that_nothing_determines_is_refused(tmp_path: Path) -> None:
    manifest = MANIFEST.replace('peak = { shape = ["rows"]', 'peak = { shape = ["rows", "parts"]')
    manifest = manifest.replace(
        'cols = { type = "const", value = 8 }', 'cols = { type = "var" }\nparts = { type = "var" }'
    )
    write_package(tmp_path, manifest)
    with pytest.raises(InvalidPackage, match="output axis 'parts' is in no input"):
        load_kernel("row-norm", definition="row-peak", skills_dir=tmp_path)


def test_an_axis_of_an_output_alone_comes_from_a_constraint(tmp_path: Path) -> None:
    manifest = MANIFEST.replace('peak = { shape = ["rows"]', 'peak = { shape = ["rows", "parts"]')
    manifest = manifest.replace(
        'cols = { type = "const", value = 8 }', 'cols = { type = "var" }\nparts = { type = "var" }'
    )
    manifest = manifest.replace(
        'reference = "reference.py::row_peak"',
        'reference = "reference.py::row_peak"\nconstraints = ["parts == cols // 4"]',
    )
    write_package(tmp_path, manifest)
    reference = tmp_path / "row-norm" / "reference.py"
    reference.write_text(
        reference.read_text().replace("x.amax(-1)", "x.unflatten(1, (-1, 4)).amax(-1)")
    )
    x = torch.randn(2, 3, 8)
    peak = load(tmp_path, "row-peak")
    torch._dynamo.reset()
    for call in (peak, torch.compile(peak, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(call(x), x.reshape(2, 3, 2, 4).amax(-1))


# --- outside the envelope ---------------------------------------------------------------------


def test_a_miss_runs_the_reference_and_warns_once(skills: Path) -> None:
    kernel = load(skills)
    x, weight = torch.randn(3, 8), torch.randn(8)
    with pytest.warns(
        ReferenceFallback, match=r"row-norm@1\.2\.0: row-norm runs as the plain reference"
    ) as told:
        torch.testing.assert_close(kernel(x, weight), norm(x, weight))
    # the line that called, neither ours nor torch's
    assert {warning.filename for warning in told} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel(x, weight)
        kernel(torch.randn(5, 8), weight)
        load(skills)(x, weight)


def test_a_miss_raises_where_asked_and_says_why(skills: Path) -> None:
    kernel = load(skills, on_miss="raise")
    with pytest.raises(OutsideEnvelope, match="TRITON_INTERPRET") as caught:
        kernel(torch.randn(3, 8), torch.randn(8))
    assert caught.value.exit_code == 5
    assert caught.value.reasons


def test_dtypes_outside_the_contract_run_the_reference(skills: Path) -> None:
    kernel = load(skills)
    x, weight = torch.randn(3, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    with pytest.warns(
        ReferenceFallback, match="x is float64, the definition takes float32, float16, bfloat16"
    ):
        assert kernel(x, weight).dtype == torch.float64
    with pytest.warns(
        ReferenceFallback, match="weight is float64 where other inputs of dtype T are float32"
    ):
        assert kernel(x.float(), weight).dtype == torch.float32


def test_why_explains_without_running(skills: Path) -> None:
    kernel = load(skills)
    choice = kernel.why(torch.randn(3, 8), torch.randn(8))
    assert choice.variant is None
    assert "the reference" in str(choice)
    assert "TRITON_INTERPRET" in str(choice)


# --- differentiation and compilation, through the reference -------------------------------------


def test_differentiates_like_plain_autograd(skills: Path) -> None:
    check_gradients(load(skills))


def check_gradients(kernel: Any) -> None:
    """Compare `kernel`, which may be compiled, with plain autograd of the formula."""
    x, weight = torch.randn(2, 3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    y = kernel(x, weight, eps=1e-3)
    want = norm(x, weight, eps=1e-3)
    torch.testing.assert_close(y, want)
    dy = torch.randn_like(y)
    got = torch.autograd.grad(y, (x, weight), dy)
    torch.testing.assert_close(
        got, torch.autograd.grad(want, (x, weight), dy), rtol=1e-4, atol=1e-5
    )


no_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs g++ on a CPU")


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=no_compiler)])
def test_compiles_without_a_graph_break_forward_and_backward(skills: Path, backend: str) -> None:
    kernel = load(skills)
    torch._dynamo.reset()

    def call(x: torch.Tensor, weight: torch.Tensor, eps: float) -> Any:
        return kernel(x * 1.0, weight, eps=eps, raised=False, mode="rms")

    compiled = torch.compile(call, fullgraph=True, backend=backend, dynamic=False)
    check_gradients(compiled)
    with torch.no_grad():
        compiled(torch.randn(2, 8), torch.randn(8), 0.1)
    with torch.inference_mode():
        compiled(torch.randn(2, 8), torch.randn(8), 0.1)


def test_compiles_with_symbolic_shapes(skills: Path) -> None:
    kernel = load(skills)
    torch._dynamo.reset()
    graphs: list[Any] = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda x, w: kernel(x, w), fullgraph=True, dynamic=True, backend=count)
    for rows in (3, 5, 9):
        x, weight = torch.randn(rows, 2, 8 + rows), torch.randn(8 + rows)
        torch.testing.assert_close(compiled(x, weight), norm(x, weight))
    assert len(graphs) == 1


def test_a_definition_without_gradient_differentiates_the_reference(skills: Path) -> None:
    kernel = load(skills, "row-peak")
    x = torch.randn(2, 3, 8, requires_grad=True)
    torch._dynamo.reset()
    want = torch.autograd.grad(x.amax(-1).square().sum(), x)
    for call in (kernel, torch.compile(kernel, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(torch.autograd.grad(call(x).square().sum(), x), want)


def test_is_a_well_formed_operator(skills: Path) -> None:
    kernel = load(skills)
    x, weight = torch.randn(2, 3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    torch.library.opcheck(kernel.operator, (x, weight, 1e-6, None, 1, False, None, "reference", ""))
    torch.library.opcheck(
        kernel.operator, (x.half(), weight.half(), None, 2.0, None, True, "rms", "reference", "")
    )


def test_errors_inside_a_compiled_function_keep_their_text(skills: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(load(skills), fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"weight: axis 'cols': expected 8 \(from x\), got 7"):
        compiled(torch.randn(2, 8), torch.randn(7))
    strict = torch.compile(load(skills, on_miss="raise"), fullgraph=True, backend="aot_eager")
    with pytest.raises(OutsideEnvelope, match="TRITON_INTERPRET"):
        strict(torch.randn(2, 8), torch.randn(8))


def test_fake_tensors_and_dispatch_modes_see_an_operator(skills: Path) -> None:
    kernel = load(skills)
    with FakeTensorMode():
        y = kernel(torch.empty(2, 3, 8, dtype=torch.float16), torch.empty(8, dtype=torch.float16))
    assert (y.shape, y.dtype, y.is_contiguous()) == ((2, 3, 8), torch.float16, True)
    seen: list[Any] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():  # type: ignore[no-untyped-call]
        kernel(torch.randn(2, 8), torch.randn(8))
    assert kernel.operator in seen


def test_autocast_leaves_the_dtypes_alone(skills: Path) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert load(skills)(torch.randn(2, 8), torch.randn(8)).dtype == torch.float32


# --- the object -------------------------------------------------------------------------------


def test_lives_in_a_module_that_is_copied_and_pickled(skills: Path) -> None:
    class Normed(torch.nn.Module):
        def __init__(self, kernel: Kernel) -> None:
            super().__init__()
            self.kernel = kernel
            self.weight = torch.nn.Parameter(torch.randn(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kernel(x, self.weight)  # type: ignore[no-any-return]

    module = Normed(load(skills))
    twin = copy.deepcopy(module)
    x = torch.randn(2, 8)
    torch.testing.assert_close(twin(x), module(x))
    torch._dynamo.reset()
    torch.testing.assert_close(
        torch.compile(twin, fullgraph=True, backend="aot_eager")(x), module(x)
    )
    again = pickle.loads(pickle.dumps(module.kernel))
    assert again.digest == module.kernel.digest
    torch.testing.assert_close(again(x, module.weight), module(x))


def test_says_what_it_is(skills: Path) -> None:
    kernel = load_kernel("row-norm@^1", skills_dir=skills)
    assert (kernel.skill, kernel.version, kernel.definition) == ("row-norm", "1.2.0", "row-norm")
    assert len(kernel.digest) == 64
    assert "row-norm@1.2.0" in repr(kernel)


def test_an_edited_skill_is_imported_anew(skills: Path) -> None:
    x, weight = torch.randn(2, 8), torch.randn(8)
    first = load(skills)(x, weight)
    reference = skills / "row-norm" / "reference.py"
    reference.write_text(reference.read_text().replace("y = wide", "y = 2 * wide"))
    torch.testing.assert_close(load(skills)(x, weight), 2 * first)


def test_may_be_called_from_many_threads(skills: Path) -> None:
    kernel = load(skills)
    weight = torch.randn(8)
    wrong: list[int] = []

    def work(rows: int) -> None:
        for _ in range(20):
            x = torch.randn(rows, 8)
            if not torch.allclose(kernel(x, weight), norm(x, weight), atol=1e-5):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(1 + i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# --- Triton's interpreter, in a process of its own ----------------------------------------------


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / ".importroot"), **more}


def interpret(skills: Path, code: str) -> Any:
    """Run code where Triton interprets; `kernel`, `norm` and `check_gradients` are at hand, `answer` is returned."""
    prelude = f"""
        import json, sys, warnings
        from pathlib import Path
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        import torch
        from test_load_kernel import *
        skills = Path({str(skills)!r})
        kernel = load(skills, on_miss="raise")
        answer = None
    """
    script = textwrap.dedent(prelude) + textwrap.dedent(code) + "\nprint(json.dumps(answer))\n"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_interpreter_runs_the_kernel_eagerly_and_compiled(skills: Path) -> None:
    code = """
        check_gradients(kernel)
        def call(x, weight, eps):
            return kernel(x * 1.0, weight, eps=eps)
        check_gradients(torch.compile(call, fullgraph=True, backend="aot_eager"))
        x = torch.randn(2, 8, requires_grad=True)
        kernel(x, torch.randn(8)).sum().backward()
        torch.library.opcheck(kernel.operator, (x, torch.randn(8), None, None, None, True, None, "raise", ""))
        half = torch.randn(2, 8).half()
        torch.testing.assert_close(kernel(half, half[0]), norm(half, half[0]))
        answer = [kernel.why(x, x[0]).variant, kernel.why(x, x[0]).arch]
    """
    assert interpret(skills, code) == ["rows", "cpu"]


def test_the_interpreter_refuses_bfloat16_and_shapes_outside_the_variant(skills: Path) -> None:
    code = """
        answer = []
        for x, mode in ((torch.ones(2, 8).bfloat16(), "rms"), (torch.ones(2, 65), "rms"), (torch.ones(2, 8), "max")):
            try:
                kernel(x, x[0], mode=mode)
            except OutsideEnvelope as error:
                answer.append(str(error))
    """
    bfloat16, wide, mode = interpret(skills, code)
    assert "bfloat16" in bfloat16
    assert "cols <= 64" in wide
    assert "mode == 'rms'" in mode


def test_a_kernel_without_gradient_differentiates_the_reference_or_raises(skills: Path) -> None:
    code = """
        x = torch.randn(2, 3, 8, requires_grad=True)
        peak = load(skills, "row-peak")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            want = torch.autograd.grad(x.amax(-1).square().sum(), x)
            for call in (peak, torch.compile(peak, fullgraph=True, backend="aot_eager")):
                torch.testing.assert_close(torch.autograd.grad(call(x).square().sum(), x), want)
        answer = [str(w.message) for w in caught if issubclass(w.category, ReferenceFallback)]
        strict = load(skills, "row-peak", on_miss="raise")
        strict(x.detach())
        for call in (strict, torch.compile(strict, fullgraph=True, backend="aot_eager")):
            try:
                call(x)
            except Exception as error:
                answer.append(str(error))
    """
    warned, raised, raised_in_trace = interpret(skills, code)
    assert "no kernel computes the gradient of row-peak by x" in warned
    assert "no kernel computes the gradient of row-peak by x" in raised
    assert "no kernel computes the gradient of row-peak by x" in raised_in_trace


def test_a_second_derivative_of_a_kernel_is_refused(skills: Path) -> None:
    code = """
        x = torch.randn(2, 8, requires_grad=True)
        first, = torch.autograd.grad(kernel(x, torch.randn(8)).square().sum(), x, create_graph=True)
        try:
            first.square().sum().backward()
        except RuntimeError as error:
            answer = str(error)
    """
    assert "once_differentiable" in interpret(skills, code)


def test_tuning_parameters_reach_the_kernel(skills: Path) -> None:
    code = """
        x = torch.randn(2, 8)
        tuned = load(skills, on_miss="raise", config={"WARPS": 2})
        torch.testing.assert_close(tuned(x, x[0]), norm(x, x[0]))
        answer = [dict(tuned.why(x, x[0]).config)]
        try:
            load(skills, config={"WORPS": 2})(x, x[0])
        except BadCall as error:
            answer.append(str(error))
    """
    config, error = interpret(skills, code)
    assert config == {"WARPS": 2}
    assert "WORPS" in error and "WARPS" in error


def test_a_kernel_that_breaks_its_contract_is_named(skills: Path) -> None:
    kernels = skills / "row-norm" / "kernels" / "rows.py"
    kernels.write_text(kernels.read_text().replace("return y, scale", "return y.double(), scale"))
    code = """
        try:
            kernel(torch.ones(2, 8), torch.ones(8))
        except Exception as error:
            answer = [type(error).__name__, str(error)]
    """
    name, text = interpret(skills, code)
    assert name == "InvalidPackage"
    assert "variant rows returns y" in text


# --- the real skills, on a device -----------------------------------------------------------------

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def compiled_and_eager(call: Any) -> list[Any]:
    torch._dynamo.reset()
    return [call, torch.compile(call, fullgraph=True, dynamic=False)]


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rms_norm_on_a_device(dtype: torch.dtype) -> None:
    kernel = load_kernel("rms-norm", on_miss="raise")
    x = torch.randn(4, 33, 1024, device="cuda", dtype=dtype, requires_grad=True)
    weight = torch.randn(1024, device="cuda", dtype=dtype, requires_grad=True)
    want = torch.nn.functional.rms_norm(x, (1024,), weight, 1e-6)
    dy = torch.randn_like(want)
    want_grads = torch.autograd.grad(want, (x, weight), dy)
    for call in compiled_and_eager(lambda x, weight: kernel(x, weight, eps=1e-6)):
        y = call(x, weight)
        torch.testing.assert_close(y, want, rtol=2e-2, atol=2e-2)
        grads = torch.autograd.grad(y, (x, weight), dy)
        torch.testing.assert_close(grads[0], want_grads[0], rtol=3e-2, atol=3e-2)
        torch.testing.assert_close(grads[1], want_grads[1], rtol=3e-2, atol=0.25)


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_flash_attn_on_a_device(causal: bool) -> None:
    kernel = load_kernel("flash-attn", on_miss="raise")
    shape = (2, 4, 300, 128)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    for call in compiled_and_eager(lambda q, k, v: kernel(q, k, v, causal=causal)):
        torch.testing.assert_close(call(q, k, v), want, rtol=2e-2, atol=2e-2)


@pytest.mark.gpu
@gpu
def test_flash_attn_differentiates_on_a_device() -> None:
    kernel = load_kernel("flash-attn")
    shape = (2, 4, 256, 64)
    q, k, v = inputs = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    dout = torch.randn_like(want)
    want_grads = torch.autograd.grad(want, inputs, dout)
    for call in compiled_and_eager(lambda q, k, v: kernel(q, k, v, causal=True)):
        grads = torch.autograd.grad(call(*inputs), inputs, dout)
        torch.testing.assert_close(grads, want_grads, rtol=5e-2, atol=5e-2)


@pytest.mark.gpu
@gpu
def test_a_cpu_tensor_and_an_odd_dtype_miss_on_a_machine_with_a_device() -> None:
    kernel = load_kernel("rms-norm", on_miss="raise")
    with pytest.raises(OutsideEnvelope, match="CPU tensors"):
        kernel(torch.randn(2, 64), torch.randn(64))
    with pytest.raises(OutsideEnvelope, match="x is float64"):
        kernel(torch.randn(2, 64, device="cuda").double(), torch.randn(64, device="cuda").double())
    with pytest.raises(BadCall, match="weight is on cpu, x on cuda"):
        kernel(torch.randn(2, 64, device="cuda"), torch.randn(64))


@pytest.mark.gpu
@gpu
def test_matmul_on_a_device() -> None:
    kernel = load_kernel("matmul", on_miss="raise")
    a = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(256, 384, device="cuda", dtype=torch.bfloat16)
    for call in compiled_and_eager(lambda a, b: kernel(a, b)):
        torch.testing.assert_close(call(a, b), a @ b, rtol=2e-2, atol=2e-1)
