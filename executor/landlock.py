"""Landlock by plain system calls: which files a process may open, whether it may use TCP, whom it may signal.

Source of numbers and structures: Linux, include/uapi/linux/landlock.h; what each ABI level knows: userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
import platform
import stat
import struct
from collections.abc import Iterable
from pathlib import Path

# the same on x86-64 and arm64, as for every system call added since 5.1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_SET_NO_NEW_PRIVS = 38

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights that a rule on something other than a folder may name."""
_TCP = 0b11
_SCOPE_ABSTRACT_SOCKET, _SCOPE_SIGNAL = 0b01, 0b10

TCP_ABI = 4
SCOPES_ABI = 6
"""Since this level signals stay inside, too."""


def landlock_abi() -> int:
    """Return landlock's ABI level, 0 where the kernel has none."""
    if platform.system() != "Linux":
        return 0
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    level = syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return max(int(level), 0)


def restrict(
    read: Iterable[Path],
    write: Iterable[Path],
    lists: Iterable[Path] = (),
    *,
    abstract_sockets: bool = False,
) -> int:
    """Confine this thread and what it starts, for good; return the ABI level, 0 where nothing was done.

    Args:
        read: files and folders that may be read and executed.
        write: files, device nodes and folders where everything may be done.
        lists: folders that may be listed, and no more.
        abstract_sockets: may reach abstract Unix sockets of processes that are not confined with it.

    Paths that are not there are passed over.

    Raises:
        OSError: the kernel has landlock and refuses.
    """
    abi = landlock_abi()
    if abi == 0:
        return 0
    handled = _handled_files(abi)
    scopes = _SCOPE_SIGNAL | (0 if abstract_sockets else _SCOPE_ABSTRACT_SOCKET)
    fields = [handled, _TCP if abi >= TCP_ABI else 0, scopes if abi >= SCOPES_ABI else 0]
    used = fields[: 3 if abi >= SCOPES_ABI else 2 if abi >= TCP_ABI else 1]
    attributes = struct.pack(f"={len(used)}Q", *used)
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        for paths, rights in ((read, _READ), (write, handled), (lists, _READ_DIR)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        set_no_new_privileges()
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return abi


def set_no_new_privileges() -> None:
    """Let no program that this process starts gain rights, by setuid or otherwise."""
    if ctypes.CDLL(None, use_errno=True).prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


def _handled_files(abi: int) -> int:
    rights = _REFER - 1
    if abi >= 2:
        rights |= _REFER
    if abi >= 3:
        rights |= _TRUNCATE
    if abi >= 5:
        rights |= _IOCTL_DEV
    return rights


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # not there, or not reachable: then there is nothing to allow
        return
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            rights &= _ON_FILES
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def _call(number: int, *arguments: object) -> int:
    result = int(ctypes.CDLL(None, use_errno=True).syscall(number, *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"landlock, system call {number}: {os.strerror(code)}")
    return result
