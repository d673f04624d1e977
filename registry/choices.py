"""Which variant of each definition would run on a chip, as a report that never fails on what does not fit."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_skills.executor.errors import Unsatisfiable
from kernel_skills.executor.models import Record
from kernel_skills.executor.targets import Target
from kernel_skills.registry.models import Skill
from kernel_skills.registry.resolver import resolve


class RejectedVariant(Record):
    variant: str
    reason: str


class DefinitionChoice(Record):
    definition: str
    chosen: str | None
    """None: nothing fits."""
    reason: str
    rejected: tuple[RejectedVariant, ...] = ()


class Choices(Record):
    target: str
    arch: str
    toolchain: Mapping[str, str]
    definitions: tuple[DefinitionChoice, ...]


def choices_for(skill: Skill, target: Target, toolchain: Mapping[str, str]) -> Choices:
    """Return the choice for every definition of a skill, whatever the shape.

    Raises:
        InvalidPackage: a range or a constraint of the package is malformed.
    """
    return Choices(
        target=target.name,
        arch=target.arch,
        toolchain=toolchain,
        definitions=tuple(
            _choice(skill, definition.name, target, toolchain)
            for definition in skill.manifest.definition
        ),
    )


def _choice(
    skill: Skill, definition: str, target: Target, toolchain: Mapping[str, str]
) -> DefinitionChoice:
    try:
        resolution = resolve(skill, definition, target, toolchain)
    except Unsatisfiable as error:
        return DefinitionChoice(definition=definition, chosen=None, reason=str(error))
    rejected = [RejectedVariant(variant=r.variant.id, reason=r.reason) for r in resolution.rejected]
    return DefinitionChoice(
        definition=definition,
        chosen=resolution.chosen.id,
        reason=resolution.reason,
        rejected=tuple(rejected),
    )
