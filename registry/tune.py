"""Tune a skill for one shape on the GPU at hand: search, decide, verify, keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from kernel_skills.executor.environment import Device, find_device, gpu_in_words
from kernel_skills.executor.errors import NoDevice, NotFound, Unsatisfiable, UsageError
from kernel_skills.executor.judge import JudgeRequest
from kernel_skills.executor.lint import lint
from kernel_skills.executor.models import Definition, Record, Workload, content_digest
from kernel_skills.executor.performance import assess_performance
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.sandbox import SandboxChoice
from kernel_skills.executor.seeds import secret_seed
from kernel_skills.executor.session import Session
from kernel_skills.executor.targets import Target
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.executor.workload_values import definition_dtypes, workload_names
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.models import Skill, Variant
from kernel_skills.registry.package import solution_of, task_of
from kernel_skills.registry.plans import Selection, make_plans
from kernel_skills.registry.resolver import resolve
from kernel_skills.registry.shape import Shape, shape_of_workload
from kernel_skills.registry.tune_pick import Pick, Verified, pick_winner
from kernel_skills.registry.tune_search import Config, Reading, Search, Space, Trial, search
from kernel_skills.registry.tune_shape import workload_to_tune
from kernel_skills.registry.tuned import Tuned, TunedStore

Say = Callable[[str], None]
_LOG_CHARACTERS = 300


class TuneOptions(Record):
    """What to tune and how long."""

    workload: str
    """A workload's name, axes, or both; see `tune_shape`."""
    definition: str = ""
    variant: str = ""
    trials: int = 40
    budget_s: float = 300.0
    """For the search; measuring the winner again and verifying it come on top."""
    device: int = 0
    seed: int = 0
    timeout_s: float = 60.0
    sandbox: SandboxChoice = "embedded"


class Tuning(Record):
    """Everything that one `skills tune` found."""

    skill: str
    version: str
    definition: str
    variant: str
    workload: Workload
    target: Target
    device: Device
    method: Literal["grid", "tpe"]
    combinations: int
    """Of the declared values, those that constraints forbid included."""
    earlier: Config | None = None
    """What an earlier search had kept for this shape."""
    trials: tuple[Trial, ...]
    """Measured ones, fastest first; then those that failed."""
    pick: Pick
    stored: bool
    """Whether `run` and `load_kernel` will use the winner from now on."""
    interrupted: bool = False
    out_of_time: bool = False


def tune_skill(
    skill: Skill, target: Target, options: TuneOptions, say: Say | None = None
) -> Tuning:
    """Search the parameters of the variant that the target takes for a shape.

    Args:
        say: told in words how the search goes.

    Raises:
        NoDevice: no GPU here has the target's architecture.
        NotFound: a filter names nothing.
        Unsatisfiable: no variant fits the target and the shape.
        UsageError: the shape is malformed, the variant has nothing to tune, or Optuna is needed and missing.
        InvalidPackage: the variant does not pass lint, or the reference does not load.
    """
    workload = workload_to_tune(skill, options.workload, options.definition)
    definition = skill.manifest.definition_named(workload.definition)
    variant = _variant(skill, definition, target, workload, options.variant)
    with LocalPool(sandbox=options.sandbox) as pool:
        device = find_device(pool, options.device)
        if device is None or device.arch != target.arch:
            raise NoDevice(
                f"tuning for {target.name} needs a GPU of architecture {target.arch}, and {gpu_in_words(device)}"
            )
        return _Tuner(skill, definition, variant, workload, device, options, pool, say).run()


def _variant(
    skill: Skill, definition: Definition, target: Target, workload: Workload, name: str
) -> Variant:
    """Return the variant to tune: the one asked for, else the one that `run` would take."""
    variants = [v for v in skill.manifest.variant if v.definition == definition.name]
    if name:
        if name not in [variant.id for variant in variants]:
            raise NotFound.named(f"variant of {definition.name}", name, [v.id for v in variants])
        variants = [variant for variant in variants if variant.id == name]
        manifest = skill.manifest.model_copy(update={"variant": tuple(variants)})
        skill = skill.model_copy(update={"manifest": manifest})
    chosen = resolve(skill, definition.name, target, installed_toolchain(), workload).chosen
    if not chosen.parameters:
        others = [variant.id for variant in variants if variant.parameters]
        hint = f"; --variant {' or '.join(others)} has" if others else ""
        raise UsageError(
            f"variant {chosen.id} of {definition.name} declares no parameters to tune{hint}"
        )
    return chosen


class _Tuner:
    """One run of `tune_skill`, on a device."""

    def __init__(
        self,
        skill: Skill,
        definition: Definition,
        variant: Variant,
        workload: Workload,
        device: Device,
        options: TuneOptions,
        pool: LocalPool,
        say: Say | None,
    ) -> None:
        self._skill, self._definition, self._variant = skill, definition, variant
        self._workload, self._device, self._options, self._pool = workload, device, options, pool
        self._say: Say = say or (lambda _: None)
        self._session: Session | None = None
        self._store, self._digest = TunedStore(), variant_digest(skill, variant)
        self._request = JudgeRequest(
            task=task_of(skill, definition), solution=solution_of(skill, variant), workloads=(workload,),
            target=device.target, constraints=variant.constraints, seed=secret_seed(options.seed)[0],
            timeout_s=options.timeout_s,
        )  # fmt: skip

    def run(self) -> Tuning:
        dtypes = definition_dtypes(self._request.task.definition)
        if findings := lint(self._request.solution, dtypes=dtypes):
            raise UsageError(f"{self._request.solution.name} does not pass lint: {findings[0]}")
        earlier = self._earlier()
        try:
            with self._pool.gpu_lock(self._device.identity):
                default, found = self._search(earlier)
                if found.interrupted:
                    # the interrupt may have cut a request in half, so what is asked next needs a fresh worker
                    self._close()
                    self._say(
                        "interrupted: the best so far is measured again; Ctrl-C once more drops it"
                    )
                pick = pick_winner(found.ranked, default, self._measure, self._verify)
        finally:
            self._close()
        stored = self._keep(pick, len(found.trials), earlier)
        return Tuning(
            skill=self._skill.name, version=str(self._skill.version), definition=self._definition.name,
            variant=self._variant.id, workload=self._workload, target=self._device.target,
            device=self._device, method=found.method, combinations=self._space(self._workload).size,
            earlier=earlier.config if earlier else None, trials=order_trials(found, pick), pick=pick,
            stored=stored, interrupted=found.interrupted, out_of_time=found.out_of_time,
        )  # fmt: skip

    def _search(self, earlier: Tuned | None) -> tuple[Reading, Search]:
        self._say("measuring the default")
        default, best = self._measure({}), [float("inf")]
        if default.median_ms is not None:
            best[0] = default.median_ms

        def progress(done: int, planned: int, trial: Trial) -> None:
            best[0] = min(best[0], trial.median_ms)
            now = f"{trial.median_ms:.4g} ms" if trial.reading.good else trial.reading.status
            self._say(
                f"trial {done}/{planned}: {now}, best {best[0]:.4g} ms, {words_of(trial.config)}"
            )

        found = search(
            self._space(self._workload), self._measure, trials=self._options.trials,
            budget_s=self._options.budget_s, seed=self._options.seed,
            first=[earlier.config] if earlier else [], progress=progress,
        )  # fmt: skip
        return default, found

    def _space(self, workload: Workload) -> Space:
        names = workload_names(self._definition, workload)
        return Space(self._variant.parameters, self._variant.parameter_constraints, names)

    # --- measuring ----------------------------------------------------------------------------

    def _measure(self, config: Config) -> Reading:
        """Check a configuration's output and time it. What goes wrong is a reading, too."""
        answer = self._open().bench(self._workload, baselines=False, config=dict(config))
        timing = answer.get("timing")
        if answer["status"] != "PASSED" or not timing:
            return Reading(status=answer["status"], reason=_short(answer.get("log", "")))
        judged = assess_performance(
            self._definition, self._workload, self._device.target, answer, config
        )
        if isinstance(judged, str):
            return Reading(status="CHEATING", reason=judged)
        return Reading(
            status="PASSED", median_ms=timing["median_ms"], p20_ms=timing["p20_ms"],
            p80_ms=timing["p80_ms"],
        )  # fmt: skip

    def _open(self) -> Session:
        if self._session is None:
            self._session = self._new_session(self._request)
        return self._session

    def _new_session(self, request: JudgeRequest) -> Session:
        cache = content_digest(request.solution)[:16]
        return Session(request, self._pool, "device", self._device.place, cache)

    def _close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _verify(self, config: Config) -> list[Verified]:
        """Verify a configuration on every smoke and edge workload that fits variant and configuration."""
        session = self._new_session(self._request.model_copy(update={"config": dict(config)}))
        verified = []
        try:
            for workload in self._checked_workloads(config):
                self._say(f"verifying {words_of(config)} on {workload.name}")
                answer = session.verify(workload)
                log = _short(answer.get("log", ""))
                verified.append(Verified(workload=workload.name, status=answer["status"], log=log))
        finally:
            session.close()
        return verified

    def _checked_workloads(self, config: Config) -> list[Workload]:
        selection = Selection(
            definition=self._definition.name, variant=self._variant.id, stages=("lint", "verify")
        )
        try:
            plans = list(make_plans(self._skill, self._device.target, selection, self._device))
        except Unsatisfiable:
            return []
        fitting = [workload for plan in plans for workload in plan.workloads]
        return [workload for workload in fitting if self._space(workload).allows(config)]

    # --- keeping ------------------------------------------------------------------------------

    def _shapes(self) -> list[Shape]:
        """Return the shape as `load_kernel` and as `run` look it up; a workload may leave dtypes to the default."""
        own = (self._definition.name, self._workload.name)
        named = [w for w in self._skill.manifest.workload if (w.definition, w.name) == own]
        shapes = [shape_of_workload(self._definition, w) for w in (self._workload, *named)]
        return list({shape.key: shape for shape in shapes}.values())

    def _earlier(self) -> Tuned | None:
        return self._store.get(
            self._digest,
            self._definition.name,
            self._shapes()[0],
            self._device.arch,
            installed_toolchain(),
        )

    def _keep(self, pick: Pick, tried: int, earlier: Tuned | None) -> bool:
        """Store the winner; where the default beat what an earlier search had kept, the default replaces it."""
        if pick.winner is None and earlier is None:
            return False
        reading = pick.winner.reading if pick.winner else pick.default[-1]
        if pick.winner is None and not reading.good:
            return False
        for shape in self._shapes():
            result = Tuned(
                shape=shape, arch=self._device.arch, toolchain=installed_toolchain(),
                config=pick.winner.config if pick.winner else {}, latency_ms=reading.median_ms, tried=tried,
            )  # fmt: skip
            self._store.put(self._digest, self._definition.name, result)
        return True


def order_trials(found: Search, pick: Pick) -> tuple[Trial, ...]:
    """Return measured trials fastest first, then the failed; what was dropped in the end carries its reason."""
    dropped = {words_of(trial.config): trial for trial in pick.dropped}
    trials = [dropped.get(words_of(trial.config), trial) for trial in found.trials]
    return tuple(sorted(trials, key=lambda trial: (not trial.reading.good, trial.median_ms)))


def words_of(config: Config) -> str:
    return " ".join(f"{name}={value}" for name, value in config.items()) or "default"


def _short(log: str) -> str:
    """Return the last lines of a log: they name the error."""
    return " ".join(log.split())[-_LOG_CHARACTERS:]
