"""Which sandbox the workers of a pool get, decided once, before the first of them starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from kernel_skills.executor.bubblewrap import why_not_strong
from kernel_skills.executor.errors import SandboxUnavailable
from kernel_skills.executor.landlock import landlock_abi
from kernel_skills.executor.sandbox import (
    Confinement,
    Limits,
    SandboxChoice,
    describe,
    worker_uid,
)
from kernel_skills.executor.sandbox_limits import ADDRESS_BYTES, FILE_BYTES, Role, limits_of
from kernel_skills.executor.sandbox_roots import gpu_nodes, read_roots
from kernel_skills.executor.seccomp import has_seccomp_filter
from kernel_skills.executor.trace import Sandbox
from kernel_skills.executor.worker_environment import import_paths


class SandboxSettings:
    """What every worker of a pool may reach."""

    def __init__(
        self,
        choice: SandboxChoice,
        root: Path,
        limits: Callable[[Role], Limits] = limits_of,
    ) -> None:
        """Decide.

        Args:
            choice: `auto` takes `strong` where it works; what was taken stands in `described`.
            root: the pool's folder.
            limits: what a worker of a role may use.

        Raises:
            SandboxUnavailable: `strong` is impossible here.
        """
        why_not = "" if choice == "embedded" else _why_not_strong()
        if choice == "strong" and why_not:
            raise SandboxUnavailable(
                f"--sandbox strong is not possible here: {why_not}; or run with --sandbox embedded"
            )
        self._limits = limits
        self.strong = choice != "embedded" and not why_not
        self.gpu = bool(gpu_nodes())
        self.read = read_roots(root, import_paths())
        # inside bubblewrap nobody may change the user
        self.uid = worker_uid([*self.read, *_packages()], root.parent, may_change=not self.strong)
        self.described: Sandbox = describe(
            "strong" if self.strong else "embedded", self.uid, self.gpu
        )

    @cached_property
    def _roots(self) -> tuple[Path, ...]:
        return tuple(self.read)

    def confinement(self, role: Role, device: bool, folder: Path, cache: Path) -> Confinement:
        """Return what a worker does to itself.

        Args:
            device: it is one of the process that may use the GPU.
            folder: its own.
            cache: where compiled kernels lie.
        """
        gpu = device and self.gpu
        bounded = not gpu and role != "task"
        return Confinement(
            read=self._roots, write=(folder, cache), gpu=gpu, uid=self.uid,
            landlock_abi=self.described.landlock_abi, seccomp=self.described.seccomp,
            limits=self._limits(role),
            address_bytes=ADDRESS_BYTES if bounded else None,
            file_bytes=FILE_BYTES if not gpu else None,
        )  # fmt: skip


def _why_not_strong() -> str:
    if landlock_abi() == 0:
        return "without landlock, candidates inside bubblewrap would see each other's folders"
    if not has_seccomp_filter():
        return "this kernel filters no system calls"
    return why_not_strong()


def _packages() -> list[Path]:
    """Return a file of each large package that a worker imports; none is imported here."""
    specs = [find_spec(name) for name in ("torch", "triton", "pydantic")]
    return [Path(spec.origin) for spec in specs if spec is not None and spec.origin]
