from __future__ import annotations

import time

import pytest

from kernel_skills.executor.lint import RULES, examine, lint
from kernel_skills.executor.models import Solution, SourceFile

from .conftest import KERNEL, solution
from .lint_cases import CHEATS, HONEST, KERNEL_PART, candidate
from .lint_files import CHEAT_FILES, HONEST_FILES

FLOAT32 = frozenset({"float32"})
BROKEN = ["def scale(:", "\0", "(" * 300, "x = " + "-" * 20000 + "1"]
LARGE = f"def scale(x):\n    return [{'x.T, ' * 120_000}]\n"
CHAIN = "def f0(x): return x\n" + "".join(
    f"def f{i}(x): return f{i - 1}(x)\n" for i in range(1, 60)
)


def rules(content: str) -> set[str]:
    return {finding.rule for finding in lint(solution(content), dtypes=FLOAT32)}


@pytest.mark.parametrize("body", [LARGE, CHAIN + "def scale(x):\n    return f59(x)\n"])
def test_what_would_take_too_long_is_found(body: str) -> None:
    start = time.process_time()
    assert "S-syntax" in rules(KERNEL_PART + body)
    assert time.process_time() - start < 10


def with_file(path: str, content: str, kernel: str = KERNEL) -> Solution:
    sound = solution(kernel)
    files = (*sound.sources, SourceFile(path=path, content=content))
    return sound.model_copy(update={"sources": files})


def test_every_rule_is_tested() -> None:
    assert set(HONEST) == set(CHEATS) == set(RULES)


def test_a_kernel_has_no_findings() -> None:
    assert lint(solution(KERNEL)) == ()


@pytest.mark.parametrize("content", BROKEN)
def test_what_does_not_parse_is_found(content: str) -> None:
    assert rules(content) == {"S-syntax"}


@pytest.mark.parametrize(
    ("rule", "body"), [(rule, body) for rule, bodies in HONEST.items() for body in bodies]
)
def test_what_is_allowed_is_not_found(rule: str, body: str) -> None:
    assert lint(solution(candidate(body)), dtypes=FLOAT32) == ()


@pytest.mark.parametrize(
    ("rule", "body"), [(rule, body) for rule, bodies in CHEATS.items() for body in bodies]
)
def test_what_is_not_allowed_is_found(rule: str, body: str) -> None:
    assert rule in rules(candidate(body))


@pytest.mark.parametrize("text", HONEST_FILES)
def test_honest_candidates_of_every_style_pass(text: str) -> None:
    assert lint(solution(KERNEL_PART + text), dtypes=FLOAT32) == ()


@pytest.mark.parametrize("text", CHEAT_FILES)
def test_detours_are_found(text: str) -> None:
    assert lint(solution(KERNEL_PART + text))


def test_a_finding_names_file_line_reason_and_mend() -> None:
    found = lint(solution(candidate("z = torch.softmax(x, -1)")))
    assert [str(one) for one in found] == [
        "kernel.py:19: S-torch: names 'torch.softmax';"
        " compute it in a kernel; of torch, allocate and take views only"
    ]


def test_under_assist_computation_in_torch_is_a_note() -> None:
    report = examine(solution(candidate("z = torch.exp(x); z = x.sum() ; z = x * 2")), "assist")
    assert report.findings == ()
    assert {one.rule for one in report.notes} == {"S-torch", "S-method", "S-operator"}


@pytest.mark.parametrize("body", ["torch.compile(run)", "import os", "eval('x')", "run.a = 1"])
def test_under_assist_the_rest_stays_a_finding(body: str) -> None:
    assert lint(solution(candidate(body)), "assist")


def test_precision_is_judged_only_where_all_dtypes_are_wide() -> None:
    narrow = candidate(CHEATS["S-dtype"][0])
    assert lint(solution(narrow), dtypes=frozenset({"float32", "bfloat16"})) == ()
    assert lint(solution(narrow)) == ()


def test_every_python_file_is_read_and_no_other() -> None:
    assert [one.path for one in lint(with_file("common.py", "import os\n"))] == ["common.py"]
    assert lint(with_file("notes.md", "import os")) == ()


def test_code_of_another_file_is_judged_where_the_entry_reaches_it() -> None:
    helper = "import torch\n\ndef soft(x):\n    return torch.softmax(x, -1)\n"
    assert lint(with_file("common.py", helper)) == ()
    for spelling in (
        "from .common import soft as s\n{}z = s(x)",
        "from . import common\n{}z = common.soft(x)",
    ):
        imports, body = spelling.split("{}")
        kernel = KERNEL_PART + imports + candidate(body).removeprefix(KERNEL_PART)
        found = lint(with_file("common.py", helper, kernel))
        assert [(one.path, one.line, one.rule) for one in found] == [("common.py", 4, "S-torch")]
