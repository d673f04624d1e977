"""What the files that people have hold beside the plain form: keywords, groups, dropout, stored inputs, several files."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel_skills.executor.errors import InvalidPackage, UsageError
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.problem_batch import Judges, JudgesOptions
from kernel_skills.executor.problem_judge import Verdict
from kernel_skills.executor.targets import find_target

KERNEL = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x, w, b, y, n, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    v = tl.load(x + at, mask=mask).to(tl.float32)
    v = v * tl.load(w + at % cols, mask=mask).to(tl.float32) + tl.load(b + at % cols, mask=mask).to(tl.float32)
    tl.store(y + at, v.to(y.dtype.element_ty), mask=mask)


def affine(x, w, b):
    x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    affine_kernel[(triton.cdiv(n, 64),)](x, w, b, y, n, x.shape[-1], BLOCK=64)
    return y


"""


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with Judges(find_target("h100"), JudgesOptions(timeout_s=60)) as made:
        yield made


def judged(judges: Judges, solution: Path, problem: Path, **options: Any) -> Verdict:
    judges.load(problem, {}, **options)
    judges.admit()
    return judges.finish(judges.request(solution), Judgement())


@pytest.fixture
def module_verdict(judges: Judges, tmp_path: Path) -> Any:
    """Judge `class ModelNew` against `class Model`, each given by its body."""

    def run(model: str, new: str, **options: Any) -> Verdict:
        (tmp_path / "model.py").write_text(f"import torch\nimport torch.nn as nn\n\n\n{model}")
        (tmp_path / "new.py").write_text(KERNEL + new)
        return judged(judges, tmp_path / "new.py", tmp_path / "model.py", **options)

    return run


AFFINE = """\
class Model(nn.Module):
    def __init__(self, features, *, scale=1.0):
        super().__init__()
        self.norm = nn.Linear(1, features)
        self.scale = scale

    def forward(self, x):
        return x * self.norm.weight.view(-1) * self.scale + self.norm.bias


def get_inputs():
    return [torch.randn(4, 12)]


def get_init_inputs():
    return [[12], {"scale": 1.0}]
"""

AFFINE_NEW = """\
class ModelNew(nn.Module):
    def __init__(self, features, *, scale=1.0):
        super().__init__()
        self.norm = nn.Linear(1, features)

    def forward(self, x):
        return affine(x, self.norm.weight, self.norm.bias)
"""


def test_constructors_take_keywords_and_submodules_share_names(module_verdict: Any) -> None:
    verdict = module_verdict(AFFINE, AFFINE_NEW)
    assert verdict.accepted, verdict.log


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_precision_casts_inputs_and_parameters(module_verdict: Any, judges: Judges, precision: str, dtype: str) -> None:  # fmt: skip
    verdict = module_verdict(AFFINE, AFFINE_NEW, precision=precision)
    assert verdict.accepted, verdict.log
    definition = judges.problem.task.definition
    assert {spec.dtype for spec in definition.tensor_inputs.values()} == {dtype}
    assert definition.outputs["output"].dtype == dtype


def test_a_tied_parameter_is_one_input(module_verdict: Any, judges: Judges) -> None:
    model = AFFINE.replace(
        "        self.scale = scale\n",
        "        self.scale = scale\n        self.again = nn.Linear(1, features)\n"
        "        self.again.weight = self.norm.weight\n",
    ).replace("self.norm.weight.view", "self.again.weight.view")
    verdict = module_verdict(model, AFFINE_NEW)
    assert verdict.accepted, verdict.log
    names = set(judges.problem.task.definition.tensor_inputs)
    assert names == {"state.norm.weight", "state.norm.bias", "state.again.bias", "x"}


GROUPS = """\
class Model(nn.Module):
    def forward(self, pair, times, flag, nothing, shape):
        y = pair[0] * pair[1]["w"] + pair[1]["b"]
        if flag:
            y = y * times
        return {"y": y.view(*shape), "none": nothing, "most": y.argmax(-1)}


def get_inputs():
    return [[torch.randn(4, 12), {"w": torch.randn(12), "b": torch.randn(12)}], 3, False, None, (2, 24)]
"""

GROUPS_NEW = """\
@triton.jit
def most_kernel(y, out, cols, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(y + row * cols + col, mask=col < cols, other=-float("inf"))
    tl.store(out + row, tl.argmax(v, 0).to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, pair, times, flag, nothing, shape):
        y = affine(pair[0], pair[1]["w"], pair[1]["b"])
        out = torch.empty(y.shape[0], dtype=torch.int64, device=y.device)
        most_kernel[(y.shape[0],)](y, out, y.shape[1], BLOCK=16)
        return {"y": y.view(*shape), "none": nothing, "most": out}
"""


def test_lists_dictionaries_and_none_are_taken_apart(module_verdict: Any, judges: Judges) -> None:
    verdict = module_verdict(GROUPS, GROUPS_NEW)
    assert verdict.accepted, verdict.log
    definition = judges.problem.task.definition
    assert list(definition.tensor_inputs) == ["pair.0", "pair.1", "pair.2"]
    assert {name: spec.default for name, spec in definition.scalar_inputs.items() if name != "parameter_seed"} == {"times": 3, "flag": False}  # fmt: skip
    assert [spec.dtype for spec in definition.outputs.values()] == ["float32", "int64"]


def test_a_wrong_index_fails(module_verdict: Any) -> None:
    verdict = module_verdict(GROUPS, GROUPS_NEW.replace("tl.argmax(v, 0)", "tl.argmin(v, 0)"))
    assert verdict.outcome == "INCORRECT_NUMERICAL"


DROPOUT = AFFINE.replace("self.scale = scale", "self.drop = nn.Dropout(0.5)").replace(
    "return x *", "return self.drop(x) *"
).replace(" * self.scale", "")  # fmt: skip


def test_dropout_is_judged_in_evaluation_mode_and_said(module_verdict: Any) -> None:
    verdict = module_verdict(DROPOUT, AFFINE_NEW)
    assert verdict.accepted, verdict.log
    assert any(check.startswith("training mode") for check in verdict.checks_not_run)


@pytest.mark.parametrize(
    "text",
    [
        AFFINE.replace("return x *", "return torch.rand_like(x) + x *"),
        "def reference(x):\n    return x + torch.rand_like(x)\n\n\ndef make_inputs(seed):\n    return (torch.randn(64),)\n",
    ],
    ids=["Model", "reference"],
)
def test_a_reference_that_draws_numbers_is_refused(judges: Judges, tmp_path: Path, text: str) -> None:  # fmt: skip
    (tmp_path / "model.py").write_text(f"import torch\nimport torch.nn as nn\n\n\n{text}")
    with pytest.raises(InvalidPackage, match="draws random numbers"):
        judges.load(tmp_path / "model.py", {})


def test_a_normalisation_in_training_mode_changes_its_own_buffers_only(module_verdict: Any) -> None:  # fmt: skip
    model = """\
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("offset", torch.randn(features), persistent=False)

    def forward(self, x):
        return self.norm(x) + self.offset


def get_inputs():
    return [torch.randn(8, 12)]


def get_init_inputs():
    return [12]
"""
    new = """\
@triton.jit
def norm_kernel(x, w, b, o, y, rows, cols, eps, BLOCK: tl.constexpr):
    col, row = tl.program_id(0), tl.arange(0, BLOCK)
    mask = row < rows
    v = tl.load(x + row * cols + col, mask=mask, other=0.0)
    centred = tl.where(mask, v - tl.sum(v, 0) / rows, 0.0)
    v = centred / tl.sqrt(tl.sum(centred * centred, 0) / rows + eps)
    v = v * tl.load(w + col) + tl.load(b + col) + tl.load(o + col)
    tl.store(y + row * cols + col, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.BatchNorm1d(features)
        self.register_buffer("offset", torch.randn(features), persistent=False)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = self.norm
        norm_kernel[(x.shape[1],)](x, n.weight, n.bias, self.offset, y, x.shape[0], x.shape[1], n.eps, BLOCK=8)
        return y
"""
    verdict = module_verdict(model, new)
    assert verdict.accepted, verdict.log


def test_options_of_another_form_are_refused(judges: Judges, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("def reference(x): return x\ndef make_inputs(seed): return ()\n")
    with pytest.raises(UsageError, match="--precision"):
        judges.load(tmp_path / "p.py", {}, precision="fp16")
    with pytest.raises(UsageError, match="--workloads"):
        judges.load(tmp_path / "p.py", {}, workloads=tmp_path / "w.jsonl")


# --- FlashInfer-Bench -------------------------------------------------------------------------

GATHER: dict[str, Any] = {
    "name": "gather_rows",
    "op_type": "gather",
    "axes": {"pages": {"type": "var"}, "taken": {"type": "var"}, "dim": {"type": "const", "value": 16}},
    "inputs": {
        "table": {"shape": ["pages", "dim"], "dtype": "float32"},
        "indices": {"shape": ["taken"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"rows": {"shape": ["taken", "dim"], "dtype": "float32"}},
    "reference": "def run(table, indices, scale):\n    return table[indices.long()] * scale\n",
}  # fmt: skip

MAIN = """\
import torch
from .kernel import gather_kernel


def run(table, indices, scale, rows):
    gather_kernel[(indices.shape[0],)](table, indices, rows, scale, DIM=table.shape[1])
"""

PART = """\
import triton
import triton.language as tl


@triton.jit
def gather_kernel(table, indices, rows, scale, DIM: tl.constexpr):
    at = tl.program_id(0)
    col = tl.arange(0, DIM)
    page = tl.load(indices + at).to(tl.int64)
    tl.store(rows + at * DIM + col, tl.load(table + page * DIM + col) * scale)
"""


def write_safetensors(path: Path, key: str, values: list[int]) -> None:
    data = struct.pack(f"<{len(values)}i", *values)
    described = {"dtype": "I32", "shape": [len(values)], "data_offsets": [0, len(data)]}
    header = json.dumps({"__metadata__": {"by": "test"}, key: described}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A dataset with one Definition, two workloads and a Solution of two files that writes into its destination."""
    definition = tmp_path / "definitions" / "gather" / "gather_rows.json"
    definition.parent.mkdir(parents=True)
    definition.write_text(json.dumps(GATHER))
    lines = []
    for number, pages in enumerate((5, 9)):
        write_safetensors(tmp_path / "blob" / f"w{number}.safetensors", "idx", [pages - 1, 0, 2])
        stored = {
            "type": "safetensors",
            "path": f"./blob/w{number}.safetensors",
            "tensor_key": "idx",
        }
        inputs = {
            "table": {"type": "random"},
            "indices": stored,
            "scale": {"type": "scalar", "value": 0.5 + number},
        }
        workload = {"uuid": f"u{number}", "axes": {"pages": pages, "taken": 3}, "inputs": inputs}
        lines.append(
            json.dumps(
                {
                    "definition": "gather_rows",
                    "workload": workload,
                    "solution": None,
                    "evaluation": None,
                }
            )
        )
    workloads = tmp_path / "workloads" / "gather" / "gather_rows.jsonl"
    workloads.parent.mkdir(parents=True)
    workloads.write_text("\n".join(lines) + "\n")
    solution = {
        "name": "two-files",
        "definition": "gather_rows",
        "author": "a",
        "spec": {
            "language": "triton",
            "target_hardware": ["H100"],
            "entry_point": "main.py::run",
            "dependencies": [],
        },
        "sources": [{"path": "main.py", "content": MAIN}, {"path": "kernel.py", "content": PART}],
    }
    (tmp_path / "solution.json").write_text(json.dumps(solution))
    return tmp_path  # fmt: skip


def test_a_datasets_own_workloads_are_taken(judges: Judges, dataset: Path) -> None:
    definition = dataset / "definitions" / "gather" / "gather_rows.json"
    verdict = judged(judges, dataset / "solution.json", definition)
    assert verdict.accepted, verdict.log
    assert [item.workload.name for item in verdict.workloads] == [
        "workload-0",
        "workload-1",
        "measured",
    ]
    assert judges.problem.workloads[2].axes == {"pages": 9, "taken": 3}


def test_stored_values_reach_the_kernel(judges: Judges, dataset: Path) -> None:
    text = (dataset / "solution.json").read_text()
    (dataset / "wrong.json").write_text(text.replace("indices + at)", "indices + 0 * at)"))
    definition = dataset / "definitions" / "gather" / "gather_rows.json"
    assert judged(judges, dataset / "wrong.json", definition).outcome == "INCORRECT_NUMERICAL"


def test_indices_without_workloads_are_refused_with_the_mend(judges: Judges, tmp_path: Path) -> None:  # fmt: skip
    (tmp_path / "gather.json").write_text(json.dumps(GATHER))
    for axes in ({}, {"pages": 4, "taken": 2}):
        with pytest.raises(InvalidPackage, match=r"'indices' holds int32.*--workloads"):
            judges.load(tmp_path / "gather.json", axes)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"taken": 3', '"taken": 4', "stored as int32 (3,); expected int32 (4,)"),
        ('"idx"', '"other"', "holds no tensor 'other'; known: idx"),
        ("w1.safetensors", "w7.safetensors", "is not found"),
        ('"type": "scalar"', '"type": "sparse"', "of the type 'sparse'"),
        ('"pages": 9, ', "", "has the axes ['taken']"),
        ('{"definition"', '{definition"', "no JSON object"),
        ("gather_rows", "other_rows", "holds no workload of gather_rows"),
    ],
)  # fmt: skip
def test_a_workload_that_does_not_fit_names_its_line(judges: Judges, dataset: Path, old: str, new: str, reason: str) -> None:  # fmt: skip
    file = dataset / "workloads" / "gather" / "gather_rows.jsonl"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(InvalidPackage) as caught:
        judges.load(dataset / "definitions" / "gather" / "gather_rows.json", {})
    assert reason in str(caught.value)
    assert str(file) in str(caught.value)
