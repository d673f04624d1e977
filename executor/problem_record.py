"""What a problem is once it is read, whatever the form of its file, and the module that makes it a Task's."""

from __future__ import annotations

import re
from typing import Literal

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.models import Record, Task, Workload
from kernel_skills.executor.problem_kinds import KINDS

Form = Literal["functions", "kernelbench", "flashinfer", "skill"]
Precision = Literal["fp32", "fp16", "bf16"]

SHAPES_FIXED = "other shapes: the problem declares no axes"
ADAPTER, PROBLEM = "adapter.py", "problem.py"


class Problem(Record):
    """A Task to solve, the Workloads to solve it on, and how solutions are called."""

    name: str
    form: Form
    task: Task
    workloads: tuple[Workload, ...]
    calling: Calling = Calling()
    dtypes: tuple[str, ...] = ("float32",)
    checks_not_run: tuple[str, ...] = ()


def slug(text: str) -> str:
    """Return a text as a `models.Name`."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")
    return words or "problem"


def adapter_source(
    form: str, order: tuple[str, ...] = (), evaluation: bool = False, dtype: str = ""
) -> str:
    """Return the generated module that makes a problem's own a Task's: a reference and a generator per kind.

    Args:
        order: inputs of a Definition.
        evaluation: a module is judged in evaluation mode.
        dtype: of a module and its floating inputs; empty leaves them as they are.
    """
    made = {
        "functions": "FunctionAdapter(problem)",
        "kernelbench": f"ModelAdapter(problem, {evaluation!r}, {dtype!r})",
    }.get(form, f"DefinitionAdapter(problem, {list(order)!r})")
    lines = [
        "from kernel_skills.executor import problem_adapter",
        "from . import problem",
        f"adapter = problem_adapter.{made}",
        "def reference(*tensors, **scalars):",
        "    return problem_adapter.run(adapter, tensors, scalars)",
    ]
    for kind in KINDS if form in ("functions", "kernelbench") else ():
        lines += [
            f"def make_inputs_{kind.replace('-', '_')}(axes, dtypes, seed, device):",
            f"    return problem_adapter.make(adapter, {kind!r}, seed, device)",
        ]
    return "\n".join(lines) + "\n"
