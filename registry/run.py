"""Run a skill: pick variants, have them judged, keep the Traces, quote evidence where nothing could be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from kernel_skills.executor.environment import (
    Device,
    cpu_environment,
    device_environment,
    find_device,
    gpu_in_words,
)
from kernel_skills.executor.errors import DeviceQuarantined, NoDevice, UsageError
from kernel_skills.executor.judge import JudgeRequest, Report, judge
from kernel_skills.executor.judgement import Judged, Judgement, JudgementCut
from kernel_skills.executor.models import Record, Scalar
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.run_journal import Pledge
from kernel_skills.executor.sandbox import SandboxChoice
from kernel_skills.executor.seeds import secret_seed
from kernel_skills.executor.targets import Target
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.executor.trace import Failed, Seed, Trace
from kernel_skills.registry.digest import definition_digest, variant_digest
from kernel_skills.registry.evidence import home_evidence, newest_match, own_evidence, run_journal
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import identity_of, solution_of, task_of
from kernel_skills.registry.plans import Plan, Selection, make_plans
from kernel_skills.registry.resolver import Rejection
from kernel_skills.registry.shape import shape_of_workload
from kernel_skills.registry.tuned import TunedStore
from kernel_skills.registry.validate_contract import require_runnable


class RunOptions(Selection):
    """What to run and how."""

    device: int = 0
    """As torch counts."""
    require_hardware: bool = False
    record: bool = False
    seed: int = 0
    timeout_s: float = 120.0
    sandbox: SandboxChoice = "embedded"


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
        return self.verdict == "accepted"

    @property
    def verdict(self) -> Literal["accepted", "not accepted", "not verified"]:
        """`not verified`: nothing failed, but nothing ran that could have; compiled at most."""
        verdicts = {run.judgement.verdict for run in self.runs}
        if not verdicts or "not accepted" in verdicts:
            return "not accepted"
        return "accepted" if "accepted" in verdicts else "not verified"


def run_skill(
    skill: Skill, target: Target, options: RunOptions, report: Report | None = None
) -> SkillRun:
    """Judge a skill's variants for a target.

    Raises:
        InvalidPackage: a workload or a variant breaks its definition.
        NoDevice: hardware was required and no GPU here has the target's architecture.
        NotFound: a filter names nothing.
        Unsatisfiable: no variant fits the target.
        UsageError: what is asked for does not exist on a CPU.
    """
    require_runnable(skill)
    run_journal().settle()
    if target.backend == "cpu":
        _check_for_cpu(skill, options)
    with LocalPool(sandbox=options.sandbox) as pool:
        device, here = _device_here(pool, options)
        fitting = device if device and device.arch == target.arch else None
        if fitting is None and options.require_hardware:
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
            note=_note(target, here, fitting),
            runs=tuple(runs),
        )


def _check_for_cpu(skill: Skill, options: RunOptions) -> None:
    """The interpreter verifies; it compiles nothing, and its time says nothing about a kernel."""
    if options.require_hardware:
        raise UsageError("nothing is measured on a CPU; name a chip: `skills targets` lists them")
    if "compile" in options.stages and "verify" not in options.stages:
        raise UsageError(
            "there is nothing to compile for a CPU: kernels run there in Triton's interpreter; name a chip, "
            f"or `skills verify {skill.name} --target cpu`"
        )


def _device_here(pool: LocalPool, options: RunOptions) -> tuple[Device | None, str]:
    """Return the GPU and a clause that says which it is; a chip that no Target describes is none to measure on."""
    try:
        device = find_device(pool, options.device)
    except DeviceQuarantined:
        raise
    except NoDevice as unknown:
        return None, str(unknown)
    return device, gpu_in_words(device)


def _note(target: Target, here: str, fitting: Device | None) -> str:
    if fitting and fitting.target.name != target.name:
        return (
            f"asked for {target.name}; measured on {fitting.hardware}, which has the same architecture "
            f"({target.arch}), and recorded as {fitting.target.name}"
        )
    if fitting:
        return f"measured on {fitting.hardware}"
    compiled = "nothing compiled" if target.backend == "cpu" else f"compiled for {target.arch}"
    return f"{here}: {compiled}, verified in Triton's interpreter, nothing measured"


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
    trace = _tracer(skill, plan, asked, kept)
    with run_journal().pledged(list(_pledges(skill, plan, device, pool, trace))):
        stores = [home_evidence(skill.name), *([own_evidence(skill)] if options.record else [])]

        def keep(judgement: Judgement) -> None:
            for judged in judgement.judged:
                if judged.evaluation.status != "SKIPPED":
                    for store in stores:
                        store.append(trace(judged))

        try:
            judgement = judge(request, pool, device, report)
        except JudgementCut as cut:
            # what had its turn before stays true
            keep(cut.judgement)
            raise
        keep(judgement)
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
        tuned = store.get(digest, plan.definition.name, shape, target.arch, installed_toolchain())
        if tuned is not None:
            yield workload.uuid, tuned.config


def _tracer(skill: Skill, plan: Plan, asked: Target, seed: Seed) -> Callable[[Judged], Trace]:
    """Return what makes a line of evidence of an outcome."""
    identity = identity_of(skill, plan.variant)
    digest = definition_digest(plan.definition)

    def trace(judged: Judged) -> Trace:
        return Trace(
            definition=plan.definition.name,
            workload=judged.workload,
            solution=f"{skill.name}.{plan.definition.name}.{plan.variant.id}",
            evaluation=judged.evaluation,
            definition_digest=digest,
            skill=identity,
            requested_target=asked.name,
            seed=seed,
        )

    return trace


def _pledges(
    skill: Skill,
    plan: Plan,
    device: Device | None,
    pool: LocalPool,
    trace: Callable[[Judged], Trace],
) -> Iterator[Pledge]:
    """Yield what the evidence is to say if this run is killed."""
    found = device_environment(device) if device else cpu_environment()
    environment = found.model_copy(update={"sandbox": pool.sandbox})
    cut = Failed(
        status="INTERRUPTED", environment=environment, log="the run was killed before its end"
    )
    file = home_evidence(skill.name).file(plan.definition.name)
    for workload in plan.workloads:
        if device is not None or workload.purpose != "bench":
            judged = Judged(workload=workload, evaluation=cut)
            yield Pledge(file=file, line=trace(judged).model_dump_json())


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
