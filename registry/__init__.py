"""Skill packages: manifests, versions, digests, evidence, resolution, and `load_kernel` for one's own program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel_skills.registry.kernel import load_kernel

__all__ = ["load_kernel"]


def __getattr__(name: str) -> Any:
    # imported on first use: it brings torch, and `skills --help` must not
    if name == "load_kernel":
        from kernel_skills.registry.kernel import load_kernel

        return load_kernel
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
