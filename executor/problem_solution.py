"""Read a solution to a Problem: a Python file with the form's entry, or a FlashInfer-Bench Solution."""

from __future__ import annotations

import ast
import contextlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.errors import InvalidPackage, NotFound
from kernel_skills.executor.models import Solution, SolutionSpec, SourceFile
from kernel_skills.executor.problem import Problem, defined_names, parts

_FILE = "solution.py"
_ENTRIES = {
    "functions": ("candidate",), "kernelbench": ("ModelNew",), "flashinfer": ("run", "candidate"),
    "skill": ("candidate",),
}  # fmt: skip
_LANGUAGES = ("triton", "python")


def load_solution(
    path: Path, problem: Problem, arch: str, also: tuple[str, ...] = ()
) -> tuple[Solution, Calling]:
    """Return a Solution and how it is called.

    Args:
        also: further names that the entry may have (a skill's own).

    Raises:
        NotFound: no such file.
        InvalidPackage: it is no UTF-8, or a JSON file that is no Solution, or it names no entry of the form.
    """
    if not path.is_file():
        raise NotFound(f"{path}: no such solution file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidPackage(f"{path}: is not UTF-8; save it as UTF-8") from None
    if path.suffix == ".json":
        return _from_json(path, text, problem, arch)
    entries = (*_ENTRIES[problem.form], *also)
    try:
        tree = ast.parse(text)
        _, text = parts(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # the lint says where
        return _solution(path.stem, text, entries[0], problem, arch), problem.calling
    entry = next((name for name in entries if name in defined_names(tree)), entries[0])
    calling = problem.calling
    if problem.form == "flashinfer" and _takes(tree, entry) == _all_names(problem):
        calling = calling.model_copy(update={"destination": True})
    return _solution(path.stem, text, entry, problem, arch), calling


def interpretable(solution: Solution) -> bool:
    """Tell whether Triton's interpreter runs a Solution: it has none for Gluon."""
    for source in solution.sources:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            for node in ast.walk(ast.parse(source.content)):
                names = [
                    alias.name
                    for alias in getattr(node, "names", [])
                    if isinstance(alias, ast.alias)
                ]
                module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
                if any("gluon" in name.split(".") for name in (module, *names)):
                    return False
    return True


def _solution(name: str, text: str, entry: str, problem: Problem, arch: str) -> Solution:
    return Solution(
        name=name,
        definition=problem.task.definition.name,
        spec=SolutionSpec(target_hardware=(arch,), entry_point=f"{_FILE}::{entry}"),
        sources=(SourceFile(path=_FILE, content=text),),
    )


def _all_names(problem: Problem) -> int:
    definition = problem.task.definition
    return len(definition.inputs) + len(definition.outputs)


def _takes(tree: ast.Module, entry: str) -> int:
    """Return how many positional parameters the entry has."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return len(node.args.posonlyargs) + len(node.args.args)
    return 0


def _from_json(path: Path, text: str, problem: Problem, arch: str) -> tuple[Solution, Calling]:
    try:
        data: dict[str, Any] = json.loads(text)
        spec = data["spec"]
        if spec["language"] not in _LANGUAGES:
            raise InvalidPackage(
                f"{path}: language {spec['language']!r}: triton and python are judged"
            )
        solution = Solution(
            name=data["name"], definition=problem.task.definition.name, author=data.get("author") or "",
            description=data.get("description") or "",
            spec=SolutionSpec(
                language=spec["language"], target_hardware=(arch,), entry_point=spec["entry_point"],
                dependencies=tuple(spec.get("dependencies") or ()),
                destination_passing_style=spec.get("destination_passing_style", True),
            ),
            sources=tuple(SourceFile(path=s["path"], content=s["content"]) for s in data["sources"]),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, AttributeError, ValidationError) as error:
        raise InvalidPackage(f"{path}: is no FlashInfer-Bench Solution: {error}") from None
    # its schema passes outputs last unless told otherwise
    destination = solution.spec.destination_passing_style
    order = tuple(problem.task.definition.inputs)
    calling = problem.calling.model_copy(
        update={
            "style": "positional",
            "order": problem.calling.order or order,
            "destination": destination,
        }
    )
    return solution, calling
