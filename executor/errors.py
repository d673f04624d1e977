"""Errors that a person can mend, with the exit code of the process that shows them.

KernelSkillsError
├── UsageError                 2  the call's words are off
├── InvalidPackage             3  a skill, manifest or expression breaks its contract
├── NotFound                   5  no such skill, version, target, workload or definition
│   └── Unsatisfiable          5  it exists, but nothing fits the target or toolchain
├── SandboxUnavailable         5  a sandbox was asked for by name that this machine cannot hold
├── NoDevice                   6  a GPU was asked for and there is none that fits
│   └── DeviceQuarantined      6  it failed two probes in processes of their own
├── IntegrityError             7  a digest or a record does not match
└── WorkerError                1  a worker process of the harness itself broke
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class KernelSkillsError(Exception):
    """Text for the person at the terminal: what, where, and the mend."""

    exit_code = 1


class UsageError(KernelSkillsError):
    exit_code = 2


class InvalidPackage(KernelSkillsError):
    exit_code = 3


class NotFound(KernelSkillsError):
    exit_code = 5

    @classmethod
    def named(cls, kind: str, name: str, known: Iterable[str]) -> NotFound:
        """Build the error for an unknown name, with close names offered."""
        choices = sorted(known)
        near = get_close_matches(name, choices, n=3, cutoff=0.5)
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"known: {', '.join(choices) or 'none'}"
        )
        return cls(f"no {kind} named {name!r}; {hint}")


class Unsatisfiable(NotFound):
    pass


class SandboxUnavailable(KernelSkillsError):
    exit_code = 5


class NoDevice(KernelSkillsError):
    exit_code = 6


class DeviceQuarantined(NoDevice):
    pass


class IntegrityError(KernelSkillsError):
    exit_code = 7


class WorkerError(KernelSkillsError):
    exit_code = 1
