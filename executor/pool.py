"""Worker processes on this machine: one warm zygote per mode, one fresh child per candidate, one lock per GPU."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from kernel_skills.executor import device_health
from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.errors import WorkerError
from kernel_skills.executor.remove_tree import remove_tree
from kernel_skills.executor.sandbox import Limits, SandboxChoice
from kernel_skills.executor.sandbox_choice import SandboxSettings
from kernel_skills.executor.sandbox_limits import Role, limits_of
from kernel_skills.executor.trace import Sandbox
from kernel_skills.executor.worker_process import Mode, Worker, Zygote


class Pool(Protocol):
    """Where candidates are judged; LocalPool here, other machines behind the same calls."""

    jobs: int

    @property
    def sandbox(self) -> Sandbox: ...

    def start(self, role: Role, mode: Mode = "device", *, cache: str = "") -> Worker: ...

    def gpu_lock(self, device: str) -> contextlib.AbstractContextManager[None]: ...

    def examine(self, place: str, device: str) -> None: ...


class LocalPool:
    """Workers on this machine. Use as a context manager: leaving it leaves no process and no file behind."""

    def __init__(
        self,
        jobs: int | None = None,
        sandbox: SandboxChoice = "embedded",
        limits: Callable[[Role], Limits] = limits_of,
    ) -> None:
        """Make the pool's folder; processes start when they are first needed.

        Args:
            limits: what a worker of a role may use.

        Raises:
            SandboxUnavailable: `strong` was asked for, and this machine has no bubblewrap that works.
            WorkerError: the folder cannot be made.
        """
        self.jobs = jobs or max(1, min(os.cpu_count() or 1, 8))
        base = base_folder()
        base.mkdir(mode=0o700, exist_ok=True)
        if base.stat().st_uid != os.getuid():
            raise WorkerError(f"{base} belongs to another user; remove it or set TMPDIR")
        _remove_abandoned(base)
        self._base = base
        self._root = base / f"pool-{os.getpid()}-{id(self)}"
        self._settings = SandboxSettings(sandbox, self._root, limits)
        if self._settings.uid != os.getuid():
            # the workers' own folders lie below, and they are another user
            base.chmod(0o711)
        self._root.mkdir(mode=base.stat().st_mode & 0o777)
        (self._root / "logs").mkdir(mode=0o700)
        (self._root / "cache").mkdir()
        self._closed = False
        self._zygotes: dict[Mode, Zygote] = {}
        # a zygote dies with the thread that started it, so that thread lives as long as the pool
        self._starter = ThreadPoolExecutor(1)
        self._lock = threading.Lock()

    @property
    def sandbox(self) -> Sandbox:
        """What keeps the workers away from the machine."""
        return self._settings.described

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def warm(self, *modes: Mode) -> None:
        """Begin to start zygotes now, so that they are ready when first needed."""
        for mode in modes:
            self._zygote(mode)

    def _zygote(self, mode: Mode) -> Zygote:
        with self._lock:
            if self._closed:
                raise WorkerError("the pool was closed")
            if mode in self._zygotes and not self._zygotes[mode].usable:
                self._zygotes.pop(mode).close()
            if mode not in self._zygotes:
                self._zygotes[mode] = self._starter.submit(
                    Zygote, mode, self._root, self._settings
                ).result()
            return self._zygotes[mode]

    def start(self, role: Role, mode: Mode = "device", *, cache: str = "") -> Worker:
        """Start a worker.

        Args:
            cache: workers with the same name share compiled kernels; candidates of different origin never do.
                Without a name, task workers share theirs and every other worker has one of its own.
        """
        name = cache or ("task" if role == "task" else secrets.token_hex(8))
        folder = self._root / "cache" / name
        folder.mkdir(exist_ok=True)
        return self._zygote(mode).fork(role, folder, keep_cache=bool(cache) or role == "task")

    def examine(self, place: str, device: str) -> None:
        """Look in new processes whether a device still computes, after a worker died on it.

        Args:
            place: `cuda:0`.
            device: `Device.identity`.

        Raises:
            DeviceQuarantined: it failed twice, and is shut out from now on.
        """

        def probe() -> str:
            worker = self.start("probe")
            try:
                answer = worker.request({"device": place}, timeout_s=device_health.PROBE_SECONDS)
            except ChannelError as error:
                return device_health.words_of_failure(error)
            finally:
                worker.end(0)
            return "" if answer.get("ok") else str(answer.get("log") or "it computes wrong values")

        device_health.examine(self._base, device, probe)

    @contextlib.contextmanager
    def gpu_lock(self, device: str) -> Iterator[None]:
        """Hold the one lock of a GPU, across every process of this user.

        Args:
            device: `Device.identity`; an index may mean another GPU in another process.

        Raises:
            DeviceQuarantined: it was shut out, by this process or another.
        """
        device_health.require_healthy(self._base, device)
        with (self._base / f"gpu-{device}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            zygotes = list(self._zygotes.values())
            self._zygotes.clear()
        for zygote in zygotes:
            zygote.close()
        self._starter.shutdown()
        remove_tree(self._root)


def base_folder() -> Path:
    """Return the folder of this user's pools, locks and marks; it need not be there."""
    return Path(tempfile.gettempdir()) / f"kernel-skills-{os.getuid()}"


def _remove_abandoned(base: Path) -> None:
    """Remove the folders of pools whose process was killed."""
    for folder in base.glob("pool-*"):
        pid = int(folder.name.split("-")[1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            remove_tree(folder)
        except PermissionError:
            continue
