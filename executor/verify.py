"""Verify a candidate on one Workload against the float64 reference. Runs in the task worker."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernel_skills.executor.compare import Comparison, compare, factor
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.expected import Draw, Expected, expected_of
from kernel_skills.executor.expressions import evaluate, holds
from kernel_skills.executor.inputs import dtype_of
from kernel_skills.executor.models import RandomInput, Scalar, Workload
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.remote import CandidateFailed, Output, RemoteCandidate
from kernel_skills.executor.seeds import derive_seed
from kernel_skills.executor.workload_values import axis_values, shape_of, workload_names

_INTERPRETER_ELEMENTS = 1 << 22
_INTERPRETER_FLOPS = 2e9
_FUZZED_SHAPES = 2
_FUZZ_TRIES = 60


@dataclass
class Verdict:
    """What came of one Workload: a status, the errors seen, and what could not be looked at."""

    status: str = "PASSED"
    log: str = ""
    rule: str = ""
    """The check of the runtime that was not passed."""
    comparisons: list[Comparison] = field(default_factory=list)
    checks_not_run: list[str] = field(default_factory=list)
    torch_operators: dict[str, int] = field(default_factory=dict)
    """Operators of torch that computed in one call, with how often."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time by phase."""

    @property
    def passed(self) -> bool:
        return self.status == "PASSED"

    @contextlib.contextmanager
    def phase(self, name: str, device: str) -> Iterator[None]:
        """Add the time of the block, work on the device included, to a phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            if device != "cpu":
                torch.cuda.synchronize()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def correctness(self) -> dict[str, Any]:
        """Return the fields of `trace.Correctness`: the worst over all comparisons."""
        if not self.comparisons:
            return {"max_relative_error": 0.0, "max_absolute_error": 0.0}
        return {
            "max_relative_error": max(c.max_relative_error for c in self.comparisons),
            "max_absolute_error": max(c.max_absolute_error for c in self.comparisons),
            "extra": {
                "bound_share": max(c.bound_share for c in self.comparisons),
                "honest_share": max(c.honest_share for c in self.comparisons),
                "comparisons": len(self.comparisons),
                "assert_close": all(c.assert_close for c in self.comparisons),
            },
        }


class _Wrong(Exception):
    """Ends a verification with a status and a log."""

    def __init__(self, status: str, log: str, rule: str) -> None:
        super().__init__(log)
        self.status, self.log, self.rule = status, log, rule


@dataclass(frozen=True)
class Case:
    """One draw of inputs within a Workload."""

    title: str
    workload: Workload
    seed: int
    layout: str | None = None
    repeats: bool = False


def too_large_for_interpreter(reference: Reference, workload: Workload) -> str:
    """Return why a Workload is not run in the interpreter, or nothing."""
    definition = reference.definition
    axes = axis_values(definition, workload)
    elements = 0
    for spec in (*definition.tensor_inputs.values(), *definition.outputs.values()):
        elements += math.prod(shape_of(spec, axes))
    flops = float(evaluate(definition.flops, workload_names(definition, workload)))
    if elements > _INTERPRETER_ELEMENTS or flops > _INTERPRETER_FLOPS:
        return f"{elements:.2g} elements, {flops:.2g} FLOP: too large for the interpreter"
    return ""


def verify_workload(
    reference: Reference,
    candidate: RemoteCandidate,
    workload: Workload,
    *,
    seed: int,
    device: str,
    config: Mapping[str, Scalar],
    constraints: Sequence[str],
) -> Verdict:
    """Run every case of a Workload; the first failure ends it.

    Args:
        seed: joined with a secret by the caller.
        constraints: the variant's own, for fuzzed shapes to obey beside the definition's.

    Raises:
        CandidateFailed: the candidate's process is gone or lost its device.
    """
    verdict = Verdict()
    try:
        for case in _cases(reference, workload, seed, constraints, verdict):
            _run_case(reference, candidate, case, device, config, verdict)
    except _Wrong as wrong:
        verdict.status, verdict.log, verdict.rule = wrong.status, wrong.log, wrong.rule
    except CandidateFailed as failed:
        if failed.dead:
            raise
        verdict.status, verdict.log, verdict.rule = failed.status, failed.log, failed.rule
    return verdict


def _cases(
    reference: Reference,
    workload: Workload,
    seed: int,
    constraints: Sequence[str],
    verdict: Verdict,
) -> Iterator[Case]:
    """The workload as declared; a smoke workload also with strides, spikes and shapes of its own."""
    yield Case("as declared", workload, derive_seed(seed, workload.uuid, 0), repeats=True)
    if workload.purpose != "smoke" or workload.generator is not None:
        return
    yield Case("strided and offset inputs", workload, derive_seed(seed, workload.uuid, 1), "padded")
    yield Case("spiked values", _spiked(reference, workload), derive_seed(seed, workload.uuid, 2))
    fuzzed = list(_fuzzed(reference, workload, seed, constraints))
    yield from fuzzed
    if not fuzzed:
        verdict.checks_not_run.append("fuzzed shapes: none found that obeys the constraints")


def _spiked(reference: Reference, workload: Workload) -> Workload:
    """Return the workload with outliers in every input that is drawn from the plain normal distribution."""
    inputs = dict(workload.inputs)
    for name in reference.definition.tensor_inputs:
        given = inputs.get(name, RandomInput())
        if given == RandomInput():
            inputs[name] = RandomInput(distribution="spiked")
    return workload.model_copy(update={"inputs": inputs})


def _fuzzed(
    reference: Reference, workload: Workload, seed: int, constraints: Sequence[str]
) -> Iterator[Case]:
    """Yield seeded shapes near the workload's that obey every constraint."""
    dice = random.Random(derive_seed(seed, workload.uuid, "shapes"))
    definition = reference.definition
    variable = [name for name, axis in definition.axes.items() if axis.type == "var"]
    found: set[str] = set()
    for _ in range(_FUZZ_TRIES):
        axes = dict(workload.axes)
        for name in dice.sample(variable, dice.randint(1, len(variable))) if variable else ():
            axes[name] = dice.randint(1, max(2, axes[name] + axes[name] // 2))
        changed = workload.model_copy(update={"axes": axes})
        title = ", ".join(f"{name}={axes[name]}" for name in variable)
        names = workload_names(definition, changed)
        if axes == dict(workload.axes) or title in found:
            continue
        if not _allowed((*definition.constraints, *constraints), names):
            continue
        found.add(title)
        yield Case(f"fuzzed shape {title}", changed, derive_seed(seed, workload.uuid, title))
        if len(found) == _FUZZED_SHAPES:
            return


def _allowed(constraints: Sequence[str], names: Mapping[str, Any]) -> bool:
    try:
        return all(holds(text, names) for text in constraints)
    except InvalidPackage:
        return False


def _run_case(
    reference: Reference,
    candidate: RemoteCandidate,
    case: Case,
    device: str,
    config: Mapping[str, Scalar],
    verdict: Verdict,
) -> None:
    with verdict.phase("draw", device):
        tensors, scalars = reference.draw(case.workload, case.seed, device, case.layout)
    try:
        with verdict.phase("place", device):
            candidate.place(0, tensors)
        # the candidate runs before the reference, so freed memory never holds the answer
        with verdict.phase("call", device):
            outputs = candidate.call(0, scalars, config)
        verdict.torch_operators.update(candidate.torch_operators)
        with verdict.phase("reference", device):
            draw = Draw(case.workload, case.seed, device, case.layout)
            expected = expected_of(reference, draw, tensors, scalars)
        with verdict.phase("compare", device):
            check_outputs(reference, case.workload, outputs, expected, verdict)
        with verdict.phase("inputs", device):
            if not candidate.inputs_intact(0, tensors):
                raise _Wrong("CHEATING", "an input was changed by the call", "R-input-immut")
        if verdict.passed and case.repeats:
            with verdict.phase("repeat", device):
                first = [_cloned(output) for output in outputs]
                # the interpreter's order of programs is no device's; and a candidate may not tell by
                # torch's grad mode which call is looked at
                again = candidate.call(0, scalars, config, "reversed", gradients=False)
                _check_repeat(reference, case.workload, first, again, expected, verdict)
            with verdict.phase("ablate", device):
                if case.workload.purpose == "smoke" and verdict.passed:
                    _check_kernels_matter(reference, candidate, case, scalars, config, expected)
    except _Wrong as wrong:
        raise _Wrong(wrong.status, f"{case.title}: {wrong.log}", wrong.rule) from None
    except CandidateFailed as failed:
        log = f"{case.title}: {failed.log}"
        raise CandidateFailed(failed.status, log, failed.dead, failed.rule) from None
    if not verdict.passed:
        raise _Wrong(verdict.status, f"{case.title}: {verdict.log}", verdict.rule)


def _check_kernels_matter(
    reference: Reference,
    candidate: RemoteCandidate,
    case: Case,
    scalars: Mapping[str, Any],
    config: Mapping[str, Scalar],
    expected: Expected,
) -> None:
    """Without its launches a candidate must miss the answer, or fail: else the kernels are a decoy."""
    if not any(output.numel() for output in expected.exact):
        return
    without = Verdict()
    try:
        outputs = candidate.call(0, scalars, config, "none")
    except CandidateFailed as failed:
        if failed.dead:
            raise
        return
    check_outputs(reference, case.workload, outputs, expected, without)
    if without.passed:
        log = "the answer is right without its kernels: they are a decoy"
        raise _Wrong("CHEATING", log, "R-ablate")


def _cloned(output: Output) -> torch.Tensor:
    assert output.tensor is not None
    return output.tensor.clone()


def check_outputs(
    reference: Reference,
    workload: Workload,
    outputs: Sequence[Output],
    expected: Expected,
    verdict: Verdict,
) -> None:
    """Compare all outputs; on the first that fails, set the verdict's status, log and rule."""
    names = list(reference.definition.outputs)
    forms = reference.expected(workload)
    if len(outputs) != len(names):
        verdict.status, verdict.rule = "INCORRECT_SHAPE", "R-type"
        verdict.log = f"returned {len(outputs)} values; the definition names {len(names)}"
        return
    specs = reference.definition.tensor_inputs.values()
    dtypes = [dtype_of(spec, reference.definition, workload) for spec in specs]
    for name, output, (shape, dtype), exact, honest in zip(
        names, outputs, forms, expected.exact, expected.honest, strict=True
    ):
        if failure := _form_failure(name, output, shape, dtype):
            verdict.status, verdict.log, verdict.rule = failure
            return
        assert output.tensor is not None
        k = factor([*dtypes, dtype], reference.definition.tolerance)
        result = compare(output.tensor, exact, honest, reference.definition.tolerance, k)
        verdict.comparisons.append(result)
        if not result.passed:
            verdict.status, verdict.log = "INCORRECT_NUMERICAL", f"{name}: {result.reason}"
            verdict.rule = "R-fp64"
            return


def _form_failure(
    name: str, output: Output, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[str, str, str] | None:
    """Return (status, log, rule) where an output is no plain tensor of the right shape, dtype and device."""
    tensor = output.tensor
    if tensor is None:
        return (
            "INCORRECT_SHAPE",
            f"{name} is a {output.type_name}, not a plain torch.Tensor",
            "R-type",
        )
    if tuple(tensor.shape) != shape:
        log = f"{name} has shape {tuple(tensor.shape)}; expected {shape}"
        return "INCORRECT_SHAPE", log, "R-type"
    if tensor.dtype != dtype:
        return "INCORRECT_DTYPE", f"{name} is {tensor.dtype}; expected {dtype}", "R-type"
    if output.aliases_input and tensor.numel():
        return "CHEATING", f"{name} shares its memory with an input", "R-alias"
    return None


def _same_bits(first: torch.Tensor, again: Output) -> bool:
    second = again.tensor
    if second is None or second.shape != first.shape or second.dtype != first.dtype:
        return False
    a, b = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (first, second))
    return torch.equal(a, b)


def _check_repeat(
    reference: Reference,
    workload: Workload,
    first: Sequence[torch.Tensor],
    again: Sequence[Output],
    expected: Expected,
    verdict: Verdict,
) -> None:
    """A repeat may differ in rounding unless the definition promises determinism; it may not leave tolerance."""
    if len(first) == len(again) and all(map(_same_bits, first, again)):
        return
    if reference.definition.deterministic:
        log = "a repeated call differs, and the definition promises not to"
        raise _Wrong("NONDETERMINISTIC", log, "R-determinism")
    check_outputs(reference, workload, again, expected, verdict)
    if not verdict.passed:
        log = f"a repeated call leaves tolerance: {verdict.log}"
        raise _Wrong("NONDETERMINISTIC", log, "R-determinism")
