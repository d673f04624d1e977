"""The filter's instructions, run by a small interpreter of classic BPF: arm64's table cannot be tried on x86-64."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from kernel_skills.executor.seccomp import filter_program

ALLOW, KILL, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
NUMBERS = {
    "read": (0, 63), "openat": (257, 56), "memfd_create": (319, 279), "ioctl": (16, 29), "execve": (59, 221),
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "clone": (56, 220),
    "clone3": (435, 435), "io_uring_setup": (425, 425), "ptrace": (101, 117), "bpf": (321, 280),
    "mount": (165, 40), "unshare": (272, 97), "perf_event_open": (298, 241),
}  # fmt: skip
SIGCHLD, CLONE_THREAD_FLAGS, CLONE_NEWUSER = 17, 0x3D0F00, 0x10000000


def verdict(program: bytes, number: int, architecture: int, argument: int = 0) -> int:
    """Return what the filter answers to a system call."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, argument, 0, 0, 0, 0, 0)
    accumulator, at = 0, 0
    instructions = list(struct.iter_unpack("<HBBI", program))
    while True:
        code, when_true, when_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x15:
                at += when_true if accumulator == value else when_false
            case 0x35:
                at += when_true if accumulator >= value else when_false
            case 0x45:
                at += when_true if accumulator & value else when_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.mark.parametrize(
    ("name", "argument", "expected"),
    [
        ("read", 0, ALLOW),
        ("openat", 0, ALLOW),
        ("memfd_create", 0, ALLOW),
        ("ioctl", 0, ALLOW),
        ("execve", 0, ALLOW),
        ("socket", socket.AF_UNIX, ALLOW),
        ("socketpair", socket.AF_UNIX, ALLOW),
        ("socket", socket.AF_INET, ERRNO | errno.EPERM),
        ("socket", socket.AF_NETLINK, ERRNO | errno.EPERM),
        ("connect", 3, ERRNO | errno.EPERM),
        ("clone", SIGCHLD, ALLOW),
        ("clone", CLONE_THREAD_FLAGS, ALLOW),
        ("clone", CLONE_NEWUSER | SIGCHLD, ERRNO | errno.EPERM),
        ("clone3", 0, ERRNO | errno.ENOSYS),
        ("io_uring_setup", 0, ERRNO | errno.ENOSYS),
        ("ptrace", 0, ERRNO | errno.EPERM),
        ("bpf", 0, ERRNO | errno.EPERM),
        ("mount", 0, ERRNO | errno.EPERM),
        ("unshare", 0, ERRNO | errno.EPERM),
        ("perf_event_open", 0, ERRNO | errno.EPERM),
    ],
)
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_call_is_answered(machine: str, name: str, argument: int, expected: int) -> None:
    number = NUMBERS[name][machine == "aarch64"]
    program = filter_program(machine)
    assert verdict(program, number, ARCHITECTURES[machine], argument) == expected


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_code_for_another_machine_is_ended(machine: str) -> None:
    i386 = 0x40000003
    assert verdict(filter_program(machine), 1, i386) == KILL


def test_a_driver_may_connect() -> None:
    program = filter_program("x86_64", connects=True)
    assert verdict(program, NUMBERS["connect"][0], ARCHITECTURES["x86_64"], 3) == ALLOW


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_number_has_one_answer(machine: str) -> None:
    # no jump leaves the program, whatever is asked
    program = filter_program(machine)
    answers = {verdict(program, number, ARCHITECTURES[machine]) for number in range(600)}
    assert answers == {ALLOW, ERRNO | errno.EPERM, ERRNO | errno.ENOSYS}
