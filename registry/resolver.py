"""Pick the variant for a chip, a toolchain and a shape, and say why each other one was not picked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from kernel_skills.executor.errors import InvalidPackage, Unsatisfiable
from kernel_skills.executor.expressions import holds
from kernel_skills.executor.models import Definition, Record, Scalar, Workload
from kernel_skills.executor.targets import Target, load_targets
from kernel_skills.executor.trace import Evaluation, IncorrectNumerical, Passed, Trace
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.evidence import current_evidence
from kernel_skills.registry.models import Skill, Variant
from kernel_skills.registry.shape import Shape, shape_of, shape_of_workload

CPU_ARCH = "cpu"
ANY_ARCH = "any"
_WRONG = ("INCORRECT_SHAPE", "INCORRECT_DTYPE", "NONDETERMINISTIC", "CHEATING")


class Rejection(Record):
    """A variant that was not picked, with the reason in words."""

    variant: Variant
    reason: str


class Resolution(Record):
    """The variant that was picked."""

    chosen: Variant
    reason: str
    """Why it was picked among those that fit."""
    rejected: tuple[Rejection, ...] = ()


@dataclass(frozen=True)
class _Call:
    """What a variant has to fit."""

    definition: Definition
    arch: str
    toolchain: Mapping[str, str]
    shape: Shape | None


def resolve(
    skill: Skill,
    definition_name: str,
    target: Target | str,
    toolchain: Mapping[str, str],
    workload: Workload | None = None,
    *,
    axes: Mapping[str, int] | None = None,
    dtypes: Mapping[str, str] | None = None,
    scalars: Mapping[str, Scalar] | None = None,
    evidence: Iterable[Trace] | None = None,
) -> Resolution:
    """Pick a variant of a definition.

    Args:
        target: a Target, its name, or an architecture (`sm_90`; `cpu` is the interpreter).
        toolchain: versions of `torch` and `triton`.
        workload: the call; or give `axes`, `dtypes` and `scalars`. Without axes no constraint is checked, without a
            type variable's dtype no variant is rejected for it.
        evidence: Traces to decide by; default: all current ones of the skill.

    Raises:
        NotFound: no such definition.
        Unsatisfiable: no variant fits; every reason is listed.
        InvalidPackage: a constraint or a toolchain range of the package is malformed.
    """
    definition = skill.manifest.definition_named(definition_name)
    if workload is not None:
        shape: Shape | None = shape_of_workload(definition, workload)
    else:
        shape = (
            shape_of(definition, axes or {}, dtypes, scalars)
            if axes is not None or dtypes
            else None
        )
    call = _Call(definition, arch_of(target), toolchain, shape)
    fitting, rejected = _sift(skill, call)
    measured = _Measurements(skill, call, current_evidence(skill) if evidence is None else evidence)
    for variant in list(fitting):
        if reason := measured.wrong(variant):
            fitting.remove(variant)
            rejected.append(Rejection(variant=variant, reason=reason))
    if not fitting:
        raise _unsatisfiable(skill, call, rejected)
    return _pick(fitting, rejected, measured)


def arch_of(target: Target | str) -> str:
    """Return the architecture of a Target, of a Target's name, or the text itself."""
    if isinstance(target, Target):
        return target.arch
    known = load_targets().get(target)
    return known.arch if known else target


# --- what fits --------------------------------------------------------------------------------


def _sift(skill: Skill, call: _Call) -> tuple[list[Variant], list[Rejection]]:
    fitting: list[Variant] = []
    rejected: list[Rejection] = []
    for variant in skill.manifest.variant:
        if variant.definition != call.definition.name:
            continue
        if reason := next(_objections(variant, call), ""):
            rejected.append(Rejection(variant=variant, reason=reason))
        else:
            fitting.append(variant)
    return fitting, rejected


def _objections(variant: Variant, call: _Call) -> Iterator[str]:
    if ANY_ARCH not in variant.archs and call.arch not in variant.archs:
        yield f"made for {', '.join(variant.archs)}, not for {call.arch}"
    if call.arch == CPU_ARCH and not variant.interpretable:
        yield "does not run in the interpreter, and the cpu has nothing else"
    for package, wanted in variant.requires.model_dump().items():
        yield from _toolchain_objection(package, wanted, call.toolchain.get(package))
    if call.shape is not None:
        yield from _dtype_objections(variant, call.definition, call.shape)
        if call.shape.axes:
            yield from _constraint_objections(variant, call.definition, call.shape)


def _toolchain_objection(package: str, wanted: str, there: str | None) -> Iterator[str]:
    if not wanted:
        return
    if there is None:
        yield f"needs {package} {wanted}, and none is installed"
        return
    try:
        # the base version, because vendors ship a finished 2.11 as 2.11.0a0+build
        fits = Version(Version(there).base_version) in SpecifierSet(wanted)
    except InvalidVersion:
        yield f"needs {package} {wanted}, and {there!r} is no version"
        return
    except ValueError as error:
        raise InvalidPackage(f"{package} range {wanted!r}: {error}") from None
    if not fits:
        yield f"needs {package} {wanted}, here is {there}"


def _dtype_objections(variant: Variant, definition: Definition, shape: Shape) -> Iterator[str]:
    for name, dtype in shape.dtypes.items():
        taken = variant.dtypes.get(name, definition.dtypes.get(name, ()))
        if name in definition.dtypes and dtype not in taken:
            yield f"takes {name} in {', '.join(taken)}, not in {dtype}"


def _constraint_objections(variant: Variant, definition: Definition, shape: Shape) -> Iterator[str]:
    names = shape.names
    for owner, constraints in (
        ("the definition", definition.constraints),
        ("the variant", variant.constraints),
    ):
        for constraint in constraints:
            if not holds(constraint, names):
                used = ", ".join(f"{n}={v}" for n, v in names.items() if n in constraint)
                yield f"{owner} asks for `{constraint}`" + (f" ({used})" if used else "")


def _unsatisfiable(skill: Skill, call: _Call, rejected: Iterable[Rejection]) -> Unsatisfiable:
    reasons = "; ".join(f"{rejection.variant.id}: {rejection.reason}" for rejection in rejected)
    what = f"{skill.name}: no variant of {call.definition.name} fits {call.arch}"
    return Unsatisfiable(f"{what}: {reasons or 'it has none'}")


# --- what is fastest --------------------------------------------------------------------------


class _Measurements:
    """Evidence on one architecture about the variants of one definition; of several Traces the newest.

    Verdicts and latencies apart: a later run that only verifies leaves the measurement standing.
    """

    def __init__(self, skill: Skill, call: _Call, evidence: Iterable[Trace]) -> None:
        self._skill = skill
        self._call = call
        self._key = call.shape.key if call.shape else ""
        self._digests: dict[str, str] = {}
        self._verdicts: dict[tuple[str, str], Evaluation] = {}
        self._timed: dict[tuple[str, str], Passed] = {}
        for trace in evidence:
            self._add(trace)

    def wrong(self, variant: Variant) -> str:
        """Return why the variant must not be used: its newest verdict on this shape, by this compiler, is wrong."""
        outcome = self._verdicts.get((self._digest(variant), self._key))
        if outcome is None or outcome.environment.libs.get("triton") != self._call.toolchain.get(
            "triton"
        ):
            return ""
        if isinstance(outcome, IncorrectNumerical) or outcome.status in _WRONG:
            return f"was judged {outcome.status} here on this shape on {outcome.timestamp:%Y-%m-%d}"
        return ""

    def compare(self, one: Variant, other: Variant) -> tuple[float, float] | None:
        """Return comparable latencies in milliseconds, or None where no shape was measured with both.

        Those of the call's own shape, else the geometric means over the shapes that both have.
        """
        left, right = self._latencies(one), self._latencies(other)
        common = left.keys() & right.keys()
        if self._key in common:
            return left[self._key], right[self._key]
        if not common:
            return None
        return _geometric_mean(left[k] for k in common), _geometric_mean(right[k] for k in common)

    def _add(self, trace: Trace) -> None:
        outcome = trace.evaluation
        if outcome is None or trace.skill is None or trace.definition != self._call.definition.name:
            return
        if outcome.environment.arch != self._call.arch or outcome.status in (
            "SKIPPED",
            "INTERRUPTED",
        ):
            return
        key = (
            trace.skill.variant_digest,
            shape_of_workload(self._call.definition, trace.workload).key,
        )
        if key not in self._verdicts or self._verdicts[key].timestamp <= outcome.timestamp:
            self._verdicts[key] = outcome
        if not isinstance(outcome, Passed) or outcome.performance is None:
            return
        if key not in self._timed or self._timed[key].timestamp <= outcome.timestamp:
            self._timed[key] = outcome

    def _latencies(self, variant: Variant) -> dict[str, float]:
        digest = self._digest(variant)
        return {
            shape: outcome.performance.latency_ms
            for (of, shape), outcome in self._timed.items()
            if of == digest and outcome.performance is not None
        }

    def _digest(self, variant: Variant) -> str:
        if variant.id not in self._digests:
            self._digests[variant.id] = variant_digest(self._skill, variant)
        return self._digests[variant.id]


def _geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _pick(fitting: list[Variant], rejected: list[Rejection], measured: _Measurements) -> Resolution:
    """Take the preferred variant unless one that was measured beside it is faster."""
    by_preference = sorted(fitting, key=lambda variant: -variant.preference)
    chosen, reason = by_preference[0], "the only variant that fits"
    if len(fitting) > 1:
        reason = f"preference {chosen.preference}, and nothing that fits was measured faster"
    for challenger in by_preference[1:]:
        times = measured.compare(challenger, chosen)
        if times and times[0] < times[1]:
            reason = f"measured {times[0]:.4g} ms, {chosen.id} {times[1]:.4g} ms"
            chosen = challenger
    losers = (variant for variant in by_preference if variant is not chosen)
    return Resolution(
        chosen=chosen,
        reason=reason,
        rejected=(
            *rejected,
            *(Rejection(variant=v, reason=_lost(v, chosen, measured)) for v in losers),
        ),
    )


def _lost(variant: Variant, chosen: Variant, measured: _Measurements) -> str:
    if times := measured.compare(variant, chosen):
        return f"fits, but was measured at {times[0]:.4g} ms, {chosen.id} at {times[1]:.4g} ms"
    return f"fits, but was not measured beside {chosen.id}, whose preference is {chosen.preference}"
