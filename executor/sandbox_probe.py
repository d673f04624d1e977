"""What holds the workers on this machine, and what would hold them better."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from shutil import which
from typing import Any

from kernel_skills.executor import device_health
from kernel_skills.executor.bubblewrap import why_not_strong
from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.errors import WorkerError
from kernel_skills.executor.failure import headline
from kernel_skills.executor.landlock import SCOPES_ABI, TCP_ABI, landlock_abi
from kernel_skills.executor.pool import LocalPool, base_folder
from kernel_skills.executor.sandbox_roots import gpu_nodes
from kernel_skills.executor.sandbox_trial import LAYERS, Layer
from kernel_skills.executor.seccomp import has_seccomp_filter
from kernel_skills.executor.worker_environment import worker_environment

_NAMESPACES_MEND = "sysctl user.max_user_namespaces=15000 (Ubuntu also: kernel.apparmor_restrict_unprivileged_userns=0)"


def sandbox_mechanisms() -> Iterator[tuple[str, str, str]]:
    """Yield (mechanism, detail, mend); the mend is empty where it works."""
    yield _in_force()
    abi = landlock_abi()
    if abi == 0:
        yield "landlock", "", "use Linux 5.13 or newer with landlock in the `lsm=` boot parameter"
    elif abi < SCOPES_ABI:
        detail = f"ABI {abi}: files, not signals{'' if abi >= TCP_ABI else ' and not TCP'}"
        yield "landlock", detail, ""
    else:
        yield "landlock", f"ABI {abi}", ""
    filters = has_seccomp_filter()
    yield "seccomp", "", "" if filters else "use a kernel with CONFIG_SECCOMP_FILTER"
    namespaces = _works(["unshare", "--user", "--map-root-user", "true"])
    yield "user namespaces", "", "" if namespaces else _NAMESPACES_MEND
    yield _bubblewrap()
    for path, mark in device_health.marks(base_folder()):
        yield f"device {mark.device}", "", device_health.in_words(path, mark)


def _in_force() -> tuple[str, str, str]:
    """Say which level a run gets that asks for none, and whether a worker computes in it, on a GPU where one is."""
    place = "cuda:0" if gpu_nodes() else "cpu"
    try:
        with LocalPool(jobs=1) as pool:
            found = pool.sandbox
            worker = pool.start("probe")
            try:
                answer = worker.request({"device": place}, timeout_s=device_health.PROBE_SECONDS)
            except ChannelError as error:
                answer = {"log": f"{error}{worker.end_described(0)}"}
            finally:
                worker.end(0)
    except WorkerError as error:
        return "in force", "", f"{error}; docs/sandbox.md says how to find what was denied"
    user = f"user {found.uid}" if found.uid != os.getuid() else f"your own user {found.uid}"
    detail = f"{found.level}; workers run as {user}"
    if not answer.get("ok"):
        wrong = headline(str(answer.get("log") or "it computes wrong values"))
        return (
            "in force",
            detail,
            f"a worker does not compute on {place}: {wrong}; {_denied(place)}",
        )
    lost = f"; not held: {'; '.join(found.lost)}" if found.lost else ""
    return "in force", f"{detail} and compute on {place}{lost}", ""


def _denied(place: str) -> str:
    """Say which layer of the sandbox keeps a worker from computing, and which files it needs."""
    for layer in LAYERS:
        answer = _tried(place, layer)
        if answer.get("ok"):
            outside = answer["outside"]
            files = f", and opens what is not allowed: {', '.join(outside)}" if outside else ""
            return f"without {layer} it does{files}; report this with the output of `skills doctor --json`"
    return (
        "nor does it without any one layer of the sandbox: see what the driver says outside of it"
    )


def _tried(place: str, layer: Layer) -> dict[str, Any]:
    line = [sys.executable, "-P", "-m", "kernel_skills.executor.sandbox_trial", place, layer]
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=device_health.PROBE_SECONDS, check=False,
            env=worker_environment(),
        )  # fmt: skip
        answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return {}
    return answer


def _bubblewrap() -> tuple[str, str, str]:
    if which("bwrap") is None:
        return "bubblewrap", "", "apt-get install bubblewrap, for --sandbox strong"
    if why_not := why_not_strong():
        return "bubblewrap", "there, but not usable", why_not
    return "bubblewrap", "--sandbox strong works", ""


def _works(command: list[str]) -> bool:
    if which(command[0]) is None:
        return False
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
