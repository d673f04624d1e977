"""The rules: each turns what the reading found into problems, with a mend."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernel_skills.executor.lint_names import ALLOWED_IMPORTS
from kernel_skills.executor.lint_program import Fact, File
from kernel_skills.executor.lint_text import hidden_text
from kernel_skills.executor.models import Solution

Problem = tuple[str, int, str, str]
"""(path, line, reason, mend)"""


@dataclass(frozen=True)
class Reading:
    """A Solution as read: its files, and the facts by kind."""

    solution: Solution
    files: dict[str, File]
    facts: dict[str, list[Fact]]
    launches: int

    @property
    def entry(self) -> tuple[str, str]:
        path, _, name = self.solution.spec.entry_point.partition("::")
        return path, name

    def of(self, mend: str, *kinds: str) -> Iterator[Problem]:
        for kind in kinds:
            for fact in self.facts.get(kind, ()):
                yield fact.path, fact.line, fact.reason, mend


def imports(reading: Reading) -> Iterator[Problem]:
    """Only the table's modules and members, and siblings of the package by relative import."""
    return reading.of(f"a kernel may import {', '.join(ALLOWED_IMPORTS[1:])}", "import", "S-import")


def entry(reading: Reading) -> Iterator[Problem]:
    """The entry's file defines the entry at its top level."""
    path, name = reading.entry
    file = reading.files.get(path)
    body = file.tree.body if file else []
    if not any(
        isinstance(one, ast.FunctionDef | ast.ClassDef) and one.name == name for one in body
    ):
        yield path, 1, f"defines no function {name!r}", f"define `def {name}(…)` at the top level"


def reference(reading: Reading) -> Iterator[Problem]:
    """The task's own code is not the candidate's."""
    return reading.of("write the computation in a kernel of your own", "task")


def torch_compute(reading: Reading) -> Iterator[Problem]:
    """Of torch: allocation, views, facts, holders of parameters."""
    return reading.of("compute it in a kernel; of torch, allocate and take views only", "S-torch")


def tensor_methods(reading: Reading) -> Iterator[Problem]:
    """Of tensors: shapes, strides, views, copies in the same dtype."""
    return reading.of(
        "compute it in a kernel; a tensor's shape, strides and views are free", "method"
    )


def tensor_operators(reading: Reading) -> Iterator[Problem]:
    """No operator, builtin or subscript that computes elements."""
    return reading.of(
        "compute it in a kernel; numbers and shapes may be computed here", "operation"
    )


def module_calls(reading: Reading) -> Iterator[Problem]:
    """A torch.nn module holds parameters; to call it computes."""
    return reading.of("read its parameters, and hand them to a kernel", "holder")


def engines(reading: Reading) -> Iterator[Problem]:
    """No other compiler, no private or native part of torch."""
    return reading.of("use Triton's jit functions", "S-engine")


def flags(reading: Reading) -> Iterator[Problem]:
    """No global setting and no random state of torch."""
    return reading.of("leave torch's settings and random state as they are", "S-flag")


def streams(reading: Reading) -> Iterator[Problem]:
    """No streams, events, graphs."""
    return reading.of("launch on the current stream and return", "S-stream")


def harness(reading: Reading) -> Iterator[Problem]:
    """No timers, no comparisons."""
    return reading.of("leave measuring and comparing to the judge", "S-harness")


def triton_names(reading: Reading) -> Iterator[Problem]:
    """Of Triton: jit, autotune, heuristics, Config, cdiv, dtypes, descriptors."""
    return reading.of("host code may use triton.jit, autotune, Config, cdiv, tl dtypes", "S-triton")


def dynamic(reading: Reading) -> Iterator[Problem]:
    """No code or name that is made while running; no files; builtins of the table only."""
    return reading.of("write the code out", "builtin", "dynamic", "S-dynamic", "async")


def output(reading: Reading) -> Iterator[Problem]:
    """Nothing is printed: what a judge believes is not read from there."""
    return reading.of("return the result and print nothing", "output")


def results(reading: Reading) -> Iterator[Problem]:
    """The entry returns tensors, numbers, and tuples of them."""
    return reading.of("return plain tensors: nothing is computed after the call", "result")


def dunders(reading: Reading) -> Iterator[Problem]:
    """No special names but the ordinary ones."""
    return reading.of("use public names; define no special methods", "dunder")


def introspection(reading: Reading) -> Iterator[Problem]:
    """No frames, code objects, raw storage, tensor hooks."""
    return reading.of("use the arguments of the call only", "frame", "function-attribute")


def patches(reading: Reading) -> Iterator[Problem]:
    """No attribute of anything but the candidate's own objects is assigned."""
    return reading.of("change nothing outside the candidate", "patch")


def subclasses(reading: Reading) -> Iterator[Problem]:
    """Classes are plain, or inherit torch.nn.Module or torch.autograd.Function."""
    return reading.of("inherit torch.nn.Module or autograd.Function, or write a function", "base")


def state(reading: Reading) -> Iterator[Problem]:
    """No tensor and no count outlives a call; launch parameters may be kept by shape."""
    return reading.of("compute every call anew; keep launch parameters only", "state", "cached")


def fallback(reading: Reading) -> Iterator[Problem]:
    """No exception of a launch is caught."""
    return reading.of("let the exception pass", "try")


def pointers(reading: Reading) -> Iterator[Problem]:
    """`data_ptr()` serves to check alignment."""
    return reading.of("use `data_ptr() % bytes` only; hand tensors to kernels", "pointer")


def launches(reading: Reading) -> Iterator[Problem]:
    """What is launched is a jit function of the Solution, with tensors and numbers."""
    return reading.of(
        "launch with `kernel[grid](…)`, where kernel is decorated with triton.jit",
        "launch-unknown", "kernel-attribute", "launch-argument",
    )  # fmt: skip


def no_kernel(reading: Reading) -> Iterator[Problem]:
    """The entry launches a kernel."""
    path, name = reading.entry
    if not reading.launches and not any(entry(reading)):
        yield path, 1, f"{name!r} launches no kernel", "compute the result in a jit function"


def hooks(reading: Reading) -> Iterator[Problem]:
    """A pre_hook may fill in block shapes; nothing replaces the tuner's timer."""
    return reading.of("a pre_hook may set a descriptor's block_shape, and no more", "hook")


def kernel_bodies(reading: Reading) -> Iterator[Problem]:
    """A jit function names `tl`, Gluon, libdevice and other jit functions only."""
    return reading.of("use tl.NAME, libdevice and the Solution's own jit functions", "kernel")


def precision(reading: Reading) -> Iterator[Problem]:
    """Where all dtypes of the task are wide, nothing is computed in a narrower one."""
    return reading.of(
        'compute in float32; tl.dot takes input_precision="ieee"', "precision", "narrow"
    )


def hidden(reading: Reading) -> Iterator[Problem]:
    """Names are ASCII; no mark reorders or hides text."""
    for source in reading.solution.sources:
        if source.path in reading.files:
            for line, reason in hidden_text(source.content):
                yield source.path, line, reason, "write names in ASCII, without invisible marks"


RULES: dict[str, Callable[[Reading], Iterator[Problem]]] = {
    "S-import": imports,
    "S-entry": entry,
    "S-reference": reference,
    "S-torch": torch_compute,
    "S-method": tensor_methods,
    "S-operator": tensor_operators,
    "S-module": module_calls,
    "S-engine": engines,
    "S-flag": flags,
    "S-stream": streams,
    "S-harness": harness,
    "S-triton": triton_names,
    "S-dynamic": dynamic,
    "S-output": output,
    "S-result": results,
    "S-dunder": dunders,
    "S-introspect": introspection,
    "S-patch": patches,
    "S-subclass": subclasses,
    "S-state": state,
    "S-try": fallback,
    "S-pointer": pointers,
    "S-launch": launches,
    "S-no-kernel": no_kernel,
    "S-hook": hooks,
    "S-kernel": kernel_bodies,
    "S-dtype": precision,
    "S-unicode": hidden,
}

COMPUTE_RULES = frozenset({"S-torch", "S-method", "S-operator", "S-module"})
"""Findings of these are notes under the policy `assist`."""
