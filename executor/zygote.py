"""A warm process that imports torch and triton once and forks a child per role.

It never touches CUDA, so each child starts with a clean driver in a few milliseconds (import costs 1.5 to 3 s, a fork
about 10 ms). It is the subreaper of whatever its children leave behind, and dies with its parent.

Run as `python -m kernel_skills.executor.zygote FD`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import psutil

from kernel_skills.executor.channel import Channel, PeerGone

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

ROLES = {
    "task": "kernel_skills.executor.task_worker",
    "candidate": "kernel_skills.executor.candidate_worker",
    "compile": "kernel_skills.executor.compile_worker",
}


def prctl(option: int, value: int) -> None:
    """Set a process attribute; a kernel without it is no reason to stop."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main() -> None:
    control = Channel.from_fd(int(sys.argv[1]))
    # Ctrl-C reaches the whole foreground group; the parent decides what to end and how
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # SIGTERM, not SIGKILL: a child's child that left its session has nobody else to end it
    signal.signal(signal.SIGTERM, _end_all)
    prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for module in ("torch", "triton", *ROLES.values()):
        importlib.import_module(module)
    # objects of the imports never die, so children need not copy their pages to count them
    gc.freeze()
    control.send({"ready": True, "pid": os.getpid()})
    serve(control)


def serve(control: Channel) -> None:
    """Answer `fork` and `reap` until the parent closes the channel."""
    children: set[int] = set()
    while True:
        try:
            message, _, fds = control.receive()
        except PeerGone:
            _end_all()
        match message["op"]:
            case "fork":
                pid = fork_child(message, fds[0], control)
                children.add(pid)
                control.send({"pid": pid})
            case "reap":
                children.discard(message["pid"])
                control.send(reap(message["pid"], message["timeout_s"], children))


def fork_child(message: dict[str, Any], fd: int, control: Channel) -> int:
    """Start a child that serves its role on `fd` and never returns here; return its process id."""
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    try:
        control.close()
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.environ.update(message["env"])
        _silence(Path(message["log"]))
        os.chdir(message["folder"])
        importlib.import_module(ROLES[message["role"]]).serve(Channel.from_fd(fd))
    except PeerGone:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - this process runs foreign code; whatever it raised ends it here
        import traceback

        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _silence(log: Path) -> None:
    """Send standard output and error to a file: results never come from them."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(fd, 1)
    os.dup2(fd, 2)


def reap(pid: int, timeout_s: float, siblings: set[int]) -> dict[str, Any]:
    """Wait for a child, end it when the time is over, and kill everything that it left behind."""
    deadline = time.monotonic() + timeout_s
    status = None
    while status is None:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
        elif time.monotonic() > deadline:
            kill_session(pid)
            _, code = os.waitpid(pid, 0)
            status = os.waitstatus_to_exitcode(code)
        else:
            time.sleep(0.002)
    kill_session(pid)
    return {"status": status, "orphans": kill_orphans(siblings)}


def _end_all(*_: object) -> NoReturn:
    """Kill every descendant, then end: the parent is gone, or tells us to."""
    # a process that forks while it is looked for is found in the next round, as this is the subreaper
    while kill_orphans(set()):
        pass
    os._exit(0)


def kill_session(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def kill_orphans(siblings: set[int]) -> int:
    """Kill processes that were reparented to this subreaper: a child's children that left its session."""
    killed = 0
    for process in psutil.Process().children(recursive=True):
        if process.pid in siblings or any(parent.pid in siblings for parent in process.parents()):
            continue
        with contextlib.suppress(psutil.Error):
            process.kill()
            process.wait(1)
            killed += 1
    return killed


if __name__ == "__main__":
    main()
