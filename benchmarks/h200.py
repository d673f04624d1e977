"""What the skills reach on one H200, from the evidence in their packages, beside what they must reach.

Measures nothing. On the chip, `skills run NAME --target h200 --record` adds the evidence that is read here. Each line is
the newest Trace of the fastest variant as it is now; a ratio is the baseline's median over the kernel's in the same run.

Run as `.venv/bin/python benchmarks/h200.py`; exits 1 where a figure is missing or below the least.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernel_skills.executor.trace import Passed, Performance, Trace
from kernel_skills.executor.workload_values import workload_names
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.discovery import load_skill
from kernel_skills.registry.evidence import own_evidence
from kernel_skills.registry.models import Skill

SKILLS = Path(__file__).resolve().parent.parent / "skills"
CHIP = "h200"


@dataclass(frozen=True)
class Requirement:
    """A ratio to reach on each of some shapes."""

    skill: str
    definition: str
    shapes: tuple[Mapping[str, object], ...]
    """Axes and scalars that identify a bench workload; all in bfloat16."""
    baselines: tuple[str, ...]
    """How the names of the baselines begin; the fastest of them counts."""
    at_least: float
    good: float


def _attention(head_dim: int, causal: bool) -> dict[str, object]:
    sizes = {"batch": 2, "q_len": 8192, "kv_len": 8192, "q_heads": 2048 // head_dim}
    return {**sizes, "head_dim": head_dim, "causal": causal}


_ROWS_COLS = tuple(
    {"rows": rows, "cols": cols} for rows, cols in ((16384, 4096), (4096, 32768), (65536, 1024))
)
_ATTENTION = tuple(_attention(dim, causal) for dim in (128, 64) for causal in (False, True))
_CUBES = tuple({"m": size, "n": size, "k": size} for size in (4096, 8192))

REQUIREMENTS = (
    Requirement("flash-attn", "flash-attn", _ATTENTION, ("cudnn",), 0.85, 1.0),
    Requirement("matmul", "matmul", _CUBES, ("cublas", "eager"), 0.97, 1.02),
    Requirement("rms-norm", "rms-norm", _ROWS_COLS, ("copy",), 0.93, 0.97),
    Requirement("rms-norm", "rms-norm-backward", _ROWS_COLS, ("compile",), 1.3, 2.0),
)


def lines_of(requirement: Requirement) -> Iterator[tuple[str, float | None, str]]:
    """Yield (shape, ratio, what it was measured with) for each shape; the ratio is None where nothing was measured."""
    skill = load_skill(SKILLS / requirement.skill, "project")
    for shape in requirement.shapes:
        title = " ".join(f"{name}={value}" for name, value in shape.items())
        found = [
            (performance.latency_ms, performance, trace)
            for trace, performance in _measured(skill, requirement.definition, shape)
        ]
        if not found:
            yield title, None, ""
            continue
        _, performance, trace = min(found, key=lambda item: item[0])
        yield title, _ratio(performance, requirement.baselines), _described(trace, performance)


def _measured(
    skill: Skill, definition_name: str, shape: Mapping[str, object]
) -> Iterator[tuple[Trace, Performance]]:
    """Yield the newest measurement of each variant on the shape."""
    definition = skill.manifest.definition_named(definition_name)
    digests = {variant_digest(skill, variant) for variant in skill.manifest.variant}
    newest: dict[str, tuple[Trace, Performance]] = {}
    for trace in own_evidence(skill).traces():
        outcome = trace.evaluation
        if not isinstance(outcome, Passed) or outcome.performance is None or trace.skill is None:
            continue
        names = (
            workload_names(definition, trace.workload)
            if trace.definition == definition_name
            else {}
        )
        fits = all(names.get(name) == value for name, value in shape.items())
        bfloat16 = set(trace.workload.dtypes.values()) == {"bfloat16"}
        current = trace.skill.variant_digest in digests and outcome.environment.target == CHIP
        if fits and bfloat16 and current:
            # a file is in the order of writing, so that the last one is the newest
            newest[trace.skill.variant] = (trace, outcome.performance)
    yield from newest.values()


def _ratio(performance: Performance, prefixes: tuple[str, ...]) -> float | None:
    ratios = [
        baseline.ratio
        for baseline in performance.baselines
        if baseline.ratio is not None and baseline.name.startswith(prefixes)
    ]
    return min(ratios, default=None)


def _described(trace: Trace, performance: Performance) -> str:
    assert trace.skill is not None and isinstance(trace.evaluation, Passed)
    libs = trace.evaluation.environment.libs
    versions = f"torch {libs.get('torch')}, Triton {libs.get('triton')}"
    when = f"{trace.evaluation.timestamp:%Y-%m-%d}"
    return f"{performance.latency_ms:.4g} ms, {trace.skill.variant}, {versions}, {when}"


def _verdict(ratio: float | None, requirement: Requirement) -> str:
    if ratio is None:
        return "NO EVIDENCE"
    if ratio < requirement.at_least:
        return "MISSED"
    return "good" if ratio >= requirement.good else "reached"


def main() -> int:
    missed = 0
    for requirement in REQUIREMENTS:
        rivals = " or ".join(requirement.baselines)
        limits = f"at least {requirement.at_least}, good {requirement.good}"
        print(f"{requirement.definition} against {rivals}: {limits}")
        for shape, ratio, how in lines_of(requirement):
            verdict = _verdict(ratio, requirement)
            missed += verdict in ("MISSED", "NO EVIDENCE")
            shown = "    -" if ratio is None else f"{ratio:5.3f}"
            print(f"  {shown}  {verdict:11}  {shape}  {how}".rstrip())
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
