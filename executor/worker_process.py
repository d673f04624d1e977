"""A worker as the parent sees it, and the warm process that it was forked from (`zygote.py`)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from kernel_skills.executor import bubblewrap
from kernel_skills.executor.channel import Channel, ChannelError
from kernel_skills.executor.errors import WorkerError
from kernel_skills.executor.remove_tree import remove_tree
from kernel_skills.executor.sandbox_choice import SandboxSettings
from kernel_skills.executor.sandbox_limits import Role
from kernel_skills.executor.worker_environment import private_places, worker_environment

Mode = Literal["device", "interpret"]

_START_TIMEOUT_S = 120.0
"""Importing torch and triton takes 2 s warm, 6 s from a cold disk; a loaded machine may need many times that."""
_GRACE_S = 2.0
_REAP_TIMEOUT_S = 30.0
"""The kernel may need seconds to end a process that holds tens of GB of device memory."""
_END_TIMEOUT_S = 10.0


class Worker:
    """A child process with one channel to it."""

    def __init__(
        self,
        zygote: Zygote,
        number: int,
        handle: int,
        channel: Channel,
        own: tuple[Path, ...],
        log: Path,
    ) -> None:
        """Wrap a child of a zygote.

        Args:
            number: its process id as the zygote sees it.
            handle: a descriptor of the process (pidfd), closed by `end`.
            own: folders that go with it; the first is where it works.
        """
        self.channel, self.folder, self.log = channel, own[0], log
        self._own = own
        self.pid = _pid_of(handle)
        self.why = ""
        """The limit that it broke, in words; known once it has ended."""
        self._zygote, self._number, self._handle = zygote, number, handle

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
        """End the process and all it started, with its files; return its exit status (negative: the signal)."""
        self.channel.close()
        try:
            status, why = self._zygote.reap(self._number, grace_s)
        finally:
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1
        self.why = self.why or why
        for folder in self._own:
            remove_tree(folder)
        return status

    def end_described(self, grace_s: float) -> str:
        """End the process; return how it ended and what it last printed, to be joined to a log."""
        tail = self.log_tail()
        status = self.end(grace_s)
        how = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
        ended = f" (ended by the sandbox: {self.why})" if self.why else f" ({how})"
        return f"{ended}\n{tail}" if tail else ended

    def kill(self) -> None:
        """Kill the process at once, so that whoever waits for its answer hears that it is gone; `end` it after."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def log_tail(self, size: int = 2000) -> str:
        """Return the end of what the process printed: a hint for people, never a result."""
        with contextlib.suppress(OSError):
            return self.log.read_text(errors="replace")[-size:]
        return ""


def _pid_of(handle: int) -> int:
    """Return the process id behind a descriptor, as this process sees it."""
    for line in Path(f"/proc/self/fdinfo/{handle}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    return -1


class Zygote:
    """A warm process, see `zygote.py`. Requests to it are serialised: several threads may fork."""

    def __init__(self, mode: Mode, root: Path, sandbox: SandboxSettings) -> None:
        self._mode, self._root, self._sandbox = mode, root, sandbox
        self._lock = threading.Lock()
        self._live: set[int] = set()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control = Channel(ours)
        self._log = root / f"zygote-{mode}.log"
        line = [sys.executable, "-P", "-m", "kernel_skills.executor.zygote", str(theirs.fileno())]
        passed = [theirs.fileno()]
        if sandbox.strong:
            passed.append(bubblewrap.filter_file())
            gpu = sandbox.gpu and mode == "device"
            line = bubblewrap.command(sandbox.read, root, gpu, passed[-1]) + line
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                line, env=self._environment(), pass_fds=passed, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        theirs.close()
        for fd in passed[1:]:
            os.close(fd)
        self._handle = -1
        self._ready = self._broken = self._closed = False

    @property
    def usable(self) -> bool:
        """False once the process has ended, or an answer was missed: the next answer read would be that one."""
        return not self._broken and self._process.poll() is None

    def _environment(self) -> dict[str, str]:
        env = worker_environment()
        # imports write, too: matplotlib and others make a folder of their own at home
        env["HOME"] = env["TMPDIR"] = str(self._root)
        if self._mode == "interpret":
            env["TRITON_INTERPRET"] = "1"
            env["CUDA_VISIBLE_DEVICES"] = ""
        return env

    def fork(self, role: Role, cache: Path, keep_cache: bool) -> Worker:
        """Start a child in a private folder.

        Args:
            cache: its folder for compiled kernels.
            keep_cache: others share it; else it goes with the worker.

        Raises:
            WorkerError: the zygote did not start or is gone.
        """
        with self._lock:
            self._wait_until_ready()
            folder = Path(tempfile.mkdtemp(prefix=f"{self._mode}-{role}-", dir=self._root))
            log = self._root / "logs" / f"{folder.name}.log"
            confinement = self._sandbox.confinement(role, self._mode == "device", folder, cache)
            ours, theirs = Channel.pair()
            message = {
                "op": "fork", "role": role, "folder": str(folder), "log": str(log),
                "env": private_places(folder, cache), "confinement": confinement.model_dump(mode="json"),
            }  # fmt: skip
            try:
                self._control.send(message, fds=[theirs.fileno()], timeout_s=_START_TIMEOUT_S)
                answer, _, handles = self._control.receive(_START_TIMEOUT_S)
            except ChannelError as error:
                self._broken = True
                ours.close()
                raise WorkerError(
                    f"cannot start a worker process: {error}; {self._hint()}"
                ) from error
            finally:
                theirs.close()
            self._live.add(answer["pid"])
            own = (folder,) if keep_cache else (folder, cache)
            return Worker(self, answer["pid"], handles[0], ours, own, log)

    def _wait_until_ready(self) -> None:
        if self._ready:
            return
        try:
            _, _, (self._handle,) = self._control.receive(_START_TIMEOUT_S)
        except ChannelError as error:
            self._broken = True
            raise WorkerError(f"the worker process did not start: {self._hint()}") from error
        self._ready = True

    def _hint(self) -> str:
        lines = (
            self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        )
        return f"{lines[-1] if lines else 'no message'}; run `skills doctor`"

    def reap(self, pid: int, grace_s: float) -> tuple[int, str]:
        """End a child and all it started, after `grace_s` at most; return (exit status, limit that it broke), once.

        Raises:
            WorkerError: the pool was closed meanwhile (Ctrl-C): how the child ended says nothing of what it ran.
        """
        with self._lock:
            if self._closed:
                raise WorkerError("the pool was closed")
            if pid not in self._live:
                return -signal.SIGKILL, ""
            self._live.discard(pid)
            message = {"op": "reap", "pid": pid, "timeout_s": grace_s}
            try:
                answer, _ = self._control.request(message, timeout_s=grace_s + _REAP_TIMEOUT_S)
            except ChannelError as error:
                self._broken = True
                if self._closed:
                    raise WorkerError("the pool was closed") from error
                return -signal.SIGKILL, ""
            return int(answer["status"]), str(answer["why"])

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
        if self._handle >= 0:
            # bubblewrap ends before what it holds does
            select.select([self._handle], [], [], _END_TIMEOUT_S)
            os.close(self._handle)
