"""`new` and `validate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.host_function import read_host_function

from .conftest import Skills

ADD = '''"""Vector addition with its benchmark, as such files are."""
import torch
import triton
import triton.language as tl
import matplotlib.pyplot as plt

# elements in one program
BLOCK = 1024


@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(output_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


def add(x: torch.Tensor, y: torch.Tensor):
    output = torch.empty_like(x)
    n_elements = output.numel()
    add_kernel[(triton.cdiv(n_elements, BLOCK),)](x, y, output, n_elements, BLOCK_SIZE=BLOCK)
    return output


def torch_add(x, y):
    return x + y


x = torch.rand(10)
print(add(x, x))
plt.plot([1])
'''

NORM = """import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x_ptr, w_ptr, y_ptr, mean_ptr, stride, cols, eps, BLOCK: tl.constexpr):
    pass


def norm(eps, x, weight, bias: torch.Tensor, shift: torch.Tensor | None = None, WARPS: int | None = None):
    assert x.ndim == 2
    rows, cols = x.shape
    assert weight.shape == (cols,)
    y = torch.empty_like(x)
    mean = torch.empty((rows,), dtype=torch.float32, device=x.device)
    norm_kernel[(rows,)](x, weight, y, mean, x.stride(0), cols, eps, BLOCK=1024)
    return y, mean
"""

MATMUL = """import torch, triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK_M": 128})], key=["M"])
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr):
    pass


def matmul(a, b, activation=""):
    assert a.shape[1] == b.shape[0], "inner sizes differ"
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    matmul_kernel[lambda META: (triton.cdiv(M, META["BLOCK_M"]),)](a, b, c, M, N, K)
    return c
"""

GATHER = """import torch
import triton
import triton.language as tl


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, width, BLOCK: tl.constexpr):
    pass


def gather(table, indices, *, scale: float):
    count = indices.numel()
    vocab, width = table.shape
    out = torch.empty(count, width, device=table.device, dtype=table.dtype)
    gather_kernel[(count,)](table, indices, out, width, BLOCK=128)
    return out
"""


def test_new_from_nothing_passes_validate(skills: Skills, apart: Path) -> None:
    made = skills("new", "my-kernel", "--dir", "skills")
    assert made.code == 0
    assert skills("validate", "skills/my-kernel").out == f"{Path('skills/my-kernel')}: ok\n"
    purposes = {workload.purpose for workload in find_skill("my-kernel").manifest.workload}
    assert purposes == {"smoke", "edge", "bench"}
    assert (apart / "skills/my-kernel/references/design.md").is_file()


@pytest.mark.parametrize("name", ["4bit-add", "import", "torch", "a"])
def test_new_takes_every_valid_name(skills: Skills, name: str) -> None:
    assert skills("new", name, "--dir", "skills").code == 0
    assert skills("validate", f"skills/{name}").code == 0


@pytest.mark.parametrize("name", ["My-Kernel", "a--b", "-x", "../up", "a b", "x" * 65])
def test_new_refuses_a_malformed_name(skills: Skills, apart: Path, name: str) -> None:
    assert skills("new", "--dir", "skills", "--", name).code == 2
    assert not (apart / "skills").exists()


def test_new_overwrites_nothing(skills: Skills, apart: Path) -> None:
    skills("new", "twice", "--dir", "skills")
    (apart / "skills/twice/mine.md").write_text("kept")
    assert skills("new", "twice", "--dir", "skills").code == 2
    assert (apart / "skills/twice/mine.md").read_text() == "kept"


@pytest.mark.parametrize(
    "source", [ADD, NORM, MATMUL, GATHER], ids=["add", "norm", "matmul", "gather"]
)
def test_new_around_a_kernel_passes_validate(skills: Skills, apart: Path, source: str) -> None:
    (apart / "given.py").write_text(source)
    made = json.loads(
        skills("new", "given-kernel", "--from", "given.py", "--dir", "skills", "--json").out
    )
    assert any("guessed" in note for note in made["notes"])
    assert skills("validate", "skills/given-kernel").out.endswith(": ok\n")


def _shapes(path: Path, source: str) -> dict[str, tuple[tuple[str, ...], str]]:
    path.write_text(source)
    host = read_host_function(path)
    return {tensor.name: (tensor.shape, tensor.dtype) for tensor in (*host.inputs, *host.outputs)}


def test_shapes_are_read_from_the_function(apart: Path) -> None:
    assert _shapes(apart / "a.py", ADD) == {
        "x": (("size",), "T"), "y": (("size",), "T"), "output": (("size",), "T"),
    }  # fmt: skip
    assert _shapes(apart / "n.py", NORM) == {
        "x": (("rows", "cols"), "T"), "weight": (("cols",), "T"), "bias": (("cols",), "T"),
        "y": (("rows", "cols"), "T"), "mean": (("rows",), "float32"),
    }  # fmt: skip
    assert _shapes(apart / "m.py", MATMUL) == {
        "a": (("m", "k"), "T"), "b": (("k", "n"), "T"), "c": (("m", "n"), "float16"),
    }  # fmt: skip
    assert _shapes(apart / "g.py", GATHER) == {
        "table": (("vocab", "width"), "T"), "indices": (("count",), "int64"), "out": (("count", "width"), "T"),
    }  # fmt: skip


def test_a_benchmark_below_the_kernel_stays_behind(skills: Skills, apart: Path) -> None:
    (apart / "given.py").write_text(ADD)
    skills("new", "given-kernel", "--from", "given.py", "--dir", "skills")
    kept = (apart / "skills/given-kernel/kernels/original.py").read_text()
    assert "matplotlib" not in kept
    assert "print" not in kept
    assert "# elements in one program\nBLOCK = 1024\n" in kept
    reference = (apart / "skills/given-kernel/reference.py").read_text()
    assert "def add(x, y):\n    return x + y" in reference


def test_parameters_out_of_order_get_an_adapter(skills: Skills, apart: Path) -> None:
    (apart / "given.py").write_text(NORM)
    skills("new", "given-kernel", "--from", "given.py", "--dir", "skills")
    adapter = (apart / "skills/given-kernel/kernels/portable.py").read_text()
    assert "return norm(eps=eps, x=x, weight=weight, bias=bias)" in adapter


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("def broken(:\n", 3, "given.py:1"),
        ("import torch\n\ndef f(x):\n    return x\n", 3, "no @triton.jit kernel"),
        (ADD.replace("    return output\n", ""), 3, "returns no tensor"),
        (ADD.replace("add_kernel[", "other[") + "\n", 3, "no function launches"),
        (None, 2, "cannot read"),
    ],
    ids=["syntax", "no-kernel", "no-result", "no-launch", "no-file"],
)
def test_a_file_without_an_operator_is_one_error(
    skills: Skills, apart: Path, source: str | None, code: int, words: str
) -> None:
    if source is not None:
        (apart / "given.py").write_text(source)
    shown = skills("new", "given-kernel", "--from", "given.py", "--dir", "skills")
    assert shown.code == code
    assert words in shown.err
    assert shown.err.count("\n") == 1
    assert not (apart / "skills").exists()


def test_validate_gives_a_line_for_each_problem_and_exits_3(skills: Skills, apart: Path) -> None:
    skills("new", "a-skill", "--dir", "skills")
    manifest = apart / "skills/a-skill/skill.toml"
    text = manifest.read_text().replace("portable.py::a_skill", "missing.py::a_skill")
    manifest.write_text(text)
    shown = skills("validate", "skills/a-skill")
    assert shown.code == 3
    line = text[: text.index("entry =")].count("\n") + 1
    assert any(
        problem.startswith(f"skills/a-skill/skill.toml:{line}: ")
        for problem in shown.out.splitlines()
    )
    parsed = json.loads(skills("validate", "skills/a-skill", "--json").out)
    assert parsed["valid"] is False


def test_validate_takes_a_folder_of_skills_and_checks_each(skills: Skills, apart: Path) -> None:
    skills("new", "good-one", "--dir", "skills")
    skills("new", "bad-one", "--dir", "skills")
    (apart / "skills/bad-one/skill.toml").write_text("level = = 2\n")
    shown = skills("validate", "skills")
    assert shown.code == 3
    assert "skills/good-one: ok" in shown.out
    assert "skills/bad-one/skill.toml:1: manifest: " in shown.out


def test_validate_of_nothing_exits_5(skills: Skills) -> None:
    assert skills("validate", "nowhere").code == 5
