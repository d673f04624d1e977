"""Chips: architecture, limits, data-sheet rates and measured ceilings, from `targets.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.models import Name, Record


class Rate(Record):
    """A figure with where it comes from."""

    value: float = Field(gt=0)
    source: str = Field(min_length=1)


class Target(Record):
    """A chip. Sizes in bytes, rates in TFLOP/s (dense) and GB/s."""

    name: Name
    title: str
    backend: Literal["cuda", "hip", "cpu"]
    arch: str
    """As variants name it: `sm_90`, `gfx942`, `cpu`."""
    warp_size: int
    multiprocessors: int
    registers_per_multiprocessor: int
    max_registers_per_thread: int
    shared_bytes_per_block: int
    shared_bytes_per_multiprocessor: int
    max_warps_per_multiprocessor: int
    max_blocks_per_multiprocessor: int
    l2_bytes: int
    memory_bytes: int
    device_names: tuple[str, ...]
    """Whole names, as `torch.cuda.get_device_name` gives them."""
    peak_tflops: Mapping[str, Rate]
    """Dtype -> data-sheet rate of the matrix units; `tf32`, and `vector-float32` for the plain ones, are dtypes here."""
    peak_gbps: Rate
    measured_tflops: Mapping[str, Rate] = Field(default_factory=dict)
    measured_gbps: Rate | None = None

    def tflops(self, dtype: str) -> Rate | None:
        """Return the measured ceiling of the matrix units for a dtype, else the data-sheet rate."""
        return self.measured_tflops.get(dtype) or self.peak_tflops.get(dtype)

    @property
    def gbps(self) -> Rate:
        return self.measured_gbps or self.peak_gbps


@lru_cache(maxsize=1)
def load_targets() -> Mapping[str, Target]:
    """Return every known Target by name."""
    text = (Path(__file__).parent / "targets.toml").read_text(encoding="utf-8")
    return {name: Target(name=name, **fields) for name, fields in tomllib.loads(text).items()}


def find_target(name: str) -> Target:
    """Return the Target called `name`.

    Raises:
        NotFound: no such Target; close names are offered.
    """
    targets = load_targets()
    if name.lower() not in targets:
        raise NotFound.named("target", name, targets)
    return targets[name.lower()]


def target_of_device(device_name: str, arch: str) -> Target | None:
    """Return the Target that a device is; None for a relative of it: another form, or a MIG part of one.

    Ceilings of the whole chip would be false for those, so the whole name decides, and the architecture with it.
    """
    for target in load_targets().values():
        names = {name.lower() for name in target.device_names}
        if target.arch == arch and device_name.lower() in names:
            return target
    return None
