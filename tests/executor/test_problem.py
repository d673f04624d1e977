"""Problem files of every form, through the one judge, in real processes."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_skills.executor.errors import InvalidPackage, NotFound, UsageError
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.problem import form_of, parts, slug
from kernel_skills.executor.problem_batch import Judges, JudgesOptions, Line, read_lines
from kernel_skills.executor.problem_judge import TaskRefused, Verdict
from kernel_skills.executor.targets import find_target

EXPLOITS = Path(__file__).parents[1] / "exploits"

MODEL = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean_square = (x * x).mean(-1, keepdim=True)
        return x / torch.sqrt(mean_square + self.eps) * self.weight + self.bias


def get_inputs():
    return [torch.randn(5, 60)]


def get_init_inputs():
    return [60, 1e-6]
"""

MODEL_NEW = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, b, y, n, eps, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    mask = col < n
    v = tl.load(x + row * n + col, mask=mask, other=0.0)
    v = v / tl.sqrt(tl.sum(v * v, 0) / n + eps)
    v = v * tl.load(w + col, mask=mask) + tl.load(b + col, mask=mask)
    tl.store(y + row * n + col, v, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[1])
        norm_kernel[(x.shape[0],)](x, self.weight, self.bias, y, x.shape[1], self.eps, BLOCK=block)
        return y
"""

DEFINITION = {
    "name": "rms_n60",
    "op_type": "rmsnorm",
    "axes": {"batch": {"type": "var"}, "n": {"type": "const", "value": 60}},
    "inputs": {
        "x": {"shape": ["batch", "n"], "dtype": "bfloat16"},
        "w": {"shape": ["n"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch", "n"], "dtype": "bfloat16"}},
    "reference": (
        "import torch\n\ndef run(x, w, eps):\n    f = x.to(torch.float32)\n"
        "    y = f * torch.rsqrt((f * f).mean(-1, keepdim=True) + eps) * w.to(torch.float32)\n"
        "    return y.to(torch.bfloat16)\n"
    ),
}

RUN = """\
import torch
import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, w, y, stride, n, eps, BLOCK: tl.constexpr):
    row, col = tl.program_id(0), tl.arange(0, BLOCK)
    mask = col < n
    v = tl.load(x + row * stride + col, mask=mask, other=0.0).to(tl.float32)
    v = v / tl.sqrt(tl.sum(v * v, 0) / n + eps) * tl.load(w + col, mask=mask).to(tl.float32)
    tl.store(y + row * n + col, v.to(tl.bfloat16), mask=mask)


def run(x, w, eps, y):
    block = triton.next_power_of_2(x.shape[1])
    norm_kernel[(x.shape[0],)](x, w, y, x.stride(0), x.shape[1], eps, BLOCK=block)
"""


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, old
    return text.replace(old, new)


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with Judges(find_target("h100"), JudgesOptions(timeout_s=60)) as made:
        yield made


def verdict_on(judges: Judges, problem: Path, solution: Path, early: bool = True) -> Verdict:
    """Judge without compiling, which other tests do; `early` is the lint."""
    judges.load(problem, {})
    judges.admit()
    request = judges.request(solution)
    prepared = Judgement()
    if early:
        request = request.model_copy(update={"stages": ("lint",)})
        prepared = judges.lint(request)
    return judges.finish(request, prepared)


def model_verdict(judges: Judges, tmp_path: Path, new: str, model: str = MODEL) -> Verdict:
    (tmp_path / "model.py").write_text(model)
    (tmp_path / "new.py").write_text(new)
    return verdict_on(judges, tmp_path / "model.py", tmp_path / "new.py")


# --- forms ------------------------------------------------------------------------------------


def test_the_form_is_told_by_the_names_at_the_top_level() -> None:
    assert form_of(ast.parse("def reference(x): ...\ndef make_inputs(seed): ...")) == "functions"
    assert form_of(ast.parse(MODEL)) == "kernelbench"
    assert form_of(ast.parse("def candidate(x): ...")) is None


def test_only_a_file_that_holds_both_is_cut() -> None:
    assert parts(MODEL) == (MODEL, MODEL)
    task, candidate = parts(MODEL + MODEL_NEW)
    assert "ModelNew" not in task
    assert "class Model(" not in candidate


@pytest.mark.parametrize(("text", "name"), [("1_Square_matmul_", "1-square-matmul"), ("…", "problem")])  # fmt: skip
def test_names_become_ours(text: str, name: str) -> None:
    assert slug(text) == name


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("absent.py", None, NotFound),
        ("other.py", "x = 1\n", InvalidPackage),
        ("broken.py", "def f(:\n", InvalidPackage),
        ("broken.json", "{}", InvalidPackage),
        ("raises.py", "def reference(x): return x\ndef make_inputs(s): raise ValueError('no')\n", InvalidPackage),
    ],
)  # fmt: skip
def test_what_is_no_problem_says_so(judges: Judges, tmp_path: Path, name: str, text: str | None, error: type[Exception]) -> None:  # fmt: skip
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(error, match=name):
        judges.load(tmp_path / name, {})


def test_axes_belong_to_definitions_only(judges: Judges, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    with pytest.raises(UsageError, match="declares no axes"):
        judges.load(tmp_path / "model.py", {"rows": 3})


# --- KernelBench ------------------------------------------------------------------------------


def test_a_right_module_is_accepted_with_parameters_it_never_drew(judges: Judges, tmp_path: Path) -> None:  # fmt: skip
    verdict = model_verdict(judges, tmp_path, MODEL_NEW)
    assert (verdict.verdict, verdict.level) == ("accepted", "verified-cpu"), verdict.log
    kinds = {item.workload.name for item in verdict.workloads}
    assert {"as-given", "fresh", "scaled", "shifted", "spiked", "redrawn", "strided"} <= kinds
    assert "other shapes: the problem declares no axes" in verdict.checks_not_run
    assert "speed: no device" in verdict.checks_not_run


def test_a_module_that_takes_a_bias_of_zeros_for_granted_fails(judges: Judges, tmp_path: Path) -> None:  # fmt: skip
    new = replaced(MODEL_NEW, " + tl.load(b + col, mask=mask)", "")
    verdict = model_verdict(judges, tmp_path, new)
    assert verdict.outcome == "INCORRECT_NUMERICAL"
    assert verdict.log.startswith("redrawn")


def test_parameters_may_have_other_names_in_the_same_order(judges: Judges, tmp_path: Path) -> None:
    new = MODEL_NEW.replace("self.weight", "self.scale").replace("self.bias", "self.offset")
    assert model_verdict(judges, tmp_path, new).accepted


def test_other_parameters_are_told_apart(judges: Judges, tmp_path: Path) -> None:
    new = replaced(MODEL_NEW, "nn.Parameter(torch.zeros(features))", "nn.Parameter(torch.zeros(1))")
    verdict = model_verdict(judges, tmp_path, new)
    assert verdict.outcome == "RUNTIME_ERROR"
    assert "keep their names" in verdict.log


def test_the_reference_class_is_out_of_reach(judges: Judges, tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(
        MODEL + "\n\nclass ModelNew(Model):\n    def forward(self, x):\n        return super().forward(x)\n"
    )  # fmt: skip
    both = tmp_path / "both.py"
    assert not verdict_on(judges, both, both).accepted
    assert verdict_on(judges, both, both, early=False).outcome == "RUNTIME_ERROR"


# --- FlashInfer-Bench -------------------------------------------------------------------------


def solution_json(destination: bool = True) -> str:
    return json.dumps(
        {
            "name": "one", "definition": "rms_n60", "author": "a",
            "spec": {
                "language": "triton", "target_hardware": ["H100"], "entry_point": "main.py::run",
                "dependencies": [], "destination_passing_style": destination,
            },
            "sources": [{"path": "main.py", "content": RUN}],
        }
    )  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [("run.py", RUN), ("one.json", solution_json())])
def test_a_definition_with_axes_is_tried_at_other_shapes(judges: Judges, tmp_path: Path, name: str, text: str) -> None:  # fmt: skip
    (tmp_path / "rms.json").write_text(json.dumps(DEFINITION))
    (tmp_path / name).write_text(text)
    verdict = verdict_on(judges, tmp_path / "rms.json", tmp_path / name)
    assert verdict.accepted, verdict.log
    assert verdict.figures.comparisons == 5
    assert not any("shapes" in check for check in verdict.checks_not_run)


def test_a_solution_in_another_language_is_not_judged(judges: Judges, tmp_path: Path) -> None:
    (tmp_path / "rms.json").write_text(json.dumps(DEFINITION))
    (tmp_path / "one.json").write_text(solution_json().replace('"triton"', '"cuda"'))
    judges.load(tmp_path / "rms.json", {"batch": 3})
    with pytest.raises(InvalidPackage, match="triton and python"):
        judges.request(tmp_path / "one.json")


# --- folders ----------------------------------------------------------------------------------


def test_a_folder_is_judged_once(judges: Judges, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "good.py").write_text(MODEL_NEW)
    (folder / "half.py").write_text(replaced(MODEL_NEW, "        return y", "        return x"))
    (folder / "broken.py").write_text("def f(:\n")
    judges.load(tmp_path / "model.py", {})
    judges.admit()
    results = tmp_path / "verdicts.jsonl"
    seen: list[bool] = []
    lines = judges.judge_folder(folder, results, lambda _, known: seen.append(known))
    assert {line.file: line.verdict.verdict for line in lines} == {
        "broken.py": "rejected", "good.py": "accepted", "half.py": "rejected",
    }  # fmt: skip
    # a kill in the middle of a line, and a changed file
    results.write_bytes(results.read_bytes()[:-20])
    (folder / "broken.py").write_text("def f(::\n")
    again = judges.judge_folder(folder, results, lambda _, known: seen.append(known))
    assert seen == [False, False, False, False, True, False]
    assert [line.verdict.outcome for line in again] == [line.verdict.outcome for line in lines]
    assert len(list(read_lines(results))) == 4
    assert all(isinstance(line, Line) for line in again)


# --- the collection ---------------------------------------------------------------------------


def listed(expected: str) -> list[str]:
    entries = json.loads((EXPLOITS / "index.json").read_text())
    return [entry["file"] for entry in entries if entry["expected"] == expected]


@pytest.mark.parametrize("file", listed("accept"))
def test_honest_kernels_are_accepted(judges: Judges, file: str) -> None:
    verdict = verdict_on(judges, EXPLOITS / file, EXPLOITS / file)
    assert verdict.accepted, verdict.log


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("c039_decoy_never_taken", "CHEATING"),
        ("c055_call_counter", "INCORRECT_NUMERICAL"),
        ("c057_return_input", "CHEATING"),
        ("c073_always_equal", "INCORRECT_SHAPE"),
        ("c103_assume_default_affine", "INCORRECT_NUMERICAL"),
        ("c106_subsample_mean", "INCORRECT_NUMERICAL"),
        ("c125_mutate_weights", "CHEATING"),
        ("c132_cross_block_order", "RUNTIME_ERROR"),
    ],
)
def test_without_the_lint_the_run_still_tells(judges: Judges, name: str, outcome: str) -> None:
    file = EXPLOITS / "cheat" / f"{name}.py"
    assert verdict_on(judges, file, file, early=False).outcome == outcome


def test_a_task_that_the_mean_solves_is_refused(judges: Judges) -> None:
    judges.load(EXPLOITS / "cheat" / "c063_softmax_mean_constant.py", {})
    with pytest.raises(TaskRefused, match="the mean everywhere passes"):
        judges.admit()
