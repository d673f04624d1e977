"""Choose the kernel for a call: the device's architecture, the toolchain, the variants, the tuned configuration."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from kernel_skills.executor.errors import Unsatisfiable
from kernel_skills.executor.models import Definition, Scalar
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.executor.trace import Trace
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.kernel_binding import BadCall, Bound
from kernel_skills.registry.models import Skill, Variant
from kernel_skills.registry.resolver import CPU_ARCH, resolve
from kernel_skills.registry.shape import shape_of
from kernel_skills.registry.tuned import TunedStore


class OutsideEnvelope(Unsatisfiable):
    """No kernel of the skill was verified for this dtype, shape, architecture or toolchain."""

    def __init__(self, name: str, reasons: tuple[str, ...]) -> None:
        super().__init__(f"no kernel of {name} fits this call: {'; '.join(reasons)}")
        self.reasons = reasons


class ReferenceFallback(UserWarning):
    """A skill's plain PyTorch reference runs in place of a kernel. Given once per skill and reason."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Which variant serves a call and why no other does."""

    skill: str
    definition: str
    arch: str
    variant: str | None
    """None: the reference runs."""
    reason: str = ""
    """Why this variant among those that fit."""
    config: Mapping[str, Scalar] = field(default_factory=dict)
    """Tuning parameters passed to the entry; those left out are the kernel's own choice."""
    rejected: tuple[tuple[str, str], ...] = ()
    """(variant, reason); the variant is `*` where the reason holds for all of them."""

    def __str__(self) -> str:
        taken = f"variant {self.variant} ({self.reason})" if self.variant else "the reference"
        config = ", ".join(f"{key}={value}" for key, value in self.config.items())
        lines = [
            f"{self.skill}, {self.definition} on {self.arch}: {taken}{f' with {config}' if config else ''}"
        ]
        lines += [f"  not {variant}: {reason}" for variant, reason in self.rejected]
        return "\n".join(lines)

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(
            reason if variant == "*" else f"{variant}: {reason}"
            for variant, reason in self.rejected
        )


def choose(
    skill: Skill,
    definition: Definition,
    bound: Bound,
    device: torch.device,
    config: Mapping[str, Scalar],
    evidence: Sequence[Trace],
) -> Choice:
    """Return the variant for a call, with the caller's tuning parameters over those that a search found.

    Raises:
        BadCall: the chosen variant has no such tuning parameter.
    """
    arch, obstacles = _architecture(device), _obstacles(bound, device)
    if obstacles:
        rejected = tuple(("*", reason) for reason in obstacles)
        return Choice(skill.name, definition.name, arch, None, rejected=rejected)
    try:
        found = resolve(
            skill,
            definition.name,
            arch,
            _toolchain(),
            axes=bound.axes,
            dtypes=bound.dtypes,
            scalars=bound.scalars,
            evidence=evidence,
        )
    except Unsatisfiable as error:
        return Choice(skill.name, definition.name, arch, None, rejected=(("*", str(error)),))
    _check_config(found.chosen, config)
    tuned = _tuned(skill, definition, found.chosen, bound, arch)
    rejected = tuple((rejection.variant.id, rejection.reason) for rejection in found.rejected)
    return Choice(
        skill.name,
        definition.name,
        arch,
        found.chosen.id,
        found.reason,
        {**tuned, **config},
        rejected,
    )


@functools.cache
def _toolchain() -> Mapping[str, str]:
    return installed_toolchain()


def interpreting() -> bool:
    """Whether Triton interprets kernels instead of compiling them: its own rule, read when a kernel is decorated."""
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")


def _architecture(device: torch.device) -> str:
    if interpreting() or device.type != "cuda":
        return CPU_ARCH if device.type in ("cpu", "cuda") else device.type
    return _gpu_architecture(
        device.index if device.index is not None else torch.cuda.current_device()
    )


@functools.cache
def _gpu_architecture(index: int) -> str:
    if torch.version.hip:
        # gfx942:sramecc+:xnack- is gfx942 with its switches
        name: str = torch.cuda.get_device_properties(index).gcnArchName
        return name.partition(":")[0]
    major, minor = torch.cuda.get_device_capability(index)
    return f"sm_{major}{minor}"


def _obstacles(bound: Bound, device: torch.device) -> list[str]:
    """Return what no variant could overcome."""
    reasons = list(bound.mismatches)
    if "triton" not in _toolchain():
        reasons.append("triton is not installed")
    if interpreting():
        if "bfloat16" in bound.tensor_dtypes:
            reasons.append("Triton's interpreter computes on bfloat16 wrongly, without a word")
    elif device.type == "cpu":
        reasons.append(
            "CPU tensors reach a kernel only under TRITON_INTERPRET=1, set before the process starts"
        )
    elif device.type != "cuda":
        reasons.append(f"no kernel runs on a device of type {device.type}")
    return reasons


def _check_config(variant: Variant, config: Mapping[str, Scalar]) -> None:
    for name in config:
        if name not in variant.parameters:
            known = ", ".join(variant.parameters) or "none"
            raise BadCall(
                f"config: variant {variant.id} has no tuning parameter {name!r}; it has {known}"
            )


def _tuned(
    skill: Skill, definition: Definition, variant: Variant, bound: Bound, arch: str
) -> Mapping[str, Scalar]:
    if not variant.parameters:
        return {}
    shape = shape_of(definition, bound.axes, bound.dtypes, bound.scalars)
    digest = variant_digest(skill, variant)
    found = TunedStore().get(digest, definition.name, shape, arch, _toolchain())
    return found.config if found else {}
