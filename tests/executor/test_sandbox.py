"""Kernels that attack the machine. Lint rejects most of them, so they are handed to workers below it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kernel_skills.executor.bubblewrap import why_not_strong
from kernel_skills.executor.channel import ChannelError, PeerGone, PeerSilent
from kernel_skills.executor.errors import SandboxUnavailable
from kernel_skills.executor.landlock import landlock_abi
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.process_tree import descendants
from kernel_skills.executor.sandbox import Limits, SandboxChoice
from kernel_skills.executor.sandbox_limits import Role
from kernel_skills.executor.worker_environment import worker_environment
from kernel_skills.executor.worker_process import Worker

from .conftest import KERNEL, solution

ENTRY = "\ndef scale(): pass\n"
MIB = 1 << 20
SECRET = "canary-4711"

needs_landlock = pytest.mark.skipif(landlock_abi() < 6, reason="this kernel has no landlock ABI 6")


def tight(_: Role) -> Limits:
    """Small enough that an attack meets them at once, and that a broken watch does no harm here."""
    return Limits(
        memory_bytes=1536 * MIB, processes=24, disk_bytes=64 * MIB, files=400, log_bytes=MIB, wall_s=20,
    )  # fmt: skip


@pytest.fixture(scope="module", params=["embedded", "strong"])
def pool(request: pytest.FixtureRequest) -> Iterator[LocalPool]:
    level: SandboxChoice = request.param
    if level == "strong" and (why_not := why_not_strong()):
        pytest.skip(why_not)
    os.environ["SOME_API_KEY"] = os.environ["CUDA_TOKEN"] = SECRET
    try:
        with LocalPool(jobs=1, sandbox=level, limits=tight) as pool:
            yield pool
    finally:
        del os.environ["SOME_API_KEY"], os.environ["CUDA_TOKEN"]


def load(worker: Worker, code: str, timeout_s: float = 20.0) -> dict[str, Any]:
    message = {
        "op": "load", "device": "cpu", "solution": solution(code + ENTRY).model_dump(mode="json"),
    }  # fmt: skip
    return worker.request(message, timeout_s=timeout_s)


def below(pool: LocalPool) -> set[int]:
    """The processes of a pool that has started."""
    found = set()
    for zygote in pool._zygotes.values():
        found |= {zygote._process.pid, *descendants(zygote._process.pid)}
    return found


def run(pool: LocalPool, code: str, timeout_s: float = 20.0) -> tuple[str, str]:
    """Run code in a worker; return (what it printed, how it failed), and see that nothing is left of it."""
    pool.start("candidate").end()
    before = below(pool)
    worker = pool.start("candidate")
    try:
        failure = str(load(worker, code, timeout_s).get("log", ""))
    except ChannelError as error:
        failure = type(error).__name__
    printed = worker.log_tail()
    ended = worker.end_described(0.1)
    assert below(pool) == before, "something is left running"
    return printed, f"{failure}{ended}"


def works(pool: LocalPool) -> bool:
    worker = pool.start("candidate")
    with closing(worker.channel):
        answer = load(worker, KERNEL)
    worker.end()
    return bool(answer.get("ok"))


# --- resources --------------------------------------------------------------------------------

FORK_BOMB = """
import os, time
# ends by itself after 400 forks, should nothing else end it
for _ in range(400):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        time.sleep(30)
        os._exit(0)
time.sleep(30)
"""
MEMORY = """
import time
kept = []
# 3 GiB at most, should nothing else end it
for _ in range(48):
    kept.append(bytearray(b"x") * (64 << 20))
    time.sleep(0.01)
time.sleep(30)
"""
SHARED_MEMORY = """
import os, time
fd = os.memfd_create("hidden")
for _ in range(40):
    os.write(fd, b"x" * (8 << 20))
    time.sleep(0.02)
time.sleep(30)
"""
DISK = """
import time
for number in range(40):
    with open(f"file{number}", "wb") as file:
        file.write(b"x" * (8 << 20))
    time.sleep(0.02)
time.sleep(30)
"""
REMOVED_FILE = """
import os, time
file = open("gone", "wb")
os.remove("gone")
for _ in range(40):
    file.write(b"x" * (8 << 20))
    file.flush()
    time.sleep(0.02)
time.sleep(30)
"""
FILES = """
import time
for number in range(2000):
    open(f"file{number}", "w").close()
time.sleep(30)
"""
DEEP = """
import os, time
for _ in range(30):
    os.mkdir("d" * 200)
    os.chdir("d" * 200)
time.sleep(30)
"""


@pytest.mark.parametrize(
    ("code", "why"),
    [
        pytest.param(FORK_BOMB, "processes, more than the 24", id="fork bomb"),
        pytest.param(MEMORY, "MiB of memory, more than the 1536", id="memory"),
        pytest.param(
            SHARED_MEMORY, "MiB in files, more than the 64", id="memory that no map shows"
        ),
        pytest.param(DISK, "MiB in files, more than the 64", id="disk"),
        pytest.param(REMOVED_FILE, "MiB in files, more than the 64", id="a file that has no name"),
        pytest.param(FILES, "more than the 400 files", id="many files"),
        pytest.param(DEEP, "folders within folders", id="deep folders"),
    ],
)
def test_what_takes_too_much_is_ended_and_the_log_says_why(
    pool: LocalPool, code: str, why: str
) -> None:
    start = time.monotonic()
    _, failure = run(pool, code)
    assert "PeerGone" in failure
    assert "ended by the sandbox" in failure
    assert why in failure
    assert time.monotonic() - start < 10
    assert works(pool)


def test_a_hundred_gigabytes_are_refused(pool: LocalPool) -> None:
    _, failure = run(pool, "x = bytearray(100 << 30)")
    assert "MemoryError" in failure
    assert works(pool)


def test_a_gigabyte_of_output_is_dropped(pool: LocalPool) -> None:
    worker = pool.start("candidate")
    code = "line = 'x' * (1 << 20)\nfor _ in range(1 << 10): print(line, flush=True)"
    assert load(worker, "print('first', flush=True)\n" + code)["ok"]
    worker.end()
    text = worker.log.read_bytes()
    assert len(text) <= MIB
    assert text.startswith(b"first\n")


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import os\nfor _ in range(300):\n    os.mkdir('d'); os.chdir('d')", id="deep"),
        pytest.param("import os; os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)", id="closed"),
        pytest.param("import os; os.symlink('/usr', 'usr'); os.mkfifo('pipe')", id="links and pipes"),
    ],
)  # fmt: skip
def test_whatever_a_worker_left_on_disk_goes_with_it(pool: LocalPool, code: str) -> None:
    worker = pool.start("candidate")
    load(worker, code)
    worker.end(0)
    assert not worker.folder.exists()
    assert Path("/usr").exists()


# --- ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        pytest.param("while True: pass", "PeerSilent (SIGKILL)", id="an endless loop"),
        pytest.param(
            "import signal\nfor n in range(1, 32):\n"
            "    if n not in (9, 19): signal.signal(n, signal.SIG_IGN)\nwhile True: pass",
            "PeerSilent (SIGKILL)",
            id="signals ignored",
        ),
        pytest.param("import ctypes; ctypes.string_at(0)", "PeerGone (SIGSEGV)", id="segfault"),
        pytest.param("import os; os._exit(0)", "PeerGone (exit status 0)", id="os._exit(0)"),
        pytest.param("exit(0)", "SystemExit: 0", id="exit(0)"),
        pytest.param(
            "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\n"
            "os._exit(0)",
            "PeerGone (exit status 0)",
            id="a survivor in a session of its own",
        ),
        pytest.param(
            "import os, time\n"
            "import ctypes; ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)\n"
            "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(60)\n    os._exit(0)\n"
            "time.sleep(0.3)",
            "(exit status 0)",
            id="a survivor that leaves the worker's tree",
        ),
    ],
)  # fmt: skip
def test_every_end_is_a_typed_failure_and_leaves_nothing(
    pool: LocalPool, code: str, failure: str
) -> None:
    start = time.monotonic()
    assert failure in run(pool, code, timeout_s=1)[1]
    assert time.monotonic() - start < 3
    assert works(pool)


def test_a_worker_has_a_life_of_its_own_length() -> None:
    short = Limits(
        memory_bytes=1 << 34, processes=24, disk_bytes=1 << 30, files=400, wall_s=0.5
    )  # fmt: skip
    with LocalPool(jobs=1, limits=lambda _: short) as pool:
        _, failure = run(pool, "import time; time.sleep(20)")
    assert "it ran for more than 0.5 s" in failure


# --- the machine ------------------------------------------------------------------------------


@needs_landlock
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("print(open({home!r} + '/.ssh/id').read())", id="a key at home"),
        pytest.param("import os; print(os.listdir({home!r}))", id="the home itself"),
        pytest.param("print(open('/etc/shadow').read())", id="password hashes"),
        pytest.param("import os; print(os.listdir('..'))", id="the other workers"),
        pytest.param("open({home!r} + '/new', 'w')", id="write at home"),
        pytest.param("import os; os.remove({home!r} + '/.ssh/id')", id="remove at home"),
        pytest.param("open('/tmp/new', 'w')", id="write to the common temporary folder"),
        pytest.param("import os; os.link({home!r} + '/.ssh/id', 'mine'); print(open('mine').read())", id="link"),
        pytest.param("import os; os.symlink({home!r} + '/.ssh/id', 'mine'); print(open('mine').read())", id="symbolic link"),
        pytest.param("print(open('/proc/{parent}/environ').read())", id="the judge's environment"),
        pytest.param("print(open('/proc/{parent}/mem', 'rb').read(1))", id="the judge's memory"),
        pytest.param("import os; os.kill({parent}, 0)", id="a signal to the judge"),
        pytest.param("import os; os.kill(os.getppid(), 15)", id="a signal to the warm process"),
        pytest.param("print(open('/proc/' + str(__import__('os').getppid()) + '/environ').read())", id="the warm process's environment"),
    ],
)  # fmt: skip
def test_the_machine_is_out_of_reach(pool: LocalPool, tmp_path: Path, code: str) -> None:
    home = tmp_path / "someone"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text(SECRET)
    printed, failure = run(pool, code.format(home=str(home), parent=os.getpid()))
    denied = ("PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError")
    assert any(name in failure for name in denied), failure
    assert SECRET not in printed + failure
    assert (home / ".ssh" / "id").read_text() == SECRET
    assert sorted(path.name for path in home.iterdir()) == [".ssh"]
    assert not Path("/tmp/new").exists()


def test_no_variable_of_ours_reaches_a_worker(pool: LocalPool) -> None:
    code = (
        "import os\nprint(dict(os.environ), open('/proc/self/environ').read(), flush=True)\n"
        "print('home is', os.path.expanduser('~'), os.environ['TMPDIR'], flush=True)"
    )
    printed, failure = run(pool, code)
    assert "exit status 0" in failure
    assert "home is" in printed
    assert SECRET not in printed
    assert f"home is {Path.home()} " not in printed


def test_no_descriptor_of_ours_reaches_a_worker(pool: LocalPool) -> None:
    with Path(os.devnull).open(), socket.socket():
        code = "import os; print(sorted(os.listdir('/proc/self/fd'), key=int), flush=True)"
        printed, _ = run(pool, code)
    # the last is the listing's own
    assert len(printed.strip().strip("[]").split(",")) == 5, printed


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM)", id="TCP"),
        pytest.param("import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM)", id="UDP"),
        pytest.param("import socket; socket.socket(socket.AF_INET6, socket.SOCK_STREAM)", id="IPv6"),
        pytest.param("import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)", id="netlink"),
        pytest.param("import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", id="raw packets"),
        pytest.param("import socket; socket.socket(40, socket.SOCK_STREAM)", id="vsock"),
    ],
)  # fmt: skip
def test_there_is_no_network(pool: LocalPool, code: str) -> None:
    assert "PermissionError: [Errno 1]" in run(pool, code)[1]


def test_no_service_of_the_machine_is_reached_over_a_unix_socket(
    pool: LocalPool, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "s"))
        service.listen()
        code = f"import socket; socket.socket(socket.AF_UNIX).connect({str(tmp_path / 's')!r})"
        assert "PermissionError: [Errno 1]" in run(pool, code)[1]


def test_a_unix_socket_pair_works(pool: LocalPool) -> None:
    code = "import socket; a, b = socket.socketpair(); a.send(b'x'); assert b.recv(1) == b'x'"
    assert run(pool, code)[1] == " (exit status 0)"


SYSTEM_CALLS = {
    "ptrace": "l.ptrace(16, os.getppid(), 0, 0)",
    "process_vm_readv": "l.process_vm_readv(os.getppid(), 0, 0, 0, 0, 0)",
    "unshare": "l.unshare(0x10000000)",
    "setns": "l.setns(0, 0)",
    "mount": "l.mount(b'none', b'.', b'tmpfs', 0, 0)",
    "clone into a user namespace": "l.syscall(56, 0x10000011, 0, 0, 0, 0)",
    "shmget": "l.shmget(0, 1 << 20, 0o1600)",
    "pidfd_getfd": "l.syscall(438, 0, 0, 0)",
    "bpf": "l.syscall(321, 0, 0, 0)",
    "perf_event_open": "l.syscall(298, 0, 0, -1, -1, 0)",
    "userfaultfd": "l.syscall(323, 0)",
    "keyctl": "l.syscall(250, 0, -3, 0)",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86-64")
@pytest.mark.parametrize("call", SYSTEM_CALLS.values(), ids=SYSTEM_CALLS.keys())
def test_a_system_call_that_no_kernel_needs_is_refused(pool: LocalPool, call: str) -> None:
    code = f"import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\nprint({call}, ctypes.get_errno(), flush=True)"
    assert run(pool, code)[0].split() == ["-1", "1"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers are those of x86-64")
@pytest.mark.parametrize("number", [425, 426, 427, 435])
def test_what_no_filter_can_see_is_absent(pool: LocalPool, number: int) -> None:
    code = f"import ctypes\nl = ctypes.CDLL(None, use_errno=True)\nprint(l.syscall({number}, 0, 0, 0, 0, 0, 0), ctypes.get_errno(), flush=True)"
    assert run(pool, code)[0].split() == ["-1", "38"]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is of x86-64 alone")
def test_another_table_of_system_calls_is_deadly(pool: LocalPool) -> None:
    code = "import ctypes; ctypes.CDLL(None).syscall(0x40000000 | 41, 2, 1, 0)"
    assert "SIGSYS" in run(pool, code)[1]


def test_what_a_kernel_needs_works(pool: LocalPool) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    code = (
        "import os, subprocess, tempfile, threading\n"
        "open('a.c', 'w').write('#include <Python.h>\\nint main(void) { return 7; }')\n"
        "import sysconfig\n"
        "subprocess.run(['cc', '-I', sysconfig.get_path('include'), 'a.c', '-o', 'a'], check=True)\n"
        "assert subprocess.run(['./a']).returncode == 7\n"
        "threading.Thread(target=print).start()\n"
        "tempfile.NamedTemporaryFile(); os.memfd_create('x')\n"
        "os.makedirs(os.environ['TRITON_CACHE_DIR'])\n"
        "import torch; assert torch.ones(3).sum() == 3\n"
    )
    assert run(pool, code)[1] == " (exit status 0)"


# --- levels -----------------------------------------------------------------------------------


def test_a_pool_says_what_holds_its_workers(pool: LocalPool) -> None:
    found = pool.sandbox
    assert found.landlock_abi == landlock_abi()
    printed, _ = run(pool, "import os; print(os.getuid(), flush=True)")
    assert int(printed) == found.uid
    status, _ = run(
        pool,
        "print([line for line in open('/proc/self/status') if line[:7] in ('CapEff:', 'NoNewPr', 'Seccomp')], flush=True)",
    )
    assert "CapEff:\\t0000000000000000" in status or "CapEff:\\t0000000000000004" in status
    assert "NoNewPrivs:\\t1" in status
    assert found.seccomp is ("Seccomp:\\t2" in status)


def test_strong_is_refused_where_there_is_no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    why_not_strong.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match="apt-get install bubblewrap"):
            LocalPool(sandbox="strong")
        with LocalPool(sandbox="auto") as pool:
            assert pool.sandbox.level == "embedded"
    finally:
        why_not_strong.cache_clear()


def test_the_silent_and_the_gone_are_told_apart(pool: LocalPool) -> None:
    silent, gone = pool.start("candidate"), pool.start("candidate")
    with pytest.raises(PeerSilent):
        load(silent, "import time; time.sleep(30)", timeout_s=0.3)
    gone.kill()
    with pytest.raises(PeerGone):
        load(gone, "")
    silent.end(0)
    gone.end(0)


def test_doctors_trial_computes_in_the_sandbox_and_opens_nothing_else() -> None:
    command = [sys.executable, "-P", "-m", "kernel_skills.executor.sandbox_trial", "cpu"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=worker_environment()
    )
    assert json.loads(done.stdout) == {"ok": True, "outside": []}
