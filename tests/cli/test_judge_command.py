"""`skills judge`: exit codes, JSON, and folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

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
        (("problem.py", "good.py", "--policy", "lax"), 2, "strict or assist"),
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
