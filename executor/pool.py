"""Worker processes on this machine: one warm zygote per mode, one fresh child per candidate, one lock per GPU."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, Protocol

from kernel_skills.executor.channel import Channel, ChannelError
from kernel_skills.executor.errors import WorkerError
from kernel_skills.executor.worker_environment import worker_environment

Mode = Literal["device", "interpret"]
Role = Literal["task", "candidate", "compile"]

_START_TIMEOUT_S = 120.0
"""Importing torch and triton takes 2 s warm, 6 s from a cold disk; a loaded machine may need many times that."""
_GRACE_S = 2.0
_REAP_TIMEOUT_S = 30.0
"""The kernel may need seconds to end a process that holds tens of GB of device memory."""
_END_TIMEOUT_S = 10.0


class Worker:
    """A child process with one channel to it."""

    def __init__(self, zygote: Zygote, pid: int, channel: Channel, folder: Path) -> None:
        self.pid, self.channel, self.folder = pid, channel, folder
        self._zygote = zygote

    def request(
        self, message: dict[str, Any], *, timeout_s: float, fds: Sequence[int] = ()
    ) -> dict[str, Any]:
        """Ask and return the answer.

        Raises:
            PeerGone, PeerSilent, MalformedFrame: the worker crashed, hangs, or sent nonsense.
        """
        answer, _ = self.channel.request(message, timeout_s=timeout_s, fds=fds)
        return answer

    def end(self, grace_s: float = _GRACE_S) -> int:
        """End the process and all it started; return its exit status (negative: the signal)."""
        self.channel.close()
        return self._zygote.reap(self.pid, grace_s)

    def end_described(self, grace_s: float) -> str:
        """End the process; return how it ended and what it last printed, to be joined to a log."""
        tail = self.log_tail()
        status = self.end(grace_s)
        how = f" ({signal.Signals(-status).name})" if status < 0 else f" (exit status {status})"
        return f"{how}\n{tail}" if tail else how

    def kill(self) -> None:
        """Kill the process at once, so that whoever waits for its answer hears that it is gone; `end` it after."""
        self._zygote.kill(self.pid)

    def log_tail(self, size: int = 2000) -> str:
        """Return the end of what the process printed: a hint for people, never a result."""
        with contextlib.suppress(OSError):
            return (self.folder / "log").read_text(errors="replace")[-size:]
        return ""


class Zygote:
    """A warm process, see `zygote.py`. Requests to it are serialised: several threads may fork."""

    def __init__(self, mode: Mode, root: Path) -> None:
        self._mode, self._root = mode, root
        self._lock = threading.Lock()
        self._live: set[int] = set()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control = Channel(ours)
        self._log = root / f"zygote-{mode}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kernel_skills.executor.zygote", str(theirs.fileno())],
                env=self._environment(), pass_fds=[theirs.fileno()], start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        theirs.close()
        self._ready = self._broken = self._closed = False

    @property
    def usable(self) -> bool:
        """False once the process has ended, or an answer was missed: the next answer read would be that one."""
        return not self._broken and self._process.poll() is None

    def _environment(self) -> dict[str, str]:
        env = worker_environment()
        if self._mode == "interpret":
            env["TRITON_INTERPRET"] = "1"
            env["CUDA_VISIBLE_DEVICES"] = ""
        return env

    def fork(self, role: Role, env: dict[str, str]) -> Worker:
        """Start a child in a private folder.

        Raises:
            WorkerError: the zygote did not start or is gone.
        """
        with self._lock:
            self._wait_until_ready()
            folder = Path(tempfile.mkdtemp(prefix=f"{self._mode}-{role}-", dir=self._root))
            ours, theirs = Channel.pair()
            message = {
                "op": "fork", "role": role, "folder": str(folder), "log": str(folder / "log"), "env": env,
            }  # fmt: skip
            try:
                answer, _ = self._control.request(
                    message, fds=[theirs.fileno()], timeout_s=_START_TIMEOUT_S
                )
            except ChannelError as error:
                self._broken = True
                ours.close()
                raise WorkerError(
                    f"cannot start a worker process: {error}; {self._hint()}"
                ) from error
            finally:
                theirs.close()
            self._live.add(answer["pid"])
            return Worker(self, answer["pid"], ours, folder)

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            self._control.receive(_START_TIMEOUT_S)
        except ChannelError as error:
            self._broken = True
            raise WorkerError(f"the worker process did not start: {self._hint()}") from error
        self._ready = True

    def _hint(self) -> str:
        lines = (
            self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        )
        return f"{lines[-1] if lines else 'no message'}; run `skills doctor`"

    def reap(self, pid: int, grace_s: float) -> int:
        """End a child and all it started, after `grace_s` at most; return its exit status, once.

        Raises:
            WorkerError: the pool was closed meanwhile (Ctrl-C): how the child ended says nothing of what it ran.
        """
        with self._lock:
            if self._closed:
                raise WorkerError("the pool was closed")
            if pid not in self._live:
                return -signal.SIGKILL
            self._live.discard(pid)
            message = {"op": "reap", "pid": pid, "timeout_s": grace_s}
            try:
                answer, _ = self._control.request(message, timeout_s=grace_s + _REAP_TIMEOUT_S)
            except ChannelError as error:
                self._broken = True
                if self._closed:
                    raise WorkerError("the pool was closed") from error
                return -signal.SIGKILL
            return int(answer["status"])

    def kill(self, pid: int) -> None:
        # until it is reaped, its pid is nobody else's
        if pid in self._live:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the zygote, which ends every child first, even in the middle of its imports or of a wait."""
        self._closed = True
        self._process.terminate()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._control.close()


class Pool(Protocol):
    """Where candidates are judged; LocalPool here, other machines behind the same calls."""

    jobs: int

    def start(self, role: Role, mode: Mode = "device", *, cache: str = "") -> Worker: ...

    def gpu_lock(self, device: str) -> contextlib.AbstractContextManager[None]: ...


class LocalPool:
    """Workers on this machine. Use as a context manager: leaving it leaves no process and no file behind."""

    def __init__(self, jobs: int | None = None) -> None:
        self.jobs = jobs or max(1, min(os.cpu_count() or 1, 8))
        base = Path(tempfile.gettempdir()) / f"kernel-skills-{os.getuid()}"
        base.mkdir(mode=0o700, exist_ok=True)
        if base.stat().st_uid != os.getuid():
            raise WorkerError(f"{base} belongs to another user; remove it or set TMPDIR")
        _remove_abandoned(base)
        self._base = base
        self._root = base / f"pool-{os.getpid()}-{id(self)}"
        self._root.mkdir(mode=0o700)
        self._closed = False
        self._zygotes: dict[Mode, Zygote] = {}
        # a zygote dies with the thread that started it, so that thread lives as long as the pool
        self._starter = ThreadPoolExecutor(1)
        self._lock = threading.Lock()

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
                self._zygotes[mode] = self._starter.submit(Zygote, mode, self._root).result()
            return self._zygotes[mode]

    def start(self, role: Role, mode: Mode = "device", *, cache: str = "") -> Worker:
        """Start a worker.

        Args:
            cache: workers with the same name share a Triton cache; candidates of different origin never do.
        """
        folder = self._root / "cache" / (cache or "task")
        folder.mkdir(parents=True, exist_ok=True)
        env = {
            "TRITON_CACHE_DIR": str(folder / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            # else the driver writes to ~/.nv and torch's run-time compiler to ~/.cache/torch
            "CUDA_CACHE_PATH": str(folder / "cuda"),
            "PYTORCH_KERNEL_CACHE_PATH": str(folder / "torch"),
            "TMPDIR": str(folder),
        }
        return self._zygote(mode).fork(role, env)

    @contextlib.contextmanager
    def gpu_lock(self, device: str) -> Iterator[None]:
        """Hold the one lock of a GPU, across every process of this user.

        Args:
            device: `Device.identity`; an index may mean another GPU in another process.
        """
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
        shutil.rmtree(self._root, ignore_errors=True)


def _remove_abandoned(base: Path) -> None:
    """Remove the folders of pools whose process was killed."""
    for folder in base.glob("pool-*"):
        pid = int(folder.name.split("-")[1])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except PermissionError:
            continue
