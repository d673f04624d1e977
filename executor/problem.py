"""What a kernel is judged against when it is no skill's: a file in KernelBench's, FlashInfer-Bench's or our own form.

Each form becomes a Task with Workloads, so that one judge serves all. Where a file declares no axes, shapes cannot
vary; values and strides do.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.errors import InvalidPackage, NotFound, UsageError
from kernel_skills.executor.models import (
    DTYPE_BYTES,
    ConstAxis,
    Definition,
    Record,
    SourceFile,
    Task,
    TensorSpec,
    VarAxis,
    Workload,
)
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.problem_kinds import KINDS
from kernel_skills.executor.split_source import CANDIDATE_ROOTS, TASK_ROOTS, split

Form = Literal["functions", "kernelbench", "flashinfer", "skill"]

SHAPES_FIXED = "other shapes: the problem declares no axes"
_ADAPTER, _PROBLEM = "adapter.py", "problem.py"
_CLASSES = {"functions": "FunctionAdapter", "kernelbench": "ModelAdapter"}
_DESCRIBE_TIMEOUT_S = 120.0
_DEFAULT_AXIS = 24
"""Small enough for the interpreter, and no power of two."""


class Problem(Record):
    """A Task to solve, the Workloads to solve it on, and how solutions are called."""

    name: str
    form: Form
    task: Task
    workloads: tuple[Workload, ...]
    calling: Calling = Calling()
    dtypes: tuple[str, ...] = ("float32",)
    checks_not_run: tuple[str, ...] = ()


def load_problem(path: Path, pool: Pool, place: str, axes: Mapping[str, int]) -> Problem:
    """Read a problem file and look at what it draws and returns, in a task worker.

    Args:
        place: the device, `cpu` or `cuda:0`.
        axes: lengths of a Definition's variable axes.

    Raises:
        NotFound: no such file.
        UsageError: axes are given to a problem that declares none.
        InvalidPackage: the file is in no known form, or does not run.
    """
    if not path.is_file():
        raise NotFound(f"{path}: no such problem file, and no skill of this name")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidPackage(f"{path}: is not UTF-8; save it as UTF-8") from None
    if path.suffix == ".json":
        return _from_definition(path, text, axes)
    if axes:
        raise UsageError(f"--axes: {path.name} declares no axes; its shapes are what it draws")
    return _from_python(path, text, pool, place)


def slug(text: str) -> str:
    """Return a text as a `models.Name`."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60].strip("-")
    return words or "problem"


# --- Python forms -----------------------------------------------------------------------------


def form_of(tree: ast.Module) -> Form | None:
    """Return the form whose names a file defines at its top level."""
    names = defined_names(tree)
    if {"reference", "make_inputs"} <= names:
        return "functions"
    return "kernelbench" if {"Model", "get_inputs"} <= names else None


def defined_names(tree: ast.Module) -> set[str]:
    """Return the names of functions and classes, and of what is assigned, at the top level."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return names


def parts(text: str) -> tuple[str, str]:
    """Return the task's part and the candidate's of a file; of a file that holds only one, all of it for that.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: the file does not parse.
    """
    names = defined_names(ast.parse(text))
    if not names & set(CANDIDATE_ROOTS) or not names & set(TASK_ROOTS):
        return text, text
    return split(text)


def parsed(text: str, path: Path) -> ast.Module:
    """Parse a file.

    Raises:
        InvalidPackage: its syntax is wrong.
    """
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidPackage(f"{path}:{getattr(error, 'lineno', 1)}: {error}") from None


def _from_python(path: Path, text: str, pool: Pool, place: str) -> Problem:
    form = form_of(parsed(text, path))
    if form is None:
        raise InvalidPackage(
            f"{path}: is in no known form; define `reference` and `make_inputs(seed)`, or KernelBench's `Model` "
            "and `get_inputs`"
        )
    task_text, _ = parts(text)
    sources = (
        SourceFile(path=_PROBLEM, content=task_text),
        SourceFile(path=_ADAPTER, content=adapter_source(form)),
    )
    found = _described(sources, pool, place, path)
    name = slug(path.stem)
    definition = _definition(name, form, found)
    workloads = tuple(
        Workload(
            definition=name, name=kind, purpose="smoke" if kind == "as-given" else "edge", axes={},
            generator=f"{_ADAPTER}::make_inputs_{kind.replace('-', '_')}", description=what,
        )
        for kind, what in KINDS.items()
        if kind not in found["impossible"]
    )  # fmt: skip
    bench = workloads[0].model_copy(update={"name": "measured", "purpose": "bench"})
    return Problem(
        name=name, form=form, task=Task(definition=definition, sources=sources),
        workloads=(*workloads, bench), calling=_calling(form, found),
        checks_not_run=(
            SHAPES_FIXED, *(f"{kind} values: {why}" for kind, why in found["impossible"].items()),
        ),
    )  # fmt: skip


def adapter_source(form: str, order: tuple[str, ...] = ()) -> str:
    """Return the generated module that makes a problem's own a Task's: a reference and a generator per kind."""
    made = (
        f"{_CLASSES[form]}(problem)"
        if form in _CLASSES
        else f"DefinitionAdapter(problem, {list(order)!r})"
    )
    lines = [
        "from kernel_skills.executor import problem_adapter",
        "from . import problem",
        f"adapter = problem_adapter.{made}",
        "def reference(*tensors, **scalars):",
        "    return problem_adapter.run(adapter, tensors, scalars)",
    ]
    for kind in KINDS if form in _CLASSES else ():
        lines += [
            f"def make_inputs_{kind.replace('-', '_')}(axes, dtypes, seed, device):",
            f"    return problem_adapter.make(adapter, {kind!r}, seed, device)",
        ]
    return "\n".join(lines) + "\n"


def _described(
    sources: tuple[SourceFile, ...], pool: Pool, place: str, path: Path
) -> dict[str, Any]:
    worker = pool.start("task")
    try:
        message = {
            "op": "describe", "device": place, "adapter": _ADAPTER,
            "sources": [source.model_dump(mode="json") for source in sources],
        }  # fmt: skip
        found = worker.request(message, timeout_s=_DESCRIBE_TIMEOUT_S)
    finally:
        worker.end(0.1)
    if "failed" in found:
        raise InvalidPackage(f"{path}: the problem does not run: {found['log']}")
    return found


def _definition(name: str, form: Form, found: Mapping[str, Any]) -> Definition:
    axes: dict[str, ConstAxis | VarAxis] = {}
    inputs = {item["name"]: _spec(item, axes) for item in found["inputs"]}
    outputs = {}
    for position, item in enumerate(found["outputs"]):
        title = "output" if len(found["outputs"]) == 1 else f"output{position}"
        title = f"result_{title}" if title in inputs else title
        outputs[title] = _spec({**item, "name": title}, axes)
    return Definition(
        name=name, op_type=form, axes=axes, inputs=inputs, outputs=outputs,
        reference=f"{_ADAPTER}::reference", standard_baselines=("eager", "compile"),
    )  # fmt: skip


def _spec(item: Mapping[str, Any], axes: dict[str, ConstAxis | VarAxis]) -> TensorSpec:
    if "shape" not in item:
        value = item["value"]
        kinds = {bool: "bool", int: "int64", float: "float32", str: "string"}
        return TensorSpec(dtype=kinds.get(type(value), "float32"), default=value)
    names = []
    for position, size in enumerate(item["shape"]):
        names.append(f"{item['name']}_{position}")
        axes[names[-1]] = ConstAxis(value=size)
    if item["dtype"] not in DTYPE_BYTES:
        raise InvalidPackage(f"{item['name']} is {item['dtype']}: this dtype is not judged")
    return TensorSpec(shape=tuple(names), dtype=item["dtype"])


def _calling(form: Form, found: Mapping[str, Any]) -> Calling:
    if form == "functions":
        return Calling(style="positional", order=tuple(found["order"]))
    return Calling(
        style="module", order=tuple(found["order"]), init=tuple(found["init"]),
        parameters=found["parameters"], buffers=found["buffers"], seed_input="parameter_seed",
    )  # fmt: skip


# --- FlashInfer-Bench -------------------------------------------------------------------------


def _from_definition(path: Path, text: str, given: Mapping[str, int]) -> Problem:
    try:
        data = json.loads(text)
        code = data["reference"]
        fields = {key: data[key] for key in ("axes", "inputs", "outputs")}
        known = {name: _without_unknown(axis) for name, axis in fields["axes"].items()}
        order = tuple(fields["inputs"])
        definition = Definition.model_validate(
            {
                "name": slug(data["name"]), "op_type": data["op_type"], "axes": known,
                "inputs": {name: _known_spec(spec) for name, spec in fields["inputs"].items()},
                "outputs": {name: _known_spec(spec) for name, spec in fields["outputs"].items()},
                "constraints": tuple(data.get("constraints") or ()),
                "description": data.get("description") or "", "reference": f"{_ADAPTER}::reference",
                "standard_baselines": ("eager", "compile"),
            }
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise InvalidPackage(f"{path}: is no FlashInfer-Bench Definition: {error}") from None
    for name, spec in definition.tensor_inputs.items():
        if "int" in spec.dtype:
            raise InvalidPackage(
                f"{path}: input {name!r} holds {spec.dtype}: indices cannot be drawn at random"
            )
    if missing := [n for n, s in definition.scalar_inputs.items() if s.default is None]:
        # FlashInfer-Bench keeps scalars in its workloads
        fill = {
            name: _scalar(spec.dtype)
            for name, spec in definition.scalar_inputs.items()
            if name in missing
        }
        inputs = {
            name: spec.model_copy(update={"default": fill[name]}) if name in fill else spec
            for name, spec in definition.inputs.items()
        }
        definition = definition.model_copy(update={"inputs": inputs})
    sources = (
        SourceFile(path=_PROBLEM, content=code),
        SourceFile(path=_ADAPTER, content=adapter_source("flashinfer", order)),
    )
    axes = _axes(definition, given)
    smoke = Workload(definition=definition.name, name="drawn", purpose="smoke", axes=axes)
    bench = smoke.model_copy(update={"name": "measured", "purpose": "bench"})
    return Problem(
        name=definition.name, form="flashinfer", task=Task(definition=definition, sources=sources),
        workloads=(smoke, bench), calling=Calling(style="positional", order=order),
    )  # fmt: skip


def _without_unknown(axis: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: v for k, v in axis.items() if k in ("type", "value", "description") and v is not None
    }


def _known_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("shape", "dtype", "description", "default")
    return {k: v for k, v in spec.items() if k in kept and v is not None}


def _scalar(dtype: str) -> bool | int | float:
    return True if dtype == "bool" else 1 if "int" in dtype else 0.5


def _axes(definition: Definition, given: Mapping[str, int]) -> dict[str, int]:
    variable = [name for name, axis in definition.axes.items() if axis.type == "var"]
    if unknown := set(given) - set(variable):
        raise UsageError(
            f"--axes: {sorted(unknown)[0]!r} is no variable axis; known: {', '.join(variable)}"
        )
    return {name: given.get(name, _DEFAULT_AXIS) for name in variable}
