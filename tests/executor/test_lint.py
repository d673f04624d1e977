from __future__ import annotations

import pytest

from kernel_skills.executor.lint import RULES, lint
from kernel_skills.executor.models import Solution, SourceFile

from .conftest import KERNEL, solution

GOOD = {
    "S-syntax": "def scale(x):\n    return x\n",
    "S-import": (
        "from __future__ import annotations\nimport math, torch, triton\nimport triton.language as tl\n"
        "from collections.abc import Callable\nfrom dataclasses import dataclass\nfrom typing import Any\n"
        "from triton.language.extra import libdevice\nfrom triton.experimental import gluon\n"
        "from triton.experimental.gluon.language.nvidia.hopper import tma\n"
        "from triton.tools.tensor_descriptor import TensorDescriptor\n"
        "from .common import near\nfrom . import common\n\ndef scale(x):\n    return x\n"
    ),
    "S-entry": "@torch.no_grad()\ndef scale(x):\n    return x\n",
    "S-dynamic": "def scale(x):\n    'open, exec and eval in text are text'\n    return x.open\n",
}
BAD = {
    "S-syntax": ["def scale(:", "\0", "(" * 300],
    "S-import": [
        "import os",
        "import numpy as np",
        "import torch.utils.cpp_extension",
        "from triton.runtime import driver",
        "from triton.language.core import builtin",
        "def f():\n    import ctypes",
        "import math, sys",
        "from kernel_skills.executor import judge",
    ],
    "S-entry": ["def scales(x): ...", "if True:\n    def scale(x): ...", "scale = print"],
    "S-dynamic": [
        "def scale(x):\n    return eval('x')",
        "f = exec",
        "__import__('os')",
        "def scale(x): return globals()['x']",
        "open('/etc/passwd')",
    ],
}


def rules(content: str) -> set[str]:
    return {finding.rule for finding in lint(solution(content))}


def test_every_rule_is_tested() -> None:
    assert set(GOOD) == set(BAD) == {"S-syntax", *RULES}


def test_a_kernel_has_no_findings() -> None:
    assert lint(solution(KERNEL)) == ()


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD.keys())
def test_what_is_allowed_is_not_found(content: str) -> None:
    assert rules(content) == set()


@pytest.mark.parametrize(
    ("rule", "content"), [(rule, content) for rule, contents in BAD.items() for content in contents]
)
def test_what_is_not_allowed_is_found(rule: str, content: str) -> None:
    assert rule in rules(content)


def test_a_finding_names_file_line_and_mend() -> None:
    (finding,) = lint(solution("def scale(x):\n    import os\n"))
    assert (finding.path, finding.line, finding.rule) == ("kernel.py", 2, "S-import")
    assert "may import" in str(finding)


def test_every_python_file_is_linted_and_no_other() -> None:
    sound = solution()
    files = (*sound.sources, SourceFile(path="common.py", content="import os\n"))
    spoilt = sound.model_copy(update={"sources": files})
    assert [finding.path for finding in lint(spoilt)] == ["common.py"]
    notes = SourceFile(path="notes.md", content="import os")
    noted: Solution = sound.model_copy(update={"sources": (*sound.sources, notes)})
    assert lint(noted) == ()
