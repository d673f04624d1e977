"""Which variant of a skill is to run which Workloads on a chip, and why that one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from kernel_skills.executor.environment import Device
from kernel_skills.executor.errors import NotFound, Unsatisfiable, UsageError
from kernel_skills.executor.judge import ALL_STAGES, Stage
from kernel_skills.executor.models import Definition, Record, Workload
from kernel_skills.executor.targets import Target
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.registry.models import Skill, Variant
from kernel_skills.registry.resolver import Rejection, resolve


class Selection(Record):
    """What of a skill is to run; empty names mean everything."""

    stages: tuple[Stage, ...] = ALL_STAGES
    workload: str = ""
    definition: str = ""
    variant: str = ""
    all_variants: bool = False
    """Run each variant on everything it takes, not only the one that is picked."""


class Plan(Record):
    """A variant, the Workloads it is to run, and why it was picked."""

    definition: Definition
    variant: Variant
    workloads: tuple[Workload, ...]
    why: str
    rejected: tuple[Rejection, ...] = ()


def make_plans(
    skill: Skill, target: Target, selection: Selection, device: Device | None
) -> Iterator[Plan]:
    """Yield which variant runs which Workloads; on a machine without the chip, every variant that the chip takes."""
    definitions = _selected_definitions(skill, selection)
    for definition in definitions:
        workloads = _selected_workloads(skill, definition, selection)
        if not workloads:
            continue
        if selection.variant or selection.all_variants or device is None:
            yield from _every_variant(skill, definition, workloads, target, selection)
        else:
            yield from _picked_variants(skill, definition, workloads, target)


def _selected_definitions(skill: Skill, selection: Selection) -> Sequence[Definition]:
    if not skill.manifest.definition:
        raise UsageError(f"{skill.name} is a {skill.manifest.kind} skill: it has no kernels to run")
    if selection.definition:
        skill.manifest.definition_named(selection.definition)
    if selection.workload:
        names = sorted({workload.name for workload in skill.manifest.workload})
        if selection.workload not in names:
            raise NotFound.named(f"workload in {skill.name}", selection.workload, names)
    if selection.variant:
        names = sorted({variant.id for variant in skill.manifest.variant})
        if selection.variant not in names:
            raise NotFound.named(f"variant in {skill.name}", selection.variant, names)
    return [d for d in skill.manifest.definition if selection.definition in ("", d.name)]


def _selected_workloads(
    skill: Skill, definition: Definition, selection: Selection
) -> list[Workload]:
    purposes = {"smoke", "edge", "bench"}
    if "bench" not in selection.stages and "compile" not in selection.stages:
        purposes -= {"bench"}
    if "verify" not in selection.stages and "compile" not in selection.stages:
        purposes = {"bench"}
    return [
        workload
        for workload in skill.manifest.workload
        if workload.definition == definition.name
        and workload.purpose in purposes
        and selection.workload in ("", workload.name)
    ]


def _every_variant(
    skill: Skill,
    definition: Definition,
    workloads: list[Workload],
    target: Target,
    selection: Selection,
) -> Iterator[Plan]:
    found = False
    for variant in skill.manifest.variant:
        if variant.definition != definition.name or selection.variant not in ("", variant.id):
            continue
        fitting, reason = _fitting(skill, definition, variant, workloads, target)
        if fitting:
            found = True
            why = "every variant is looked at" if not selection.variant else "asked for"
            yield Plan(definition=definition, variant=variant, workloads=tuple(fitting), why=why)
        elif selection.variant:
            raise Unsatisfiable(f"{skill.name}: variant {variant.id} does not fit: {reason}")
    if not found and not selection.variant:
        # raises with every reason
        resolve(skill, definition.name, target, installed_toolchain(), workloads[0], evidence=())


def _fitting(
    skill: Skill,
    definition: Definition,
    variant: Variant,
    workloads: list[Workload],
    target: Target,
) -> tuple[list[Workload], str]:
    """Return the Workloads that this variant takes on the target, and the last reason against."""
    alone = skill.model_copy(
        update={"manifest": skill.manifest.model_copy(update={"variant": (variant,)})}
    )
    fitting, reason = [], ""
    for workload in workloads:
        try:
            resolve(alone, definition.name, target, installed_toolchain(), workload, evidence=())
        except Unsatisfiable as error:
            reason = str(error)
        else:
            fitting.append(workload)
    return fitting, reason


def _picked_variants(
    skill: Skill, definition: Definition, workloads: list[Workload], target: Target
) -> Iterator[Plan]:
    picked = [
        (resolve(skill, definition.name, target, installed_toolchain(), workload), workload)
        for workload in workloads
    ]
    picked.sort(key=lambda pair: pair[0].chosen.id)
    for _, group in groupby(picked, key=lambda pair: pair[0].chosen.id):
        pairs = list(group)
        resolution = pairs[0][0]
        yield Plan(
            definition=definition,
            variant=resolution.chosen,
            workloads=tuple(workload for _, workload in pairs),
            why=resolution.reason,
            rejected=resolution.rejected,
        )
