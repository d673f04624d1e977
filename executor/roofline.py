"""The roofline of a Definition: how many operations, how few bytes, and so how short a time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from kernel_skills.executor.expressions import evaluate
from kernel_skills.executor.models import (
    DTYPE_BYTES,
    Definition,
    Record,
    Workload,
)
from kernel_skills.executor.targets import Target
from kernel_skills.executor.workload_values import axis_values, dtype_name, shape_of, workload_names


class Roofline(Record):
    """Work of one call and the bounds it sets on a Target; times in milliseconds."""

    flops: float
    bytes_moved: int
    bound_ms: float
    """By measured ceilings where they are known, else by the data sheet."""
    data_sheet_ms: float
    """Nothing runs faster; a shorter time is a broken measurement."""
    limited_by: Literal["compute", "memory"]
    ceiling_tflops: float | None
    ceiling_gbps: float

    @property
    def intensity(self) -> float:
        """FLOP per byte."""
        return self.flops / self.bytes_moved if self.bytes_moved else math.inf


def fewest_bytes(definition: Definition, workload: Workload) -> int:
    """Return the fewest bytes through device memory: every input read once, every output written once."""
    if definition.bytes_moved is not None:
        return int(evaluate(definition.bytes_moved, workload_names(definition, workload)))
    axes, total = axis_values(definition, workload), 0
    for spec in [*definition.tensor_inputs.values(), *definition.outputs.values()]:
        count = math.prod(shape_of(spec, axes))
        total += count * DTYPE_BYTES[dtype_name(spec, definition, workload)]
    return total


def rate_dtype(definition: Definition, workload: Workload) -> str:
    """Return whose rate bounds the FLOPs: that of the first tensor input, on the units the definition says."""
    first = next(iter(definition.tensor_inputs.values()), None)
    dtype = dtype_name(first, definition, workload) if first else "float32"
    if not definition.matrix or dtype == "float32":
        return "vector-float32"
    return dtype


def roofline(definition: Definition, workload: Workload, target: Target) -> Roofline:
    """Place a Workload under a Target's roofs."""
    names = workload_names(definition, workload)
    flops = float(evaluate(definition.flops, names))
    moved = fewest_bytes(definition, workload)
    dtype = rate_dtype(definition, workload)
    peak, ceiling = target.peak_tflops.get(dtype), target.tflops(dtype)
    compute_ms = flops / (ceiling.value * 1e9) if ceiling else 0.0
    memory_ms = moved / (target.gbps.value * 1e6)
    sheet_ms = max(
        flops / (peak.value * 1e9) if peak else 0.0, moved / (target.peak_gbps.value * 1e6)
    )
    return Roofline(
        flops=flops,
        bytes_moved=moved,
        bound_ms=max(compute_ms, memory_ms),
        data_sheet_ms=sheet_ms,
        limited_by="compute" if compute_ms > memory_ms else "memory",
        ceiling_tflops=ceiling.value if ceiling else None,
        ceiling_gbps=target.gbps.value,
    )


def percent_of_ceiling(line: Roofline, latency_ms: float) -> float:
    """Return achieved rate over the ceiling that binds, in percent."""
    if line.limited_by == "compute" and line.ceiling_tflops:
        return 100 * line.flops / (latency_ms * 1e9) / line.ceiling_tflops
    return 100 * line.bytes_moved / (latency_ms * 1e6) / line.ceiling_gbps


def achieved(line: Roofline, latency_ms: float) -> Mapping[str, float]:
    """Return TFLOP/s and GB/s at a latency."""
    return {
        "tflops": line.flops / (latency_ms * 1e9),
        "gbps": line.bytes_moved / (latency_ms * 1e6),
    }
