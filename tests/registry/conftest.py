"""A minimal package that keeps its whole contract, and Traces about it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kernel_skills.executor.trace import (
    Correctness,
    Environment,
    Evaluation,
    Failed,
    IncorrectNumerical,
    Passed,
    Performance,
    Timing,
    Trace,
)
from kernel_skills.registry.discovery import load_skill
from kernel_skills.registry.models import Skill, Variant
from kernel_skills.registry.package import identity_of

SKILL_MD = """\
---
name: row-scale
description: Multiply rows by a scalar. Use when a tensor is scaled row by row.
license: Apache-2.0
metadata:
  version: "1.2.0"
---
# Row scale

Bound by memory: read once, write once.
"""

SKILL_TOML = """\
schema_version = 1
name = "row-scale"
version = "1.2.0"
kind = "operator"
summary = "Multiply rows by a scalar."
patterns = ["locality"]

[example_queries]
en = ["scale a tensor by a constant"]
zh = ["按行缩放张量"]

[[definition]]
name = "row-scale"
op_type = "scale"
dtypes = { T = ["float32", "bfloat16"] }
constraints = ["cols >= 1"]
reference = "reference.py::row_scale"
flops = "rows * cols"
baselines = [
  { name = "torch-mul", entry = "baselines.py::mul" },
]

[definition.axes]
rows = { type = "var" }
cols = { type = "var" }

[definition.inputs]
x = { shape = ["rows", "cols"], dtype = "T" }
factor = { dtype = "float32", default = 2.0 }

[definition.outputs]
y = { shape = ["rows", "cols"], dtype = "T" }

[[workload]]
definition = "row-scale"
name = "tiny"
purpose = "smoke"
axes = { rows = 2, cols = 3 }
dtypes = { T = "float32" }

[[workload]]
definition = "row-scale"
name = "empty"
purpose = "edge"
axes = { rows = 0, cols = 3 }
dtypes = { T = "float32" }

[[workload]]
definition = "row-scale"
name = "large"
purpose = "bench"
axes = { rows = 4096, cols = 4096 }
dtypes = { T = "bfloat16" }
inputs = { factor = { type = "scalar", value = 0.5 } }

[[variant]]
id = "portable"
definition = "row-scale"
entry = "kernels/portable.py::row_scale"
files = ["kernels/common.py"]
archs = ["any"]
requires = { triton = ">=3.6" }
parameters = { BLOCK = [512, 1024] }

[[variant]]
id = "hopper"
definition = "row-scale"
entry = "kernels/hopper.py::row_scale"
archs = ["sm_90"]
dtypes = { T = ["bfloat16"] }
requires = { triton = ">=3.6,<3.8" }
constraints = ["cols % 8 == 0"]
preference = 10
interpretable = false

[[template]]
id = "scale"
definition = "row-scale"
path = "templates/scale.py.jinja"
entry = "scale"
parameters = { BLOCK = [512, 1024] }
defaults = { BLOCK = 512 }
"""

FILES = {
    "SKILL.md": SKILL_MD,
    "skill.toml": SKILL_TOML,
    "reference.py": "def row_scale(x, factor=2.0):\n    return x * factor\n",
    "baselines.py": "def mul(x, factor=2.0):\n    return x * factor\n",
    "validate.py": "def check_zero(kernel):\n    pass\n",
    "kernels/common.py": "import triton\n",
    "kernels/portable.py": (
        "import torch\nimport triton\nimport triton.language as tl\n\nfrom .common import triton\n\n\n"
        "def row_scale(x, *, factor=2.0, BLOCK=None):\n    return torch.empty_like(x)\n"
    ),
    "kernels/hopper.py": (
        "import torch\nfrom triton.experimental import gluon\n\n\n"
        "def row_scale(x, *, factor=2.0):\n    return torch.empty_like(x)\n"
    ),
    "templates/scale.py.jinja": "BLOCK = {{ BLOCK }}\n\n\ndef scale(x, *, factor):\n    return x\n",
}


class Package:
    """A package's folder that a test can change."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path, content in FILES.items():
            self.write(path, content)

    def write(self, path: str, content: str) -> Path:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        return file

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace every `old`; the test is wrong where there is none."""
        text = (self.folder / path).read_text(encoding="utf-8")
        assert old in text, f"{path} holds no {old!r}"
        self.write(path, text.replace(old, new))

    def line(self, path: str, text: str) -> int:
        """Return the number of the first line that begins with `text`."""
        lines = (self.folder / path).read_text(encoding="utf-8").splitlines()
        return next(number for number, line in enumerate(lines, start=1) if line.startswith(text))

    def load(self) -> Skill:
        return load_skill(self.folder, "project")

    def variant(self, name: str) -> Variant:
        return next(v for v in self.load().manifest.variant if v.id == name)


MakeTrace = Callable[..., Trace]
StartPython = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def package(tmp_path: Path) -> Package:
    """A package that keeps its whole contract, `skills/row-scale` in an empty project."""
    return Package(tmp_path / "project" / "skills" / "row-scale")


@pytest.fixture
def new_package() -> type[Package]:
    return Package


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data home of the test's own."""
    home = tmp_path / "home"
    monkeypatch.setenv("KERNEL_SKILLS_HOME", str(home))
    monkeypatch.delenv("KERNEL_SKILLS_PATH", raising=False)
    return home


@pytest.fixture
def make_trace(package: Package) -> MakeTrace:
    """Build a Trace about a variant of the package as it is now."""

    def make(
        variant: str = "portable",
        workload: str = "large",
        latency_ms: float | None = 1.0,
        *,
        status: str = "PASSED",
        arch: str = "sm_90",
        day: int = 1,
        triton: str = "3.6.0",
        log: str = "",
    ) -> Trace:
        skill = package.load()
        return Trace(
            definition="row-scale",
            workload=next(w for w in skill.manifest.workload if w.name == workload),
            solution=variant,
            skill=identity_of(skill, package.variant(variant)),
            evaluation=_evaluation(status, latency_ms, arch, day, triton, log),
        )

    return make


def _evaluation(
    status: str, latency_ms: float | None, arch: str, day: int, triton: str, log: str
) -> Evaluation:
    environment = Environment(hardware="a chip", arch=arch, target="h200", libs={"triton": triton})
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    correctness = Correctness(max_relative_error=0.0, max_absolute_error=0.0)
    if status == "INCORRECT_NUMERICAL":
        return IncorrectNumerical(environment=environment, timestamp=when, correctness=correctness)
    if status != "PASSED":
        return Failed(environment=environment, timestamp=when, status=status)  # type: ignore[arg-type]
    return Passed(
        environment=environment,
        timestamp=when,
        log=log,
        level="verified-gpu",
        correctness=correctness,
        performance=None if latency_ms is None else _performance(latency_ms),
    )


def _performance(latency_ms: float) -> Performance:
    return Performance(
        latency_ms=latency_ms,
        reference_latency_ms=2 * latency_ms,
        speedup_factor=2.0,
        timing=Timing(median_ms=latency_ms, p20_ms=latency_ms, p80_ms=latency_ms, samples=10),
        method="events",
        gbps=1.0,
        bound_ms=latency_ms,
        percent_of_bound=100.0,
        percent_of_ceiling=100.0,
        limited_by="memory",
        speed="faster",
    )


@pytest.fixture
def start_python() -> StartPython:
    """Start a Python process that imports what this one does."""

    def start(script: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
