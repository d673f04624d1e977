"""`skill.toml` to `Manifest`; every fault of the text becomes a `Problem` with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.models import Manifest, Problem
from kernel_skills.registry.text_file import BrokenText, read_text
from kernel_skills.registry.toml_lines import Place, TomlLines

MANIFEST_NAME = "skill.toml"

_PATTERN_MENDS = {
    r"^[a-z0-9]+(-[a-z0-9]+)*$": "use lower-case words joined by hyphens",
    r"^[\w./-]+\.py::[A-Za-z_]\w*$": "write it as path/to/file.py::function",
}
_LABELS = ("id", "name", "type")


def load_manifest(path: Path) -> Manifest:
    """Return the manifest in `path`, a `skill.toml` or the folder that holds it.

    Raises:
        InvalidPackage: one line `FILE:LINE: what is wrong; mend` per fault, first line first.
    """
    result = read_manifest(path)
    if isinstance(result, Manifest):
        return result
    raise InvalidPackage("\n".join(str(problem) for problem in result))


def read_manifest(path: Path) -> Manifest | tuple[Problem, ...]:
    """Return the manifest in `path`, or everything that is wrong with it, first line first."""
    file = path / MANIFEST_NAME if path.is_dir() else path
    try:
        text = read_text(file, "manifest")
        data = _parse(file, text)
    except BrokenText as broken:
        return (broken.problem,)
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        lines = TomlLines(text)
        problems = [
            _problem(file, lines.line_of(place), message, mend)
            for details in error.errors(include_url=False)
            for place, message, mend in _explain(details, data)
        ]
        return tuple(sorted(problems, key=lambda problem: problem.line or 0))


def _problem(file: Path, line: int | None, message: str, mend: str = "") -> Problem:
    return Problem(path=str(file), line=line, rule="manifest", message=message, mend=mend)


def _parse(file: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = str(error), text.count("\n") + 1
        if position := re.search(r" \(at line (\d+), column (\d+)\)$", message):
            line = int(position[1])
            message = f"{message[: position.start()]}, column {position[2]}"
        message = message.removesuffix(" (at end of document)")
        problem = _problem(file, line, f"TOML: {message}", "mend the syntax")
    except (RecursionError, ValueError) as error:
        # tomllib recurses on nested arrays, and Python refuses integers of more than 4300 digits
        problem = _problem(file, None, f"TOML: {error}", "no manifest needs such values")
    raise BrokenText(problem)


# --- pydantic's errors in words ---------------------------------------------------------------


def _explain(error: ErrorDetails, data: Mapping[str, Any]) -> Iterator[tuple[Place, str, str]]:
    """Yield place, message and mend of one pydantic error (several for the manifest's cross-references)."""
    place = _existing(error["loc"], data)
    kind, message, context = error["type"], error["msg"], error.get("ctx", {})
    where = _where(place, data)
    if kind == "references":
        yield from ((at, text, "make the two agree") for at, text in context["problems"])
    elif kind == "missing":
        yield place[:-1], f"{_where(place[:-1], data)}lacks `{place[-1]}`", "add it"
    elif kind == "extra_forbidden":
        yield place, f"{_where(place[:-1], data)}unknown key `{place[-1]}`", _close_key(place, data)
    elif kind == "union_tag_invalid":
        yield place, f"{where}type {context['tag']!r} is unknown", f"use {context['expected_tags']}"
    elif kind == "string_pattern_mismatch":
        mend = _PATTERN_MENDS.get(context["pattern"], f"it should match {context['pattern']}")
        yield place, f"{where}{_shown(error['input'])} is malformed", mend
    elif place[-1:] == ("version",):
        yield place, f"{where}{_shown(error['input'])} is no version", 'write "MAJOR.MINOR.PATCH"'
    elif kind in ("value_error", "assertion_error"):
        message = message.removeprefix("Value error, ")
        yield (*place, *_named_in(message, place, data)), f"{where}{message}", ""
    else:
        mend = re.sub(r"^(Input|String|Value) should", "it should", message)
        yield place, f"{where}{_shown(error['input'])} does not fit", mend


def _existing(loc: Sequence[str | int], data: Any) -> Place:
    """Drop the tags that pydantic puts into the place of a union's member; keep a last key that is missing."""
    place: list[str | int] = []
    for position, part in enumerate(loc):
        is_last = position == len(loc) - 1
        if isinstance(data, Mapping) and part in data:
            data = data[str(part)]
        elif isinstance(data, Sequence) and isinstance(part, int) and part < len(data):
            data = data[part]
        elif not is_last or part == "[key]" or not isinstance(data, Mapping):
            continue
        place.append(part)
    return tuple(place)


def _value_at(place: Place, data: Any) -> Any:
    for part in place:
        data = data[part]
    return data


def _where(place: Place, data: Mapping[str, Any]) -> str:
    """Return `variant 'portable': archs: `, with numbers from 1 for what has no name."""
    words: list[str] = []
    for depth, part in enumerate(place):
        if isinstance(part, str):
            words.append(part)
            continue
        item = _value_at(place[: depth + 1], data)
        label = (
            next((item[key] for key in _LABELS if key in item), None)
            if isinstance(item, dict)
            else None
        )
        words[-1] += f" {label!r}" if isinstance(label, str) else f" {part + 1}"
    return "".join(f"{word}: " for word in words)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _named_in(message: str, place: Place, data: Mapping[str, Any]) -> Place:
    """Return where a definition's message `NAME: ...` points: its input or output of that name."""
    name, found, _ = message.partition(": ")
    table = _value_at(place, data)
    if found and isinstance(table, dict):
        for group in ("inputs", "outputs"):
            if name in table.get(group, {}):
                return (group, name)
    return ()


def _close_key(place: Place, data: Mapping[str, Any]) -> str:
    known = _fields_at(place[:-1], data)
    near = get_close_matches(str(place[-1]), known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"


def _fields_at(place: Place, data: Mapping[str, Any]) -> list[str]:
    """Return the keys that the model at a place takes."""
    models: list[type[BaseModel]] = [Manifest]
    for part in place:
        fields = [model.model_fields[str(part)] for model in models if part in model.model_fields]
        # a position in an array, or a key of a mapping: its models are those of the field around it
        models = [model for field in fields for model in _models_in(field.annotation)] or models
    table = _value_at(place, data)
    if isinstance(table, dict) and "type" in table:
        models = [m for m in models if m.model_fields["type"].default == table["type"]] or models
    return sorted({name for model in models for name in model.model_fields})


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
