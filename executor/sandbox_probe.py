"""Which of the kernel's and the distribution's isolation mechanisms work for this user."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
from collections.abc import Iterator
from shutil import which

# The same on x86-64 and arm64, as for every system call added since 5.1. Source: linux/include/uapi/asm-generic/unistd.h
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_VERSION_FLAG = 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_GET_ACTION_AVAIL = 2
_SECCOMP_RET_KILL_PROCESS = 0x80000000

LANDLOCK_SCOPES_ABI = 6
"""Since this ABI landlock also keeps signals inside; since 4 it knows TCP. Source: Linux, userspace-api/landlock."""


def landlock_abi() -> int:
    """Return landlock's ABI level, 0 where the kernel has none."""
    if platform.system() != "Linux":
        return 0
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    level = syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION_FLAG)
    return max(int(level), 0)


def has_seccomp_filter() -> bool:
    """Say whether a process may be given a system-call filter."""
    number = _SECCOMP.get(platform.machine())
    if platform.system() != "Linux" or number is None:
        return False
    action = ctypes.c_uint32(_SECCOMP_RET_KILL_PROCESS)
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return bool(syscall(number, _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0)


def sandbox_mechanisms() -> Iterator[tuple[str, str, str]]:
    """Yield (mechanism, detail, mend); the mend is empty where it works."""
    abi = landlock_abi()
    if abi == 0:
        yield "landlock", "", "use Linux 5.13 or newer with landlock in the `lsm=` boot parameter"
    elif abi < LANDLOCK_SCOPES_ABI:
        detail = f"ABI {abi}: files, not signals{'' if abi >= 4 else ' and not TCP'}"
        yield "landlock", detail, ""
    else:
        yield "landlock", f"ABI {abi}", ""
    filters = has_seccomp_filter()
    yield "seccomp", "", "" if filters else "use a kernel with CONFIG_SECCOMP_FILTER"
    namespaces = _works(["unshare", "--user", "--map-root-user", "true"])
    mend = "sysctl user.max_user_namespaces=15000 (Ubuntu also: kernel.apparmor_restrict_unprivileged_userns=0)"
    yield "user namespaces", "", "" if namespaces else mend
    yield _bubblewrap()


def _bubblewrap() -> tuple[str, str, str]:
    if which("bwrap") is None:
        return "bubblewrap", "", "apt-get install bubblewrap, for the strong sandbox"
    if not _works(["bwrap", "--unshare-user", "--cap-drop", "ALL", "--ro-bind", "/", "/", "true"]):
        return "bubblewrap", "there, but cannot start a process", "allow user namespaces"
    root = "; started as root it must drop all capabilities" if os.geteuid() == 0 else ""
    return "bubblewrap", f"starts a process{root}", ""


def _works(command: list[str]) -> bool:
    if which(command[0]) is None:
        return False
    try:
        done = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
