"""Run a skill: pick variants, have them judged, keep the Traces, quote evidence where nothing could be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from kernel_skills.executor.environment import Device, find_device, toolchain
from kernel_skills.executor.errors import NoDevice, NotFound, Unsatisfiable, UsageError
from kernel_skills.executor.judge import (
    ALL_STAGES,
    Judged,
    Judgement,
    JudgeRequest,
    Report,
    Stage,
    judge,
)
from kernel_skills.executor.models import Definition, Record, Scalar, Workload, content_digest
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.seeds import secret_seed
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import Seed, Trace
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.evidence import home_evidence, newest_match, own_evidence
from kernel_skills.registry.models import Skill, Variant
from kernel_skills.registry.package import identity_of, solution_of, task_of
from kernel_skills.registry.resolver import Rejection, resolve
from kernel_skills.registry.shape import shape_of_workload
from kernel_skills.registry.tuned import TunedStore


class RunOptions(Record):
    """What to run and how; empty filters mean everything."""

    stages: tuple[Stage, ...] = ALL_STAGES
    workload: str = ""
    definition: str = ""
    variant: str = ""
    all_variants: bool = False
    """Run each variant on everything it takes, not only the one that is picked."""
    device: int = 0
    require_hardware: bool = False
    record: bool = False
    seed: int = 0
    timeout_s: float = 120.0


class VariantRun(Record):
    """One variant on the Workloads that fell to it."""

    definition: str
    variant: str
    why: str
    rejected: tuple[Rejection, ...] = ()
    judgement: Judgement
    quoted: Mapping[str, Trace] = {}
    """Workload uuid -> newest matching evidence, where nothing was measured now."""


class SkillRun(Record):
    """Everything that one `skills run` found."""

    skill: str
    version: str
    source: str
    path: Path
    target: Target
    device: Device | None
    note: str
    runs: tuple[VariantRun, ...]

    @property
    def accepted(self) -> bool:
        return bool(self.runs) and all(run.judgement.accepted for run in self.runs)


class Plan(Record):
    """A variant, the Workloads it is to run, and why it was picked."""

    definition: Definition
    variant: Variant
    workloads: tuple[Workload, ...]
    why: str
    rejected: tuple[Rejection, ...] = ()


def run_skill(
    skill: Skill, target: Target, options: RunOptions, report: Report | None = None
) -> SkillRun:
    """Judge a skill's variants for a target.

    Raises:
        NoDevice: hardware was required and no GPU here has the target's architecture.
        NotFound: a filter names nothing.
        Unsatisfiable: no variant fits the target.
    """
    with LocalPool() as pool:
        device = find_device(pool, options.device)
        fitting = device if device and device.arch == target.arch else None
        if fitting is None and options.require_hardware:
            here = (
                f"here is {device.hardware} ({device.arch})" if device else "there is no GPU here"
            )
            raise NoDevice(
                f"{target.name} needs a GPU of architecture {target.arch}, and {here}; "
                "run without --require-hardware to compile and verify only"
            )
        # both start now: importing torch takes seconds, and planning does not need it
        pool.warm(*(("device",) if fitting else ("device", "interpret")))
        plans = list(make_plans(skill, fitting.target if fitting else target, options, fitting))
        # a GPU takes one at a time; without one, a variant compiles while another is verified
        jobs = 1 if fitting else max(1, min(len(plans), pool.jobs))
        executor = ThreadPoolExecutor(jobs)
        try:
            runs = list(
                executor.map(
                    lambda plan: _run_plan(skill, plan, pool, target, fitting, options, report),
                    plans,
                )
            )
        finally:
            # on Ctrl-C the pool ends the workers that the threads wait for
            executor.shutdown(wait=False, cancel_futures=True)
        return SkillRun(
            skill=skill.name,
            version=str(skill.version),
            source=skill.source,
            path=skill.path,
            target=target,
            device=fitting,
            note=_note(target, device, fitting),
            runs=tuple(runs),
        )


def _note(target: Target, device: Device | None, fitting: Device | None) -> str:
    if fitting and fitting.target.name != target.name:
        return (
            f"asked for {target.name}; measured on {fitting.hardware}, which has the same architecture "
            f"({target.arch}), and recorded as {fitting.target.name}"
        )
    if fitting:
        return f"measured on {fitting.hardware}"
    here = (
        f"the GPU here is {device.hardware} ({device.arch})" if device else "there is no GPU here"
    )
    return f"{here}: compiled for {target.arch}, verified in Triton's interpreter, nothing measured"


# --- what to run ------------------------------------------------------------------------------


def make_plans(
    skill: Skill, target: Target, options: RunOptions, device: Device | None
) -> Iterator[Plan]:
    """Yield which variant runs which Workloads; on a machine without the chip, every variant that the chip takes."""
    definitions = _selected_definitions(skill, options)
    for definition in definitions:
        workloads = _selected_workloads(skill, definition, options)
        if not workloads:
            continue
        if options.variant or options.all_variants or device is None:
            yield from _every_variant(skill, definition, workloads, target, options)
        else:
            yield from _picked_variants(skill, definition, workloads, target)


def _selected_definitions(skill: Skill, options: RunOptions) -> Sequence[Definition]:
    if not skill.manifest.definition:
        raise UsageError(f"{skill.name} is a {skill.manifest.kind} skill: it has no kernels to run")
    if options.definition:
        names = [definition.name for definition in skill.manifest.definition]
        if options.definition not in names:
            raise NotFound.named(f"definition in {skill.name}", options.definition, names)
    if options.workload:
        names = sorted({workload.name for workload in skill.manifest.workload})
        if options.workload not in names:
            raise NotFound.named(f"workload in {skill.name}", options.workload, names)
    if options.variant:
        names = sorted({variant.id for variant in skill.manifest.variant})
        if options.variant not in names:
            raise NotFound.named(f"variant in {skill.name}", options.variant, names)
    return [d for d in skill.manifest.definition if options.definition in ("", d.name)]


def _selected_workloads(
    skill: Skill, definition: Definition, options: RunOptions
) -> list[Workload]:
    purposes = {"smoke", "edge", "bench"}
    if "bench" not in options.stages and "compile" not in options.stages:
        purposes -= {"bench"}
    if "verify" not in options.stages and "compile" not in options.stages:
        purposes = {"bench"}
    return [
        workload
        for workload in skill.manifest.workload
        if workload.definition == definition.name
        and workload.purpose in purposes
        and options.workload in ("", workload.name)
    ]


def _every_variant(
    skill: Skill,
    definition: Definition,
    workloads: list[Workload],
    target: Target,
    options: RunOptions,
) -> Iterator[Plan]:
    found = False
    for variant in skill.manifest.variant:
        if variant.definition != definition.name or options.variant not in ("", variant.id):
            continue
        fitting, reason = _fitting(skill, definition, variant, workloads, target)
        if fitting:
            found = True
            why = "every variant is looked at" if not options.variant else "asked for"
            yield Plan(definition=definition, variant=variant, workloads=tuple(fitting), why=why)
        elif options.variant:
            raise Unsatisfiable(f"{skill.name}: variant {variant.id} does not fit: {reason}")
    if not found and not options.variant:
        # raises with every reason
        resolve(skill, definition.name, target, toolchain(), workloads[0], evidence=())


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
            resolve(alone, definition.name, target, toolchain(), workload, evidence=())
        except Unsatisfiable as error:
            reason = str(error)
        else:
            fitting.append(workload)
    return fitting, reason


def _picked_variants(
    skill: Skill, definition: Definition, workloads: list[Workload], target: Target
) -> Iterator[Plan]:
    picked = [
        (resolve(skill, definition.name, target, toolchain(), workload), workload)
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


# --- running ----------------------------------------------------------------------------------


def _run_plan(
    skill: Skill,
    plan: Plan,
    pool: LocalPool,
    asked: Target,
    device: Device | None,
    options: RunOptions,
    report: Report | None,
) -> VariantRun:
    seed, kept = secret_seed(options.seed)
    chip = device.target if device else asked
    request = JudgeRequest(
        task=task_of(skill, plan.definition),
        solution=solution_of(skill, plan.variant),
        workloads=plan.workloads,
        target=chip,
        constraints=plan.variant.constraints,
        dtypes=_checked_dtypes(plan),
        interpretable=plan.variant.interpretable,
        configs=dict(_tuned_configs(skill, plan, chip)),
        stages=options.stages,
        cache=identity_of(skill, plan.variant).root_digest[:16],
        seed=seed,
        timeout_s=options.timeout_s,
    )
    judgement = judge(request, pool, device, report)
    keep = _keeper(skill, plan, asked, kept, options.record)
    for judged in judgement.judged:
        keep(judged)
    return VariantRun(
        definition=plan.definition.name,
        variant=plan.variant.id,
        why=plan.why,
        rejected=plan.rejected,
        judgement=judgement,
        quoted=_quoted(skill, plan, chip, judgement),
    )


def _checked_dtypes(plan: Plan) -> tuple[str, ...]:
    """Return the dtypes that the package's own checks run in: those of the first type variable."""
    for name, dtypes in plan.definition.dtypes.items():
        return plan.variant.dtypes.get(name, dtypes)
    return ("float32",)


def _tuned_configs(
    skill: Skill, plan: Plan, target: Target
) -> Iterator[tuple[str, Mapping[str, Scalar]]]:
    if not plan.variant.parameters:
        return
    store, digest = TunedStore(), variant_digest(skill, plan.variant)
    for workload in plan.workloads:
        shape = shape_of_workload(plan.definition, workload)
        tuned = store.get(digest, plan.definition.name, shape, target.arch, toolchain())
        if tuned is not None:
            yield workload.uuid, tuned.config


def _keeper(
    skill: Skill, plan: Plan, asked: Target, seed: Seed, record: bool
) -> Callable[[Judged], None]:
    """Return what appends one outcome to the evidence."""
    identity = identity_of(skill, plan.variant)
    digest = content_digest(plan.definition)
    stores = [home_evidence(skill.name), *([own_evidence(skill)] if record else [])]

    def keep(judged: Judged) -> None:
        if judged.evaluation.status == "SKIPPED":
            return
        trace = Trace(
            definition=plan.definition.name,
            workload=judged.workload,
            solution=f"{skill.name}.{plan.definition.name}.{plan.variant.id}",
            evaluation=judged.evaluation,
            definition_digest=digest,
            skill=identity,
            requested_target=asked.name,
            seed=seed,
        )
        for store in stores:
            store.append(trace)

    return keep


def _quoted(skill: Skill, plan: Plan, target: Target, judgement: Judgement) -> dict[str, Trace]:
    """Return the newest evidence for each bench Workload that was not measured now."""
    quoted = {}
    for judged in judgement.judged:
        if judged.workload.purpose != "bench" or judged.evaluation.status != "SKIPPED":
            continue
        trace = newest_match(skill, plan.variant, judged.workload, target.arch)
        if trace is not None:
            quoted[judged.workload.uuid] = trace
    return quoted
