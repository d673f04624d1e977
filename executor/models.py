"""The nouns of judging: contract, input, candidate, outcome, evidence.

Names and JSON shapes follow FlashInfer-Bench's `Definition`, `Workload`, `Solution` and `Trace`, so that its tools
read ours: every model here is that schema plus fields of our own. Each difference says why.

Source of the schema: flashinfer-bench 0.1.2, `flashinfer_bench/data`.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    computed_field,
    model_validator,
)

Scalar = bool | int | float | str
DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of one element. `string` is a dtype of scalars only and has no size."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=64)]
"""Lower-case words joined by hyphens, as the Agent Skills specification asks of names."""

EntryPoint = Annotated[str, StringConstraints(pattern=r"^[\w./-]+\.py::[A-Za-z_]\w*$")]
"""`path/inside/the/package.py::function`."""


class Record(BaseModel):
    """A value: frozen, and closed to fields it does not name."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings"
    )


def content_digest(record: BaseModel) -> str:
    """Return the SHA-256 (hex) of a record's canonical JSON."""
    text = json.dumps(record.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


# --- contract ---------------------------------------------------------------------------------


class ConstAxis(Record):
    """An axis whose length the contract fixes."""

    type: Literal["const"] = "const"
    value: int = Field(ge=0)
    description: str = ""


class VarAxis(Record):
    """An axis whose length each workload chooses."""

    type: Literal["var"] = "var"
    description: str = ""
    collapses: bool = False
    """A caller may pass several leading dimensions where this axis is first; they are flattened to it."""


Axis = Annotated[ConstAxis | VarAxis, Field(discriminator="type")]


class TensorSpec(Record):
    """An input or output: a tensor over named axes, or a scalar where `shape` is absent."""

    shape: tuple[str, ...] | None = None
    dtype: str
    """A name in `DTYPE_BYTES`, `string` (scalars only), or a type variable of the Definition."""
    description: str = ""
    default: Scalar | None = None
    """Scalars only: the value, or an expression over axes as text, that a caller may leave out."""
    auxiliary: bool = False
    """Outputs only: verified, but kept from callers of `load_kernel` (a log-sum-exp for the backward)."""


class Tolerance(Record):
    """How far an output may stray from the float64 reference; design section 6 earns the rest.

    |out - ref| <= k * max|honest - ref| + 2 eps |ref| element by element, and the same in norm, where `honest` is
    the reference run in the candidate's dtype.
    """

    k: float | None = Field(default=None, gt=0)
    """Replaces the factor of the dtype: 20 for float32 and float64, 3 for 16-bit floats, 2 for 8-bit floats."""
    mismatch_fraction: float = Field(default=0.0, ge=0, lt=1)
    """Share of elements that may miss the element-wise bound (quantisers); never the bound in norm."""
    reason: str = ""

    @model_validator(mode="after")
    def _looser_needs_a_reason(self) -> Tolerance:
        if (self.mismatch_fraction > 0 or (self.k or 0) > 20) and not self.reason:
            raise ValueError("a tolerance looser than the default needs a written reason")
        return self


class Gradient(Record):
    """How a Definition is differentiated: which Definition computes it, and what goes where."""

    definition: Name
    inputs: Mapping[str, str]
    """Input of the backward -> `grad:OUTPUT`, or an input or output of the forward."""
    grads: Mapping[str, str]
    """Input of the forward -> output of the backward that is its gradient."""


class Baseline(Record):
    """A strong library call to be measured beside the candidate, in the same run."""

    name: Name
    entry: EntryPoint
    prepares: bool = False
    """The entry returns a callable without arguments, and only that call is timed (a backward pass)."""
    backends: tuple[str, ...] = ("cuda", "hip")
    description: str = ""


class Definition(Record):
    """An operator's contract: axes, inputs, outputs, constraints, reference, tolerance."""

    name: Name
    op_type: str
    description: str = ""
    dtypes: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Type variables, each with the dtypes it may take. FlashInfer-Bench has none: export writes one Definition a dtype."""
    axes: Mapping[str, Axis]
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    constraints: tuple[str, ...] = ()
    """Boolean expressions over axes and scalar inputs, e.g. `q_heads % kv_heads == 0`."""
    reference: EntryPoint
    flops: str = "0"
    """Floating-point operations as an expression over axes and scalar inputs."""
    bytes_moved: str | None = None
    """Fewest bytes through device memory; default: every tensor input read once, every output written once."""
    matrix: bool = False
    """The FLOPs run on the matrix units, so the bound takes their rate."""
    deterministic: bool = False
    """Promises bit-identical results on repetition."""
    tolerance: Tolerance = Tolerance()
    gradient: Gradient | None = None
    baselines: tuple[Baseline, ...] = ()
    standard_baselines: tuple[Literal["eager", "compile", "copy"], ...] = (
        "eager",
        "compile",
        "copy",
    )
    """What the harness measures by itself: the reference in the candidate's dtype, the same compiled, and a device copy
    of the fewest bytes."""

    @model_validator(mode="after")
    def _names_are_consistent(self) -> Definition:
        if overlap := set(self.inputs) & set(self.outputs):
            raise ValueError(f"inputs and outputs share the name {sorted(overlap)[0]!r}")
        for name, spec in {**self.inputs, **self.outputs}.items():
            for axis in spec.shape or ():
                if axis not in self.axes:
                    raise ValueError(f"{name}: axis {axis!r} is not defined")
            known = spec.dtype in DTYPE_BYTES or spec.dtype in self.dtypes
            if not known and not (spec.dtype == "string" and spec.shape is None):
                raise ValueError(f"{name}: {spec.dtype!r} is neither a dtype nor a type variable")
        return self

    @property
    def tensor_inputs(self) -> dict[str, TensorSpec]:
        return {name: spec for name, spec in self.inputs.items() if spec.shape is not None}

    @property
    def scalar_inputs(self) -> dict[str, TensorSpec]:
        return {name: spec for name, spec in self.inputs.items() if spec.shape is None}


# --- inputs -----------------------------------------------------------------------------------


class RandomInput(Record):
    """A tensor drawn anew from the seed: `shift + scale * distribution`."""

    type: Literal["random"] = "random"
    distribution: Literal["normal", "uniform", "lognormal", "laplace", "spiked"] = "normal"
    """`spiked` is normal with one element in 256 a hundred times larger."""
    scale: float = 1.0
    shift: float = 0.0
    layout: Literal["contiguous", "padded", "offset", "transposed", "expanded"] = "contiguous"
    """`padded` rows lie 16 elements further apart than they are long; `offset` starts 16 bytes into its storage;
    `transposed` has its last two dimensions swapped in memory; `expanded` has stride 0 in the first dimension."""


class IntegerInput(Record):
    """Integers drawn uniformly from [low, high)."""

    type: Literal["integers"] = "integers"
    low: int = 0
    high: str
    """An expression over axes, e.g. `vocab`."""


class FilledInput(Record):
    """Every element the same; `nan` and `inf` are written as text in JSON."""

    type: Literal["filled"] = "filled"
    value: float


class ScalarInput(Record):
    type: Literal["scalar"] = "scalar"
    value: Scalar


Input = Annotated[
    RandomInput | IntegerInput | FilledInput | ScalarInput, Field(discriminator="type")
]


class Workload(Record):
    """Concrete axis values, dtypes and inputs for a Definition."""

    definition: Name
    name: Name
    purpose: Literal["smoke", "edge", "bench"]
    """`smoke`: runs in the interpreter too. `edge`: a known trap. `bench`: measured."""
    axes: Mapping[str, int]
    dtypes: Mapping[str, str] = Field(default_factory=dict)
    inputs: Mapping[str, Input] = Field(default_factory=dict)
    """Inputs left out are drawn from the normal distribution; scalars left out take their default."""
    generator: EntryPoint | None = None
    """A `make_inputs_*` function of the package that draws all inputs itself:
    `(axes: dict[str, int], dtypes: dict[str, str], seed: int, device: str) -> dict[str, Tensor | scalar]`."""
    description: str = ""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def uuid(self) -> str:
        """Stable identity of the content; FlashInfer-Bench asks for one."""
        text = json.dumps(
            self.model_dump(mode="json", exclude={"uuid", "description"}), sort_keys=True
        )
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kernel-skills:workload:{text}"))

    @model_validator(mode="before")
    @classmethod
    def _ignore_stored_uuid(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if k != "uuid"} if isinstance(data, dict) else data


# --- candidate --------------------------------------------------------------------------------


class SourceFile(Record):
    path: str
    content: str


class SolutionSpec(Record):
    language: Literal["triton", "python", "cpp", "cuda", "tilelang"] = "triton"
    target_hardware: tuple[str, ...]
    """Architectures (`sm_90`), exactly; never empty."""
    entry_point: EntryPoint
    dependencies: tuple[str, ...] = ()
    destination_passing_style: bool = False


class Solution(Record):
    """Kernel source to be judged, wherever it came from."""

    name: str
    definition: Name
    author: str = ""
    spec: SolutionSpec
    sources: tuple[SourceFile, ...]
    description: str = ""


class OpInfoSource(Record):
    """The samples that PyTorch's own tests draw for one of its operators."""

    op: str
    """Its name in `op_db`: `softmax`, `nn.functional.gelu`, `softmax.with_dtype`."""
    dtypes: tuple[str, ...] = ()
    """Empty: the floating dtypes of the operator that kernels compute in."""
    seed: int
    """Joined with the secret by the caller."""


class Task(Record):
    """What a task worker needs to know of a contract: the Definition and the package's own Python files."""

    definition: Definition
    sources: tuple[SourceFile, ...]
    opinfo: OpInfoSource | None = None
    """Where reference and inputs are PyTorch's own instead; the contract then differs from sample to sample."""
