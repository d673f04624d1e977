"""A FlashInfer-Bench Definition as a Problem: its axes vary, its workloads come from a JSONL file where there is one.

The schema is that of flashinfer-bench 0.1.2. A workload's `safetensors` inputs are read here, by the parent, since a
worker reads no files of the person who runs it; they travel as a source of the Task.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.errors import InvalidPackage, UsageError
from kernel_skills.executor.models import (
    DTYPE_BYTES,
    Definition,
    Input,
    IntegerInput,
    RandomInput,
    ScalarInput,
    SourceFile,
    Task,
    Workload,
)
from kernel_skills.executor.problem_record import ADAPTER, PROBLEM, Problem, adapter_source, slug
from kernel_skills.executor.safetensors import StoredTensor, read_tensor
from kernel_skills.executor.workload_values import all_axes, shape_of

_DEFAULT_AXIS = 24
"""Small enough for the interpreter, and no power of two."""
_MOST_STORED_BYTES = 8 << 20
"""Of all stored inputs of a problem; indices of a page table are a hundredth of it."""
_INTEGERS = {"int8": 128, "int16": 1024, "int32": 1024, "int64": 1024, "uint8": 128}
"""Bound of what `random` means for integers, as flashinfer-bench draws them."""
_STORED_FIXED = "other shapes: inputs that are stored have the shapes that they have"
_ONE_MEASURED = "speed: the largest workload alone is measured"


def from_definition(
    path: Path, text: str, given: Mapping[str, int], workloads: Path | None
) -> Problem:
    """Return the Problem of a Definition.

    Args:
        given: lengths of variable axes; the rest, and all without workloads, are 24.
        workloads: JSONL; None looks for `workloads/OP_TYPE/NAME.jsonl` in the Definition's dataset.

    Raises:
        InvalidPackage: the file is no Definition, or has integer inputs and no workloads.
        UsageError: an axis is not one of its variable ones, or axes come with workloads.
    """
    definition, name, code = _parsed(path, text)
    order = tuple(definition.inputs)
    sources = [
        SourceFile(path=PROBLEM, content=code),
        SourceFile(path=ADAPTER, content=adapter_source("flashinfer", order)),
    ]
    found = workloads if workloads or given else _of_dataset(path)
    if found is None:
        _refuse_integers(path, definition)
        smoke = Workload(
            definition=definition.name, name="drawn", purpose="smoke", axes=_axes(definition, given)
        )
        made, notes = [smoke], []
    elif given:
        raise UsageError("--axes: the workloads say their axes; give one of the two")
    else:
        reader = _Workloads(found, name, definition)
        made, stored = reader.read()
        sources += stored
        notes = [_STORED_FIXED] if stored else []
    largest = max(made, key=lambda workload: math.prod(workload.axes.values()))
    if len(made) > 1:
        notes.append(_ONE_MEASURED)
    bench = largest.model_copy(update={"name": "measured", "purpose": "bench"})
    return Problem(
        name=definition.name, form="flashinfer",
        task=Task(definition=definition, sources=tuple(sources)), workloads=(*made, bench),
        calling=Calling(style="positional", order=order), checks_not_run=tuple(notes),
    )  # fmt: skip


def _parsed(path: Path, text: str) -> tuple[Definition, str, str]:
    """Return the Definition, its own name, and its reference's source."""
    try:
        data = json.loads(text)
        code = data["reference"]
        definition = Definition.model_validate(
            {
                "name": slug(data["name"]), "op_type": data["op_type"],
                "axes": {name: _known_axis(axis) for name, axis in data["axes"].items()},
                "inputs": {name: _known_spec(spec) for name, spec in data["inputs"].items()},
                "outputs": {name: _known_spec(spec) for name, spec in data["outputs"].items()},
                "constraints": tuple(data.get("constraints") or ()),
                "description": data.get("description") or "", "reference": f"{ADAPTER}::reference",
                "standard_baselines": ("eager", "compile"),
            }
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise InvalidPackage(f"{path}: is no FlashInfer-Bench Definition: {error}") from None
    # FlashInfer-Bench keeps scalars in its workloads
    inputs = {
        name: spec
        if spec.shape is not None or spec.default is not None
        else spec.model_copy(update={"default": _scalar(spec.dtype)})
        for name, spec in definition.inputs.items()
    }
    return definition.model_copy(update={"inputs": inputs}), str(data["name"]), str(code)


def _known_axis(axis: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("type", "value", "description")
    return {k: v for k, v in axis.items() if k in kept and v is not None}


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


def _refuse_integers(path: Path, definition: Definition) -> None:
    for name, spec in definition.tensor_inputs.items():
        if "int" in spec.dtype:
            raise InvalidPackage(
                f"{path}: the input {name!r} holds {spec.dtype}, and indices cannot be drawn at random; give the "
                "Definition's workloads by --workloads FILE.jsonl"
            )


# --- workloads --------------------------------------------------------------------------------


def _of_dataset(path: Path) -> Path | None:
    """Return the workloads of `ROOT/definitions/OP_TYPE/NAME.json`, where the dataset has them."""
    parts = path.resolve().parts
    if "definitions" not in parts:
        return None
    at = len(parts) - 1 - parts[::-1].index("definitions")
    found = Path(*parts[:at], "workloads", *parts[at + 1 :]).with_suffix(".jsonl")
    return found if found.is_file() else None


class _Workloads:
    """The lines of a JSONL file: workloads, or Traces that hold one."""

    def __init__(self, path: Path, name: str, definition: Definition) -> None:
        self._path, self._name, self._definition = path, name, definition
        self._bytes = 0

    def read(self) -> tuple[list[Workload], list[SourceFile]]:
        """Return the workloads, the first `smoke` and the rest `edge`, and the sources that hold stored inputs.

        Raises:
            InvalidPackage: a line does not fit the Definition, or a file that it names is missing.
        """
        made: list[Workload] = []
        sources: list[SourceFile] = []
        for number, data in self._lines():
            try:
                workload, stored = self._one(len(made), data)
            except (KeyError, TypeError, AttributeError, ValueError) as error:
                raise InvalidPackage(
                    f"{self._path}:{number}: is no workload of {self._name}: {error}"
                ) from None
            except InvalidPackage as error:
                raise InvalidPackage(f"{self._path}:{number}: {error}") from None
            made.append(workload)
            sources += stored
        if not made:
            raise InvalidPackage(f"{self._path}: holds no workload of {self._name}")
        return made, sources

    def _lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidPackage(f"{self._path}: cannot be read: {error}") from None
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                data = json.loads(line)
                if data.get("definition", self._name) == self._name:
                    yield number, data.get("workload", data)
            except (ValueError, AttributeError) as error:
                raise InvalidPackage(f"{self._path}:{number}: is no JSON object: {error}") from None

    def _one(self, place: int, data: Mapping[str, Any]) -> tuple[Workload, list[SourceFile]]:
        axes = {str(name): int(size) for name, size in data["axes"].items()}
        wanted = {name for name, axis in self._definition.axes.items() if axis.type == "var"}
        if set(axes) != wanted:
            raise InvalidPackage(f"has the axes {sorted(axes)}; the definition {sorted(wanted)}")
        inputs: dict[str, Input] = {}
        stored: dict[str, StoredTensor] = {}
        for name, spec in self._definition.inputs.items():
            given = (data.get("inputs") or {}).get(name, {"type": "random"})
            if given["type"] == "safetensors":
                stored[name] = self._stored(name, given, axes)
            elif given["type"] == "scalar":
                inputs[name] = ScalarInput(value=given["value"])
            elif given["type"] != "random":
                raise InvalidPackage(f"{name} is of the type {given['type']!r}")
            elif spec.shape is not None and spec.dtype in _INTEGERS:
                high = _INTEGERS[spec.dtype]
                inputs[name] = IntegerInput(
                    low=0 if spec.dtype == "uint8" else -high, high=str(high)
                )
            elif spec.shape is not None:
                inputs[name] = RandomInput()
        workload = Workload(
            definition=self._definition.name, name=f"workload-{place}",
            purpose="edge" if place else "smoke", axes=axes, inputs=inputs,
            description=str(data.get("uuid") or ""),
        )  # fmt: skip
        if not stored:
            return workload, []
        file = f"workload_{place}.py"
        source = SourceFile(path=file, content=self._generator(workload, stored))
        return workload.model_copy(update={"generator": f"{file}::make_inputs"}), [source]

    def _stored(self, name: str, given: Mapping[str, Any], axes: Mapping[str, int]) -> StoredTensor:
        spec = self._definition.inputs[name]
        found = read_tensor(self._blob(str(given["path"])), str(given["tensor_key"]))
        shape = shape_of(spec, all_axes(self._definition, axes))
        if (found.dtype, found.shape) != (spec.dtype, shape):
            raise InvalidPackage(
                f"{name} is stored as {found.dtype} {found.shape}; expected {spec.dtype} {shape}"
            )
        self._bytes += len(found.data)
        if self._bytes > _MOST_STORED_BYTES:
            raise InvalidPackage(
                f"stored inputs of more than {_MOST_STORED_BYTES >> 20} MB; store indices, draw the rest at random"
            )
        return found

    def _blob(self, path: str) -> Path:
        """Return a file that a workload names relative to its dataset's root."""
        for folder in (self._path.resolve().parent, *self._path.resolve().parents):
            if (folder / path).is_file():
                return folder / path
        raise InvalidPackage(f"{path} is not found, in no folder above {self._path}")

    def _generator(self, workload: Workload, stored: Mapping[str, StoredTensor]) -> str:
        texts = {name: base64.b64encode(tensor.data).decode() for name, tensor in stored.items()}
        return (
            "from kernel_skills.executor import problem_adapter\n"
            f"DEFINITION = {self._definition.model_dump_json()!r}\n"
            f"WORKLOAD = {workload.model_dump_json()!r}\n"
            f"STORED = {texts!r}\n"
            "def make_inputs(axes, dtypes, seed, device):\n"
            "    return problem_adapter.make_stored(DEFINITION, WORKLOAD, STORED, seed, device)\n"
        )


assert set(_INTEGERS) <= set(DTYPE_BYTES)
