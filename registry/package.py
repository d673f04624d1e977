"""From a Skill to what the executor judges: the Task, the Solution, and whose they are."""

from __future__ import annotations

from pathlib import PurePosixPath

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.models import Definition, Solution, SolutionSpec, SourceFile, Task
from kernel_skills.executor.trace import SkillIdentity
from kernel_skills.registry.digest import file_inside, package_files, root_digest, variant_digest
from kernel_skills.registry.models import Skill, Variant

_NOT_OF_THE_TASK = ("kernels", "templates")


def task_of(skill: Skill, definition: Definition) -> Task:
    """Return the Definition with the package's Python files; candidates' (kernels, templates) stay out.

    Raises:
        InvalidPackage: a file cannot be read, or the package holds what no package may.
    """
    paths = (
        path
        for path in package_files(skill.path)
        if path.endswith(".py") and PurePosixPath(path).parts[0] not in _NOT_OF_THE_TASK
    )
    return Task(definition=definition, sources=tuple(_source(skill, path) for path in paths))


def solution_of(skill: Skill, variant: Variant) -> Solution:
    """Return a variant as a Solution called `SKILL.DEFINITION.VARIANT`.

    Raises:
        InvalidPackage: a file of the variant is missing, unreadable or outside the package.
    """
    paths = dict.fromkeys((variant.entry.split("::")[0], *variant.files))
    requires = variant.requires
    return Solution(
        name=f"{skill.name}.{variant.definition}.{variant.id}",
        definition=variant.definition,
        author=", ".join(skill.manifest.authors),
        spec=SolutionSpec(
            target_hardware=variant.archs,
            entry_point=variant.entry,
            dependencies=(f"torch{requires.torch}", f"triton{requires.triton}"),
        ),
        sources=tuple(_source(skill, path) for path in paths),
        description=variant.description,
    )


def identity_of(skill: Skill, variant: Variant) -> SkillIdentity:
    """Return name, version and digests of a variant, as evidence keeps them."""
    return SkillIdentity(
        name=skill.name,
        version=str(skill.version),
        root_digest=root_digest(skill.path),
        variant=variant.id,
        variant_digest=variant_digest(skill, variant),
    )


def _source(skill: Skill, path: str) -> SourceFile:
    file = file_inside(skill.path, path)
    try:
        return SourceFile(path=path, content=file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidPackage(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidPackage(f"{file}: is not UTF-8; save it as UTF-8") from None
