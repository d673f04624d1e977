"""Profile a skill: counters where the chip and the tool are here, the analytic roofline everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_skills.executor.environment import Device, find_device, gpu_in_words
from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.judge import JudgeRequest, Report, judge
from kernel_skills.executor.judgement import Judgement
from kernel_skills.executor.models import Record, Scalar, Workload
from kernel_skills.executor.ncu import NoCounters, collect, find_ncu
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.profile import (
    AnalyticProfile,
    CounterProfile,
    ProfileRequest,
    analytic_profile,
)
from kernel_skills.executor.targets import Target
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.evidence import newest_match
from kernel_skills.registry.models import Skill
from kernel_skills.registry.package import solution_of, task_of
from kernel_skills.registry.plans import Plan, Selection, make_plans
from kernel_skills.registry.shape import shape_of_workload
from kernel_skills.registry.tuned import TunedStore


class ProfileOptions(Record):
    """What to profile; empty filters mean every bench Workload."""

    workload: str = ""
    definition: str = ""
    variant: str = ""
    device: int = 0
    compiled: bool = True
    """Also compile for the chip, for registers, spills and occupancy."""
    timeout_s: float = 120.0


class WorkloadProfile(Record):
    """One Workload of one variant."""

    definition: str
    variant: str
    workload: str
    config: Mapping[str, Scalar] = {}
    counters: CounterProfile | None = None
    analytic: AnalyticProfile
    note: str = ""
    """Why there are no counters, or what did not compile."""

    @property
    def bottleneck(self) -> str:
        """The one line: from counters where there are any."""
        return self.counters.bottleneck.text if self.counters else self.analytic.text


class SkillProfile(Record):
    """Everything that one `skills profile` found."""

    skill: str
    version: str
    target: Target
    device: Device | None
    why_no_counters: str
    """Empty where counters were read."""
    profiles: tuple[WorkloadProfile, ...]


def profile_skill(
    skill: Skill, target: Target, options: ProfileOptions, report: Report | None = None
) -> SkillProfile:
    """Profile a skill's variants for a target.

    Raises:
        NotFound: a filter names nothing.
        Unsatisfiable: no variant fits the target.
        UsageError: the skill has no kernels, or the target is the CPU.
    """
    if target.backend == "cpu":
        raise UsageError(
            "there is nothing to profile on a CPU; name a chip: `skills targets` lists them"
        )
    with LocalPool() as pool:
        device = find_device(pool, options.device)
        if options.compiled:
            # from this thread: a worker process ends with the thread that started it
            pool.warm("device")
        fitting = device if device and device.arch == target.arch else None
        ncu = find_ncu()
        why = _why_no_counters(target, device, fitting, ncu)
        chip = fitting.target if fitting else target
        profiling = _Profiling(
            skill, chip, options, pool, None if why else fitting, ncu or "", report
        )
        selection = Selection(
            workload=options.workload, definition=options.definition, variant=options.variant
        )
        plans = list(make_plans(skill, chip, selection, fitting))
        profiles = [profile for plan in plans for profile in profiling.plan(plan)]
    return SkillProfile(
        skill=skill.name, version=str(skill.version), target=chip, device=fitting, why_no_counters=why,
        profiles=tuple(profiles),
    )  # fmt: skip


def _why_no_counters(
    target: Target, device: Device | None, fitting: Device | None, ncu: str | None
) -> str:
    if fitting is None:
        wanted = f", not {target.arch}" if device else ""
        return f"{gpu_in_words(device)}{wanted}"
    if target.backend != "cuda":
        return f"no counters are read on {target.backend} chips"
    return "" if ncu else "ncu is not on the PATH; it comes with the CUDA toolkit (Nsight Compute)"


class _Profiling:
    """One run of `profile_skill`."""

    def __init__(
        self,
        skill: Skill,
        chip: Target,
        options: ProfileOptions,
        pool: LocalPool,
        device: Device | None,
        ncu: str,
        report: Report | None,
    ) -> None:
        self._skill, self._chip, self._options, self._pool = skill, chip, options, pool
        self._device, self._ncu = device, ncu
        self._report: Report = report or (lambda *_: None)

    def plan(self, plan: Plan) -> list[WorkloadProfile]:
        """Profile the bench Workloads of a plan, or the one that was named."""
        workloads = [w for w in plan.workloads if self._options.workload or w.purpose == "bench"]
        if not workloads:
            return []
        configs = {w.uuid: self._tuned(plan, w) for w in workloads}
        judgement = self._judge(plan, workloads, configs)
        profiles = []
        for position, workload in enumerate(workloads):
            self._report("profile", position, len(workloads), workload.name)
            profiles.append(self._workload(plan, workload, configs[workload.uuid], judgement))
        return profiles

    def _judge(
        self, plan: Plan, workloads: list[Workload], configs: Mapping[str, Mapping[str, Scalar]]
    ) -> Judgement:
        """Lint before anything runs; compile for what the machine code says."""
        request = JudgeRequest(
            task=task_of(self._skill, plan.definition),
            solution=solution_of(self._skill, plan.variant),
            workloads=tuple(workloads), target=self._chip, configs=configs,
            stages=("lint", "compile") if self._options.compiled else ("lint",),
            timeout_s=self._options.timeout_s,
        )  # fmt: skip
        return judge(request, self._pool, self._device, self._report)

    def _workload(
        self, plan: Plan, workload: Workload, config: Mapping[str, Scalar], judgement: Judgement
    ) -> WorkloadProfile:
        outcome = next(j.evaluation for j in judgement.judged if j.workload.uuid == workload.uuid)
        note = ""
        if judgement.findings:
            note = f"not run: {judgement.findings[0]}"
        elif outcome.status not in ("SKIPPED", "PASSED"):
            note = f"{outcome.status}: {outcome.log[:400]}"
        counters = None
        if self._device is not None and not judgement.findings:
            try:
                counters = self._counters(plan, workload, config, self._device)
            except NoCounters as error:
                note = str(error)
        evidence = newest_match(self._skill, plan.variant, workload, self._chip.arch)
        return WorkloadProfile(
            definition=plan.definition.name, variant=plan.variant.id, workload=workload.name,
            config=config, counters=counters, note=note,
            analytic=analytic_profile(
                plan.definition, workload, self._chip, outcome.kernels, evidence
            ),
        )  # fmt: skip

    def _counters(
        self, plan: Plan, workload: Workload, config: Mapping[str, Scalar], device: Device
    ) -> CounterProfile:
        request = ProfileRequest(
            task=task_of(self._skill, plan.definition),
            solution=solution_of(self._skill, plan.variant),
            workload=workload, place=device.place, config=config,
        )  # fmt: skip
        with self._pool.gpu_lock(device.identity):
            return collect(request, self._ncu, device.hardware, self._options.timeout_s)

    def _tuned(self, plan: Plan, workload: Workload) -> Mapping[str, Scalar]:
        """Return the configuration that `skills run` would use."""
        if not plan.variant.parameters:
            return {}
        found = TunedStore().get(
            variant_digest(self._skill, plan.variant), plan.definition.name,
            shape_of_workload(plan.definition, workload), self._chip.arch, installed_toolchain(),
        )  # fmt: skip
        return found.config if found else {}
