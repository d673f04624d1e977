"""A warm process that imports torch and triton once, forks a child per role and holds each to its limits.

It never touches CUDA, so each child starts with a clean driver in a few milliseconds (import costs 1.5 to 3 s, a fork
about 10 ms). A child confines itself before it serves its role. This process is the subreaper of whatever its children
leave behind, and dies with its parent.

Run as `python -m kernel_skills.executor.zygote FD`.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from kernel_skills.executor.channel import Channel, PeerGone
from kernel_skills.executor.process_tree import kill_all
from kernel_skills.executor.sandbox import Confinement, confine
from kernel_skills.executor.watch import INTERVAL_S, Watch, kill_others

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

ROLES = {
    "task": "kernel_skills.executor.task_worker",
    "candidate": "kernel_skills.executor.candidate_worker",
    "compile": "kernel_skills.executor.compile_worker",
    "probe": "kernel_skills.executor.device_probe",
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
    control.send({"ready": True, "imports": sys.path}, fds=[own := os.pidfd_open(os.getpid())])
    os.close(own)
    serve(control)


def serve(control: Channel) -> None:
    """Answer `fork` and `reap` until the parent closes the channel; look at the children in between."""
    watch = Watch()
    asked = select.poll()
    asked.register(control.fileno(), select.POLLIN)
    while True:
        while not watch.idle and not asked.poll(INTERVAL_S * 1000):
            watch.look()
        try:
            message, _, fds = control.receive()
        except PeerGone:
            _end_all()
        match message["op"]:
            case "fork":
                fork_child(message, fds[0], control, watch)
            case "reap":
                control.send(reap(message["pid"], message["timeout_s"], watch))


def fork_child(message: dict[str, Any], fd: int, control: Channel, watch: Watch) -> None:
    """Start a child that serves its role on `fd` and never returns here; tell the parent which process it is."""
    confinement = Confinement.model_validate(message["confinement"])
    log = Path(message["log"])
    if pid := os.fork():
        os.close(fd)
        watch.add(pid, confinement.limits, confinement.write, log)
        # its number is another one where this process has a namespace of its own
        child = os.pidfd_open(pid)
        control.send({"pid": pid}, fds=[child])
        os.close(child)
        return
    try:
        _begin(message, fd, confinement, log)
        importlib.import_module(ROLES[message["role"]]).serve(Channel.from_fd(fd))
    except PeerGone:
        os._exit(0)
    except BaseException:  # noqa: BLE001 - this process runs foreign code; whatever it raised ends it here
        import traceback

        traceback.print_exc()
        os._exit(70)
    os._exit(0)


def _begin(message: dict[str, Any], fd: int, confinement: Confinement, log: Path) -> None:
    """Make the new process a worker: alone in its session, its output in a file, confined to its folders."""
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # what it starts stays below it in the process tree, however often it forks
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.environ.update(message["env"])
    os.umask(0o077)
    _silence(log)
    os.chdir(message["folder"])
    confine(confinement, [fd])
    # a change of user clears it
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    Path(os.environ["TMPDIR"]).mkdir(exist_ok=True)


def _silence(log: Path) -> None:
    """Send standard output and error to a file: results never come from them."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(fd, 1)
    os.dup2(fd, 2)


def reap(pid: int, timeout_s: float, watch: Watch) -> dict[str, Any]:
    """Wait for a child, end it when the time is over, and kill everything that it left behind."""
    deadline = time.monotonic() + timeout_s
    status = None
    while status is None:
        done, code = os.waitpid(pid, os.WNOHANG)
        if done:
            status = os.waitstatus_to_exitcode(code)
        elif time.monotonic() > deadline:
            kill_all([pid])
            _, code = os.waitpid(pid, 0)
            status = os.waitstatus_to_exitcode(code)
        else:
            watch.look()
            time.sleep(0.002)
    why = watch.forget(pid)
    orphans = kill_others(watch.pids)
    for left in Path("/dev/shm").glob(f"torch_{pid}_*"):
        # a killed process cannot remove what counts the users of its exported memory
        with contextlib.suppress(OSError):
            left.unlink()
    return {"status": status, "why": why, "orphans": orphans}


def _end_all(*_: object) -> NoReturn:
    """Kill every descendant, then end: the parent is gone, or tells us to."""
    while kill_others(set()):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
