"""Versions of what compiles kernels here, read from the installed distributions without importing them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def installed_toolchain() -> dict[str, str]:
    """Return the versions of `torch` and `triton`; what is not installed is left out."""
    found = {}
    for name in ("torch", "triton"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
