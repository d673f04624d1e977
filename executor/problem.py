"""What a kernel is judged against when it is no skill's: a file in KernelBench's, FlashInfer-Bench's or our own form.

Each form becomes a Task with Workloads, so that one judge serves all. Where a file declares no axes, shapes cannot
vary; values and strides do.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.errors import InvalidPackage, NotFound, UsageError
from kernel_skills.executor.models import (
    DTYPE_BYTES,
    ConstAxis,
    Definition,
    SourceFile,
    Task,
    TensorSpec,
    VarAxis,
    Workload,
)
from kernel_skills.executor.pool import Pool
from kernel_skills.executor.problem_flashinfer import from_definition
from kernel_skills.executor.problem_kinds import KINDS
from kernel_skills.executor.problem_record import (
    ADAPTER,
    PROBLEM,
    SHAPES_FIXED,
    Form,
    Problem,
    adapter_source,
    slug,
)
from kernel_skills.executor.split_source import CANDIDATE_ROOTS, TASK_ROOTS, split

_DESCRIBE_TIMEOUT_S = 120.0
_TRAINING = "training mode: the module is random there (dropout); Model and ModelNew run in eval()"
_DTYPES = {"fp32": "", "fp16": "float16", "bf16": "bfloat16"}

__all__ = [
    "Problem",
    "adapter_source",
    "defined_names",
    "definition_of",
    "form_of",
    "load_problem",
    "parts",
    "slug",
]


def load_problem(
    path: Path,
    pool: Pool,
    place: str,
    axes: Mapping[str, int],
    workloads: Path | None = None,
    precision: str = "fp32",
) -> Problem:
    """Read a problem file and look at what it draws and returns, in a task worker.

    Args:
        place: the device, `cpu` or `cuda:0`.
        axes: lengths of a Definition's variable axes.
        workloads: JSONL of a Definition's workloads; where it is left out, its dataset's own are taken.
        precision: of a `Model` and its inputs, as KernelBench's `--precision`.

    Raises:
        NotFound: no such file.
        UsageError: an option is given that is another form's.
        InvalidPackage: the file is in no known form, or does not run.
    """
    if not path.is_file():
        raise NotFound(f"{path}: no such problem file, and no skill of this name")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidPackage(f"{path}: is not UTF-8; save it as UTF-8") from None
    if path.suffix == ".json":
        if precision != "fp32":
            raise UsageError(f"--precision: {path.name} declares its dtypes")
        return from_definition(path, text, axes, workloads)
    if axes or workloads:
        option = "--axes" if axes else "--workloads"
        raise UsageError(f"{option}: {path.name} declares no axes; its shapes are what it draws")
    return _from_python(path, text, pool, place, precision)


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


def _from_python(path: Path, text: str, pool: Pool, place: str, precision: str) -> Problem:
    form = form_of(parsed(text, path))
    if form is None:
        raise InvalidPackage(
            f"{path}: is in no known form; define `reference` and `make_inputs(seed)`, or KernelBench's `Model` "
            "and `get_inputs`"
        )
    if precision != "fp32" and form != "kernelbench":
        raise UsageError(f"--precision: {path.name} draws its inputs in the dtype that it wants")
    task_text, _ = parts(text)
    sources = _sources(task_text, form, False, _DTYPES[precision])
    found = _described(sources, pool, place, path)
    if found["random"] and form == "kernelbench":
        # dropout: what is left of it in evaluation mode is the same twice
        sources = _sources(task_text, form, True, _DTYPES[precision])
        found = _described(sources, pool, place, path)
    if found["random"]:
        raise InvalidPackage(
            f"{path}: the reference draws random numbers while it runs: no kernel can be compared with it; "
            "draw them in the inputs"
        )
    name = slug(path.stem)
    definition = definition_of(name, form, found)
    workloads = tuple(
        Workload(
            definition=name, name=kind, purpose="smoke" if kind == "as-given" else "edge", axes={},
            generator=f"{ADAPTER}::make_inputs_{kind.replace('-', '_')}", description=what,
        )
        for kind, what in KINDS.items()
        if kind not in found["impossible"]
    )  # fmt: skip
    bench = workloads[0].model_copy(update={"name": "measured", "purpose": "bench"})
    return Problem(
        name=name, form=form, task=Task(definition=definition, sources=sources),
        workloads=(*workloads, bench), calling=_calling(form, found),
        checks_not_run=(
            SHAPES_FIXED, *((_TRAINING,) if found.get("evaluation") else ()),
            *(f"{kind} values: {why}" for kind, why in found["impossible"].items()),
        ),
    )  # fmt: skip


def _sources(text: str, form: Form, evaluation: bool, dtype: str) -> tuple[SourceFile, ...]:
    adapter = adapter_source(form, evaluation=evaluation, dtype=dtype)
    return (
        SourceFile(path=PROBLEM, content=text),
        SourceFile(path=ADAPTER, content=adapter),
    )


def _described(
    sources: tuple[SourceFile, ...], pool: Pool, place: str, path: Path
) -> dict[str, Any]:
    worker = pool.start("task")
    try:
        message = {
            "op": "describe", "device": place, "adapter": ADAPTER,
            "sources": [source.model_dump(mode="json") for source in sources],
        }  # fmt: skip
        found = worker.request(message, timeout_s=_DESCRIBE_TIMEOUT_S)
    finally:
        worker.end(0.1)
    if "failed" in found:
        raise InvalidPackage(f"{path}: the problem does not run: {found['log']}")
    return found


def definition_of(name: str, form: Form, found: Mapping[str, Any]) -> Definition:
    """Return the contract of what a problem draws and returns, as `admission.describe_problem` found it."""
    """Return the contract of what a problem draws and returns, as `admission.describe_problem` found it."""
    axes: dict[str, ConstAxis | VarAxis] = {}
    inputs = {item["name"]: _spec(item, axes) for item in found["inputs"]}
    outputs = {}
    for position, item in enumerate(found["outputs"]):
        title = "output" if len(found["outputs"]) == 1 else f"output{position}"
        title = f"result_{title}" if title in inputs else title
        outputs[title] = _spec({**item, "name": title}, axes)
    return Definition(
        name=name, op_type=form, axes=axes, inputs=inputs, outputs=outputs,
        reference=f"{ADAPTER}::reference", standard_baselines=("eager", "compile"),
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
        return Calling(style="positional", order=tuple(found["order"]), groups=found["groups"])
    return Calling(
        style="module", order=tuple(found["order"]), groups=found["groups"],
        init=tuple(found["init"]), init_keywords=found["init_keywords"],
        parameters=found["parameters"], buffers=found["buffers"], seed_input="parameter_seed",
        evaluation=found["evaluation"], dtype=found["dtype"],
    )  # fmt: skip
