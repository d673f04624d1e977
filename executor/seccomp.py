"""A filter over system calls, written as classic BPF: what a kernel under judgement never needs, and an escape would.

Source of the instruction format: Linux, userspace-api/seccomp_filter and include/uapi/linux/bpf_common.h; of the
numbers: asm/unistd_64.h for x86-64, asm-generic/unistd.h for arm64.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Mapping

from kernel_skills.executor.landlock import set_no_new_privileges

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> (column of the tables below, AUDIT_ARCH_*)."""

_REFUSED: Mapping[str, tuple[int | None, int | None]] = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "kcmp": (312, 272),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "fanotify_init": (300, 262),
    "quotactl": (179, 60), "quotactl_fd": (443, 443),
    # the kernel itself
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "syslog": (103, 116), "reboot": (169, 142), "acct": (163, 89),
    "swapon": (167, 224), "swapoff": (168, 225), "iopl": (172, None), "ioperm": (173, None),
    "vhangup": (153, 58),
    # the machine's clock and name
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266),
    "adjtimex": (159, 171), "sethostname": (170, 161), "setdomainname": (171, 162),
    # memory that outlives its process and is charged to nobody
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
"""Answered with EPERM. memfd_create is not among them: CUDA does not start without it."""

_ABSENT: Mapping[str, tuple[int, int]] = {
    # its flags lie in memory, which a filter cannot read; the C library then uses clone
    "clone3": (435, 435),
    # does file and socket work that no filter sees
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
"""Answered with ENOSYS, as by a kernel that lacks them."""

_SOCKET, _SOCKETPAIR, _CLONE, _CONNECT = (41, 198), (53, 199), (56, 220), (42, 203)
_NEW_NAMESPACES = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_X32_BIT = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
"""Offsets in `struct seccomp_data`; of an argument the low half, on these little-endian machines."""
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000

_SECCOMP = (317, 277)
_SET_MODE_FILTER, _GET_ACTION_AVAIL = 1, 2


def has_seccomp_filter() -> bool:
    """Say whether a process may be given a system-call filter."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        return False
    action = ctypes.c_uint32(_KILL_PROCESS)
    number = _SECCOMP[_MACHINES[platform.machine()][0]]
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return bool(syscall(number, _GET_ACTION_AVAIL, 0, ctypes.byref(action)) == 0)


def filter_program(machine: str, connects: bool = False) -> bytes:
    """Return the filter, instructions of 8 bytes.

    Args:
        machine: `x86_64` or `aarch64`.
        connects: allow connections to Unix sockets, as a GPU's driver may make. A service of the machine (Docker, a
            session bus) that listens on one starts programs for whoever may connect.
    """
    column, architecture = _MACHINES[machine]
    refuse = _RETURN, 0, 0, _ERRNO | errno.EPERM
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, architecture),
        # another table of system calls: 32-bit code
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
    for numbers in _REFUSED.values():
        if (number := numbers[column]) is not None:
            program += [(_JUMP_EQUAL, 0, 1, number), refuse]
    if not connects:
        program += [(_JUMP_EQUAL, 0, 1, _CONNECT[column]), refuse]
    for present in _ABSENT.values():
        program += [(_JUMP_EQUAL, 0, 1, present[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for call in (_SOCKET, _SOCKETPAIR):
        program += [
            (_JUMP_EQUAL, 0, 4, call[column]),
            (_LOAD, 0, 0, _ARGUMENT),
            (_JUMP_EQUAL, 1, 0, socket.AF_UNIX.value),
            refuse,
            (_RETURN, 0, 0, _ALLOW),
        ]
    program += [
        (_JUMP_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _ARGUMENT),
        (_JUMP_SET, 0, 1, _NEW_NAMESPACES),
        refuse,
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install_filter(connects: bool = False) -> bool:
    """Filter this thread and what it starts, for good; False where the machine has no filters.

    Args:
        connects: see `filter_program`.

    Raises:
        OSError: the kernel has filters and refuses this one.
    """
    if not has_seccomp_filter():
        return False
    set_no_new_privileges()
    instructions = filter_program(platform.machine(), connects)
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    program = _Program(len(instructions) // 8, ctypes.addressof(buffer))
    number = _SECCOMP[_MACHINES[platform.machine()][0]]
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    if syscall(number, _SET_MODE_FILTER, 0, ctypes.byref(program)):
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")
    return True
