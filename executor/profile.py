"""What a profile says of a kernel: counters that the device kept, or the analytic roofline where none can be read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from pydantic import Field

from kernel_skills.executor.models import Definition, Record, Scalar, Solution, Task, Workload
from kernel_skills.executor.roofline import roofline
from kernel_skills.executor.targets import Target
from kernel_skills.executor.trace import KernelReport, Passed, Trace

BottleneckKind = Literal[
    "memory-bound", "l2-bound", "tensor-bound", "mufu-bound", "issue-bound", "latency-bound", "spills",
    "uncoalesced", "unknown",
]  # fmt: skip


class ProfileRequest(Record):
    """One call to profile; read by the process that makes the call."""

    task: Task
    solution: Solution
    workload: Workload
    place: str
    """`cuda:0`"""
    config: Mapping[str, Scalar] = Field(default_factory=dict)
    seed: int = 0


# --- counters ---------------------------------------------------------------------------------


class Bottleneck(Record):
    """What holds a kernel back, in one line with the numbers that show it."""

    kind: BottleneckKind
    text: str


class Stall(Record):
    """Why warps waited: mean number of warps in this state per cycle in which one was issued."""

    reason: str
    warps: float


class Counters(Record):
    """Counters of one launch; percentages of what the chip sustains, None where the chip or the tool has no such counter."""

    duration_us: float | None = None
    dram_percent: float | None = None
    dram_bytes: float | None = None
    l2_percent: float | None = None
    """Throughput of the L2 cache."""
    l2_hit_percent: float | None = None
    l1_percent: float | None = None
    """Throughput of L1 and texture."""
    l1_hit_percent: float | None = None
    tensor_percent: float | None = None
    """Cycles in which the tensor pipe was busy."""
    mufu_percent: float | None = None
    """The unit of exp, log, sin and square root (the XU pipe, which also converts between integer and float)."""
    issue_percent: float | None = None
    """Cycles in which a scheduler issued."""
    occupancy_percent: float | None = None
    """Achieved: active warps over the most that a multiprocessor holds."""
    occupancy_limit_percent: float | None = None
    """What registers, shared memory and block size allow."""
    waves: float | None = None
    """Grid over what is resident at once."""
    grid: int | None = None
    block: int | None = None
    registers: int | None = None
    """Per thread."""
    spill_percent: float | None = None
    """Instructions that touch local memory, of all."""
    coalesced_percent: float | None = None
    """Bytes asked for over bytes of the sectors that global loads touched."""


class KernelProfile(Record):
    """One launch of the entry."""

    kernel: str
    counters: Counters
    stalls: tuple[Stall, ...] = ()
    """Most first."""
    bottleneck: Bottleneck


class CounterProfile(Record):
    """Every launch of one call, measured by Nsight Compute with the clocks as they were."""

    source: Literal["ncu"] = "ncu"
    hardware: str
    ncu_version: str = ""
    kernels: tuple[KernelProfile, ...]
    bottleneck: Bottleneck
    """Of the longest launch."""
    missing: tuple[str, ...] = ()
    """Counters that could not be read."""


# --- analytic ---------------------------------------------------------------------------------


class Quoted(Record):
    """The newest measurement on this architecture, with where it was made."""

    hardware: str
    target: str
    when: datetime
    latency_ms: float
    percent_of_bound: float


class AnalyticProfile(Record):
    """The roofline by counting: nothing here was measured, save what `quoted` says was."""

    source: Literal["analytic"] = "analytic"
    target: str
    flops: float
    bytes_moved: int
    intensity: float
    """FLOP per byte."""
    ridge: float | None
    """Intensity above which compute binds on this chip."""
    limited_by: Literal["compute", "memory"]
    bound_ms: float
    ceiling_tflops: float | None
    ceiling_gbps: float
    kernels: tuple[KernelReport, ...] = ()
    """As compiled for the chip."""
    quoted: Quoted | None = None
    text: str
    """One line."""


def analytic_profile(
    definition: Definition,
    workload: Workload,
    target: Target,
    kernels: tuple[KernelReport, ...] = (),
    evidence: Trace | None = None,
) -> AnalyticProfile:
    """Place a Workload under the roofs of a chip by the Definition's FLOP and byte counts.

    Raises:
        InvalidPackage: an expression of the Definition does not evaluate.
    """
    line = roofline(definition, workload, target)
    ridge = line.ceiling_tflops * 1e3 / line.ceiling_gbps if line.ceiling_tflops else None
    quoted = _quoted(evidence)
    parts = [f"analytic: {line.limited_by}-bound at {line.bound_ms:.4g} ms on {target.name}"]
    if ridge is not None:
        parts.append(f"{line.intensity:.1f} FLOP/byte, the ridge is at {ridge:.0f}")
    if quoted is not None:
        parts.append(
            f"{quoted.hardware} reached {quoted.percent_of_bound:.0f} % of its bound ({quoted.latency_ms:.4g} ms)"
        )
    parts += _compiler_words(kernels)
    return AnalyticProfile(
        target=target.name, flops=line.flops, bytes_moved=line.bytes_moved, intensity=line.intensity,
        ridge=ridge, limited_by=line.limited_by, bound_ms=line.bound_ms,
        ceiling_tflops=line.ceiling_tflops, ceiling_gbps=line.ceiling_gbps,
        kernels=kernels, quoted=quoted, text="; ".join(parts),
    )  # fmt: skip


def _quoted(trace: Trace | None) -> Quoted | None:
    if trace is None or not isinstance(trace.evaluation, Passed):
        return None
    performance, environment = trace.evaluation.performance, trace.evaluation.environment
    if performance is None:
        return None
    return Quoted(
        hardware=environment.hardware,
        target=environment.target,
        when=trace.evaluation.timestamp,
        latency_ms=performance.latency_ms,
        percent_of_bound=performance.percent_of_bound,
    )


def _compiler_words(kernels: tuple[KernelReport, ...]) -> list[str]:
    """Return what the compiled code alone says against a kernel."""
    words = [f"{k.kernel} spills {k.spill_bytes} bytes a thread" for k in kernels if k.spill_bytes]
    words += [
        f"{k.kernel}: {warning}" for k in kernels for warning in k.warnings if not k.spill_bytes
    ]
    return list(dict.fromkeys(words))[:3]
