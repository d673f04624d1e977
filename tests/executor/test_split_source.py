from __future__ import annotations

import ast

import pytest

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.split_source import split

SOURCE = """\
from __future__ import annotations
import os
import torch
import triton
DEV = "cuda"
SIZES = (1, 2)
HOOK = {}
HOOK["a"] = 1

def shared(n):
    return n

def helper(x):
    return shared(x)

@triton.jit
def kernel(x):
    pass

def candidate(x):
    kernel[(1,)](helper(x), HOOK)
    return reference(x)

def reference(x):
    return os.path.join(shared(x), DEV)

def make_inputs(seed):
    return candidates(seed), DEV

def unused():
    pass

torch.allclose = None
torch.manual_seed(0)
if __name__ == "__main__":
    candidate(1)
"""


def names(source: str) -> set[str]:
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        else:
            found.add(ast.unparse(node))
    return found


def test_each_part_has_what_it_reaches() -> None:
    task, candidate = split(SOURCE)
    assert names(task) == {
        "annotations", "os", "reference", "make_inputs", "shared", "DEV = 'cuda'",
    }  # fmt: skip
    assert names(candidate) == {
        "annotations", "torch", "triton", "candidate", "helper", "shared", "kernel", "HOOK = {}",
        "HOOK['a'] = 1", "torch.allclose = None", "torch.manual_seed(0)",
    }  # fmt: skip


def test_lines_stay_where_they_were() -> None:
    _, candidate = split(SOURCE)
    line = SOURCE.splitlines().index("def candidate(x):")
    assert candidate.splitlines()[line] == "def candidate(x):"
    assert candidate.splitlines()[line - 4] == "@triton.jit"


def test_a_problem_of_kernelbench_is_cut_likewise() -> None:
    task, candidate = split(
        "import torch\nN = 4\nclass Model(torch.nn.Module):\n    pass\nclass ModelNew(torch.nn.Module):\n    n = N\n"
        "def get_inputs():\n    return [N]\ndef get_init_inputs():\n    return []\n"
    )
    assert names(task) == {"torch", "N = 4", "Model", "get_inputs", "get_init_inputs"}
    assert names(candidate) == {"torch", "N = 4", "ModelNew"}


def test_an_alias_of_the_reference_stays_a_candidate() -> None:
    _, candidate = split("def reference(x): ...\ncandidate = reference\n")
    assert names(candidate) == {"candidate = reference"}


@pytest.mark.parametrize("source", ["def reference(x): ...", "def candidate(:", "\0", ""])
def test_what_holds_no_candidate_is_refused(source: str) -> None:
    with pytest.raises(InvalidPackage):
        split(source)
