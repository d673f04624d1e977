"""The outcome of judging, and the evidence record that keeps it.

`Evaluation` is a union told apart by `status`; `Trace` joins it with what was judged, on what, under which toolchain.
A line of evidence is one Trace as JSON and, where its status is one of theirs, a valid FlashInfer-Bench Trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, field_validator

from kernel_skills.executor.models import Record, Scalar, Workload

HARNESS_VERSION = "1"
"""Raised when judging or timing changes so that older figures are no longer comparable."""

FailedStatus = Literal[
    "COMPILE_ERROR", "RUNTIME_ERROR", "INCORRECT_SHAPE", "INCORRECT_DTYPE", "NONDETERMINISTIC", "CHEATING",
    "TIMEOUT", "INTERRUPTED",
]  # fmt: skip
CheckOutcome = Literal["passed", "failed", "skipped"]
Speed = Literal["faster", "equal", "slower", "unmeasured"]


def now() -> datetime:
    return datetime.now(UTC)


# --- where it ran -----------------------------------------------------------------------------


class DeviceState(Record):
    """Clocks and load of a GPU, read beside the measurement and never changed."""

    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    utilisation_before_percent: float | None = None
    mig: bool | None = None
    other_processes: int | None = None


class Sandbox(Record):
    """What kept the workers of a run away from the machine."""

    level: Literal["embedded", "strong"]
    landlock_abi: int
    """0 where the kernel has none."""
    seccomp: bool
    uid: int
    """The user that the workers were."""
    lost: tuple[str, ...] = ()
    """What the machine could not hold, in words."""


class Environment(Record):
    """The machine and toolchain of an Evaluation."""

    hardware: str
    """`torch.cuda.get_device_name`, or the CPU's name under the interpreter."""
    libs: Mapping[str, str] = Field(default_factory=dict)
    """torch, triton, cuda, driver, python: exact versions."""
    target: str = "cpu"
    """The Target that the hardware is: a run asked for `h100` on an H200 says `h200`."""
    arch: str = "cpu"
    device_state: DeviceState | None = None
    sandbox: Sandbox | None = None
    """None in records that are older than the sandbox."""

    @field_validator("sandbox", mode="before")
    @classmethod
    def _none_by_name(cls, value: object) -> object:
        return None if value == "none" else value


# --- what was found ---------------------------------------------------------------------------


class Finding(Record):
    """One lint finding."""

    rule: str
    path: str
    line: int
    reason: str
    mend: str = ""

    def __str__(self) -> str:
        tail = f"; {self.mend}" if self.mend else ""
        return f"{self.path}:{self.line}: {self.rule}: {self.reason}{tail}"


class KernelReport(Record):
    """What the compiler made of one kernel, for one architecture, with its real constants."""

    kernel: str
    arch: str
    constants: Mapping[str, Scalar | None] = Field(default_factory=dict)
    num_warps: int
    num_stages: int | None = None
    registers: int | None = None
    """Per thread."""
    spill_bytes: int | None = None
    """Stores plus loads of spilled registers, per thread."""
    shared_bytes: int
    occupancy: float | None = None
    """Resident warps over the most that a multiprocessor holds."""
    limited_by: str | None = None
    instructions: Mapping[str, int] = Field(default_factory=dict)
    """Counts in the machine code, by what matters: `wgmma`, `mma`, `tma_load`, `async_copy`, `local_memory`, ..."""
    warnings: tuple[str, ...] = ()
    compile_seconds: float = 0.0


class Correctness(Record):
    """Largest errors against the float64 reference over everything that was compared."""

    max_relative_error: float
    max_absolute_error: float
    extra: Mapping[str, Scalar | None] = Field(default_factory=dict)
    """`bound_share`: largest error over what the tolerance allows (1.0 is the limit); `honest_share`: the same for
    the reference in the candidate's dtype; `comparisons`: how many; `assert_close`: PyTorch's own verdict."""


class Timing(Record):
    """Percentiles over timed calls, each on fresh data at a fresh address, in milliseconds."""

    median_ms: float
    p20_ms: float
    p80_ms: float
    samples: int


COPY = "copy"
"""The baseline that moves the same bytes and computes nothing: a yardstick, no rival."""


class BaselineTiming(Record):
    name: str
    timing: Timing | None = None
    ratio: float | None = None
    """Baseline median over candidate median: above 1 the candidate is faster."""
    error: str = ""

    @property
    def is_rival(self) -> bool:
        """It computes what the candidate computes, so that a ratio to it says which is faster."""
        return self.name != COPY


class Performance(Record):
    """Measured speed. Never filled in without a device."""

    latency_ms: float
    reference_latency_ms: float
    """Of the reference, eager, in the candidate's dtype; 0.0 where it was not measured."""
    speedup_factor: float
    """Reference latency over latency; 0.0 where the reference was not measured."""
    timing: Timing
    method: Literal["events", "graph"]
    baselines: tuple[BaselineTiming, ...] = ()
    tflops: float | None = None
    gbps: float
    bound_ms: float
    """Roofline bound by the Target's measured ceilings."""
    percent_of_bound: float
    percent_of_ceiling: float
    """Of the ceiling that binds: measured TFLOP/s where compute-bound, measured GB/s where memory-bound."""
    limited_by: Literal["compute", "memory"]
    speed: Speed
    """Against the fastest baseline; `equal` within 2 %."""
    config: Mapping[str, Scalar] = Field(default_factory=dict)
    """Tuning parameters given to the entry; empty when its own heuristic picked."""


# --- the outcome ------------------------------------------------------------------------------


class Outcome(Record):
    """Shared by every Evaluation."""

    environment: Environment
    timestamp: datetime = Field(default_factory=now)
    log: str = ""
    kernels: tuple[KernelReport, ...] = ()
    checks_not_run: tuple[str, ...] = ()
    seconds: Mapping[str, float] = Field(default_factory=dict)
    """Wall time of judging, by phase."""


class Passed(Outcome):
    status: Literal["PASSED"] = "PASSED"
    level: Literal["verified-gpu", "verified-cpu"]
    correctness: Correctness
    performance: Performance | None = None
    """Absent where nothing was measured."""
    torch_share: float | None = Field(default=None, ge=0, le=1)
    """Of a call's device time, what torch's operators take; None where it was not measured."""
    torch_operators: Mapping[str, int] = Field(default_factory=dict)
    """Operators of torch that computed in one call, with how often; empty under `strict`."""


class LintRejected(Outcome):
    status: Literal["LINT_REJECTED"] = "LINT_REJECTED"
    findings: tuple[Finding, ...]


class IncorrectNumerical(Outcome):
    status: Literal["INCORRECT_NUMERICAL"] = "INCORRECT_NUMERICAL"
    correctness: Correctness
    rule: str = ""
    """The check of the runtime that was not passed, e.g. `R-fp64`; docs/judging-a-kernel.md lists them."""


class Failed(Outcome):
    """Every failure whose whole story is its status and its log."""

    status: FailedStatus
    rule: str = ""
    """The check of the runtime that was not passed; empty where the candidate merely failed."""


class Skipped(Outcome):
    status: Literal["SKIPPED"] = "SKIPPED"
    reason: str


Evaluation = Annotated[
    Passed | LintRejected | IncorrectNumerical | Failed | Skipped, Field(discriminator="status")
]
evaluation_adapter: TypeAdapter[Evaluation] = TypeAdapter(Evaluation)


# --- evidence ---------------------------------------------------------------------------------


class SkillIdentity(Record):
    """The published unit that a variant belongs to."""

    name: str
    version: str
    root_digest: str
    variant: str
    variant_digest: str


class Seed(Record):
    """The public part of the seed; the secret is kept as a hash only."""

    public: int
    secret_sha256: str


class Trace(Record):
    """Definition + Workload + Solution + Evaluation + environment: one line of evidence."""

    definition: str
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None
    definition_digest: str = ""
    skill: SkillIdentity | None = None
    requested_target: str = ""
    seed: Seed | None = None
    harness_version: str = HARNESS_VERSION
