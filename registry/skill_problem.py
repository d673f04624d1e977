"""A skill's Definition as a Problem that anybody's kernel may be judged against."""

from __future__ import annotations

import ast
import contextlib
from pathlib import Path

from kernel_skills.executor.errors import NotFound, UsageError
from kernel_skills.executor.models import Definition
from kernel_skills.executor.problem import Problem, defined_names
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import task_of


def problem_of(skill: Skill, definition: str, solution: Path) -> tuple[Problem, tuple[str, ...]]:
    """Return the Problem and the names that a solution's entry may have beside `candidate`.

    Without a definition named, the one whose entry the solution defines is taken, else the one that is called as the
    skill is, else the first.

    Raises:
        NotFound: the skill has no such definition.
        UsageError: the skill has no kernels.
    """
    definitions = skill.manifest.definition
    if not definitions:
        raise UsageError(
            f"{skill.name} is a {skill.manifest.kind} skill: it has no kernels to judge"
        )
    names = [item.name for item in definitions]
    if definition and definition not in names:
        raise NotFound.named(f"definition in {skill.name}", definition, names)
    there = _defined(solution)
    # a `candidate` says nothing of which; the skill's own name is its main definition
    fitting = sorted(definitions, key=lambda item: item.name != skill.name)
    if "candidate" not in there:
        fitting = [d for d in fitting if there & set(entry_names(skill, d))] or fitting
    chosen = next((item for item in definitions if item.name == definition), fitting[0])
    problem = Problem(
        name=f"{skill.name}-{chosen.name}" if chosen.name != skill.name else skill.name,
        form="skill",
        task=task_of(skill, chosen),
        workloads=tuple(w for w in skill.manifest.workload if w.definition == chosen.name),
        dtypes=next(iter(chosen.dtypes.values()), ("float32",)),
    )
    return problem, entry_names(skill, chosen)


def entry_names(skill: Skill, definition: Definition) -> tuple[str, ...]:
    """Return what entries of this definition are called: in its variants, its reference, and by its own name."""
    entries = [v.entry for v in skill.manifest.variant if v.definition == definition.name]
    names = [entry.split("::")[1] for entry in (*entries, definition.reference)]
    return tuple(dict.fromkeys((*names, definition.name.replace("-", "_"))))


def _defined(solution: Path) -> set[str]:
    """Return the top-level names of a solution, of any file of a folder; nothing where it does not parse."""
    names: set[str] = set()
    for file in sorted(solution.glob("*.py")) if solution.is_dir() else [solution]:
        with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
            names |= defined_names(ast.parse(file.read_text(encoding="utf-8")))
    return names
