"""`skills judge`: exit codes, JSON, and folders."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from kernel_skills.cli.judge_progress import FolderProgress, folder_progress
from kernel_skills.cli.options import device_index
from kernel_skills.executor.problem_batch import Line
from kernel_skills.executor.problem_judge import Verdict
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.skill_problem import problem_of

from .conftest import Skills

EXPLOITS = Path(__file__).parents[1] / "exploits"
HONEST = str(EXPLOITS / "honest" / "h01_vector_add.py")

PROBLEM = """\
import torch


def reference(x):
    return x * 2.0


def make_inputs(seed):
    return (torch.randn(3, 40, generator=torch.Generator().manual_seed(seed)),)
"""

SOLUTION = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


def candidate(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y
"""


@pytest.fixture
def files(apart: Path) -> Path:
    (apart / "problem.py").write_text(PROBLEM)
    (apart / "good.py").write_text(SOLUTION)
    (apart / "wrong.py").write_text(SOLUTION.replace("* 2.0", "* 2.001"))
    return apart


def test_one_file_serves_as_both(skills: Skills) -> None:
    done = skills("judge", HONEST, "--json")
    verdict = json.loads(done.out)
    assert done.code == 0, done.out
    assert (verdict["verdict"], verdict["outcome"], verdict["level"]) == ("accepted", "PASSED", "verified-cpu")  # fmt: skip
    assert (verdict["policy"], verdict["target"], verdict["findings"]) == ("strict", "h100", [])
    assert "speed: no device" in verdict["checks_not_run"]
    assert verdict["figures"]["performance"] is None
    assert verdict["figures"]["kernels"][0]["arch"] == "sm_90"
    assert verdict["figures"]["comparisons"] > 5


def test_a_wrong_kernel_exits_1_and_says_where(skills: Skills, files: Path) -> None:
    done = skills("judge", "problem.py", "wrong.py")
    assert done.code == 1
    assert done.out.startswith("rejected: wrong for problem\n")
    assert "INCORRECT_NUMERICAL" in done.out
    assert "elements miss the tolerance" in done.out


def test_a_lint_finding_exits_1(skills: Skills, files: Path) -> None:
    (files / "torch_only.py").write_text("def candidate(x):\n    return x * 2.0\n")
    done = skills("judge", "problem.py", "torch_only.py", "--json")
    verdict = json.loads(done.out)
    assert (done.code, verdict["outcome"]) == (1, "LINT_REJECTED")
    assert verdict["findings"][0]["rule"].startswith("S-")


def test_a_task_that_tells_nothing_exits_3(skills: Skills, files: Path) -> None:
    (files / "problem.py").write_text(PROBLEM.replace("x * 2.0", "x * 0.0"))
    done = skills("judge", "problem.py", "good.py", "--json")
    verdict = json.loads(done.out)
    assert (done.code, verdict["verdict"], verdict["outcome"]) == (3, "rejected", "TASK_REFUSED")
    assert "an output of zeros passes" in verdict["log"]
    assert verdict["findings"][0]["rule"] == "R-problem"


def test_what_is_too_large_for_the_interpreter_exits_6(skills: Skills, files: Path) -> None:
    (files / "problem.py").write_text(PROBLEM.replace("randn(3, 40", "randn(3, 1000000"))
    done = skills("judge", "problem.py", "good.py", "--json")
    assert (done.code, json.loads(done.out)["outcome"]) == (6, "SKIPPED")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("absent.py", "good.py"), 5, "no such problem file"),
        (("problem.py", "absent.py"), 5, "no such solution file"),
        (("no-such-skill", "good.py"), 5, "no skill named"),
        (("problem.py", "good.py", "--policy", "lax"), 2, "'strict', 'assist'"),
        (("problem.py", "good.py", "--axes", "rows"), 2, "NAME=LENGTH"),
        (("problem.json",), 2, "name the solution, too"),
    ],
)
def test_errors_are_one_line(skills: Skills, files: Path, words: tuple[str, ...], code: int, text: str) -> None:  # fmt: skip
    done = skills("judge", *words)
    assert done.code == code
    assert text in done.err
    assert done.err.startswith("error: ")


def test_a_folder_gives_a_table_and_resumes(skills: Skills, files: Path) -> None:
    folder = files / "many"
    folder.mkdir()
    for name in ("good.py", "wrong.py"):
        shutil.copy(files / name, folder)
    done = skills("judge", "problem.py", "many")
    assert done.code == 1
    assert "1 of 2 accepted" in done.out
    assert done.err.splitlines() == [
        "good.py: accepted, PASSED", "wrong.py: rejected, INCORRECT_NUMERICAL",
    ]  # fmt: skip
    again = skills("judge", "problem.py", "many")
    assert again.err == ""
    assert again.out == done.out
    assert len((folder / "verdicts.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("functions", "asked", "found"),
    [
        (("rms_norm_backward",), "", "rms-norm-rms-norm-backward"),
        (("candidate", "add_rms_norm"), "", "rms-norm"),
        (("candidate",), "add-rms-norm", "rms-norm-add-rms-norm"),
        (("other",), "", "rms-norm"),
    ],
)
def test_a_skill_is_a_problem(apart: Path, functions: tuple[str, ...], asked: str, found: str) -> None:  # fmt: skip
    skill = find_skill("rms-norm", Path(__file__).parents[2] / "skills")
    (apart / "own.py").write_text("".join(f"def {name}(x): ...\n" for name in functions))
    problem, entries = problem_of(skill, asked, apart / "own.py")
    assert problem.name == found
    assert {w.definition for w in problem.workloads} == {problem.task.definition.name}
    assert problem.task.definition.name.replace("-", "_") in entries


OPINFO = """\
import torch
import triton
import triton.language as tl

DTYPES = ("float32",)


@triton.jit
def square_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    tl.store(y + at, v * v, mask=at < n)


def square(input):
    x = input.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        square_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y
"""


def test_opinfo_reports_coverage(skills: Skills, files: Path) -> None:
    pytest.importorskip("expecttest")
    (files / "square.py").write_text(OPINFO)
    done = skills("judge", "--opinfo", "square", "square.py")
    assert done.code == 0, done.out
    assert done.out.startswith("accepted: square for opinfo-square at level verified-cpu\n")
    assert done.out.splitlines().count("not checked: speed: samples are too small to measure") == 1
    row = next(line.split() for line in done.out.splitlines() if line.startswith("float32"))
    assert row[1] == row[2]
    (files / "square.py").write_text(OPINFO.replace("v * v", "v"))
    wrong = skills("judge", "--opinfo", "square", "square.py", "--json")
    verdict = json.loads(wrong.out)
    assert (wrong.code, verdict["verdict"], verdict["op"]) == (1, "rejected", "square")
    assert verdict["coverage"][0]["failed"] > 0
    assert {"samples", "verify"} <= set(verdict["seconds"])


def test_the_verdict_says_how_long_each_phase_took(skills: Skills, files: Path) -> None:
    verdict = json.loads(skills("judge", "problem.py", "good.py", "--json").out)
    assert list(verdict["seconds"]) == ["start", "problem", "lint and compile", "admit", "verify"]
    assert verdict["sandbox"]["level"] == "embedded"


def test_a_person_reads_where_and_the_mend(skills: Skills, files: Path) -> None:
    (files / "torch_only.py").write_text("def candidate(x):\n    return x * 2.0\n")
    lines = skills("judge", "problem.py", "torch_only.py").out.splitlines()
    assert lines[0] == "rejected: torch_only for problem"
    at = next(number for number, line in enumerate(lines) if line.startswith("  solution.py:"))
    assert lines[at + 1].startswith("    mend: ")


def test_a_file_that_is_no_solution_does_not_end_a_folder(skills: Skills, files: Path) -> None:
    folder = files / "many"
    folder.mkdir()
    shutil.copy(files / "good.py", folder)
    (folder / "other.json").write_text("{}")
    done = skills("judge", "problem.py", "many")
    assert done.code == 1
    assert "1 of 2 accepted" in done.out
    assert "is no FlashInfer-Bench Solution" in done.out


GLUON = """
import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


def make_inputs(seed):
    torch.manual_seed(seed)
    return (torch.randn(1000),)


def reference(x):
    return x + 1.0


@gluon.jit
def add_one(x_ptr, y_ptr, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    o = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + o, gl.load(x_ptr + o, mask=o < n) + 1.0, mask=o < n)


def candidate(x):
    y = torch.empty_like(x)
    layout = gl.BlockedLayout([1], [32], [4], [0])
    add_one[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512, layout=layout, num_warps=4)
    return y
"""


def test_a_kernel_that_the_interpreter_cannot_run_exits_6(skills: Skills, files: Path) -> None:
    (files / "in_gluon.py").write_text(GLUON)
    done = skills("judge", "in_gluon.py", "--json")
    verdict = json.loads(done.out)
    assert (done.code, verdict["outcome"]) == (6, "SKIPPED")
    assert "interpreter" in verdict["log"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("problem.py", "good.py", "--opinfo", "square"), 2, "leave problem.py away"),
        (("--opinfo", "square", "absent.py"), 5, "no such solution file"),
        (("problem.py", "good.py", "--precision", "fp16"), 2, "--precision: problem.py draws"),
        (("problem.py", "good.py", "--device", "first"), 2, "an index, or a UUID"),
    ],
)
def test_options_that_do_not_fit_are_named(skills: Skills, files: Path, words: tuple[str, ...], code: int, text: str) -> None:  # fmt: skip
    done = skills("judge", *words)
    assert (done.code, text in done.err) == (code, True), done.err


@pytest.mark.parametrize(
    ("given", "index", "visible"),
    [
        ("1", 1, "all"),
        ("GPU-8f2c3a1e-0000", 0, "GPU-8f2c3a1e-0000"),
        ("MIG-6a0f/3/0", 0, "MIG-6a0f/3/0"),
    ],
)
def test_a_device_is_an_index_or_a_uuid(monkeypatch: pytest.MonkeyPatch, given: str, index: int, visible: str) -> None:  # fmt: skip
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "all")
    assert device_index(given) == index
    assert os.environ["CUDA_VISIBLE_DEVICES"] == visible


def test_an_interrupted_folder_says_how_to_go_on(files: Path, capfd: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    names = [files / "a.py", files / "b.py"]
    with pytest.raises(KeyboardInterrupt), folder_progress(names, files / "v.jsonl", False):
        raise KeyboardInterrupt
    said = capfd.readouterr().err
    assert (
        said
        == f"interrupted: 0 of 2 judged, verdicts in {files / 'v.jsonl'}; the same command goes on from there\n"
    )


def test_the_table_shows_what_is_at_work_first() -> None:
    state = FolderProgress([Path("a.py"), Path("b.py"), Path("c.py")], live=True)
    state.working(Path("b.py"), "verify 1/8 fresh")
    verdict = Verdict(
        problem="p", solution="a", verdict="accepted", outcome="PASSED", target="h100"
    )
    state.finished(Line(digest="0", file="a.py", verdict=verdict), False)
    table = state.table(height=40)
    assert table.title == "1 of 3 judged, 1 accepted"
    assert list(table.columns[0].cells) == ["b.py", "c.py", "a.py"]
    assert list(table.columns[1].cells) == ["verify 1/8 fresh", "waits", "accepted"]
