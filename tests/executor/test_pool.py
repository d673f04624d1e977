"""Processes: what a worker leaves behind, and what a dead parent does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import kernel_skills.executor.pool as pool_module
from kernel_skills.executor.channel import PeerGone, PeerSilent
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.worker_process import Worker

from .conftest import KERNEL, REFERENCE, changed, solution

IMPORT_ROOT = Path(pool_module.__file__).resolve().parents[1] / ".importroot"

DETACHED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open("detached.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename("detached.new", "detached")
        time.sleep(600)
    os._exit(0)
"""
"""Leaves a grandchild in a session of its own, its process id in a file."""


def load(worker: Worker, content: str, timeout_s: float = 20) -> dict[str, object]:
    message = {"op": "load", "device": "cpu", "solution": solution(content).model_dump(mode="json")}
    return worker.request(message, timeout_s=timeout_s)


def wait_for(what: Callable[[], object], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if what():
            return True
        time.sleep(0.02)
    return False


def alive(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def works(pool: LocalPool) -> bool:
    worker = pool.start("candidate")
    answer = load(worker, KERNEL)
    worker.end()
    return answer.get("ok") is True


def test_each_worker_is_a_process_of_its_own(pool: LocalPool) -> None:
    first, second = pool.start("candidate"), pool.start("candidate")
    assert load(first, "import math; math.mark = 1\ndef scale(): pass")["ok"]
    answer = load(second, "import math; math.mark\ndef scale(): pass")
    first.end()
    second.end()
    assert first.pid != second.pid
    assert "AttributeError" in str(answer["log"])


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        pytest.param("import os; os.abort()", -signal.SIGABRT, id="abort"),
        pytest.param("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, id="segfault"),
        pytest.param("import os; os._exit(7)", 7, id="exit"),
        pytest.param(
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, id="killed"
        ),
    ],
)
def test_the_next_worker_is_fine_after_one_that(
    pool: LocalPool, statement: str, status: int
) -> None:
    worker = pool.start("candidate")
    with pytest.raises(PeerGone):
        load(worker, statement)
    assert worker.end() == status
    assert works(pool)


def test_sys_exit_is_an_answer(pool: LocalPool) -> None:
    worker = pool.start("candidate")
    assert load(worker, "import sys; sys.exit(3)")["failed"] == "RUNTIME_ERROR"
    assert worker.end() == 0


def test_a_worker_that_hangs_ends_with_all_that_it_started(pool: LocalPool) -> None:
    worker = pool.start("candidate")
    with pytest.raises(PeerSilent):
        load(worker, DETACHED + "while True: pass", timeout_s=1)
    pid = int((worker.folder / "detached").read_text())
    assert alive(pid)
    assert worker.end(0.1) == -signal.SIGKILL
    assert not alive(worker.pid)
    assert not alive(pid)
    assert works(pool)


def test_ending_one_worker_spares_the_children_of_another(pool: LocalPool) -> None:
    keeper, other = pool.start("candidate"), pool.start("candidate")
    child = "import subprocess\nPID = subprocess.Popen(['sleep', '60']).pid\nopen('child', 'w').write(str(PID))\ndef scale(): pass"
    load(keeper, child)
    pid = int((keeper.folder / "child").read_text())
    other.end(0.1)
    assert alive(pid)
    keeper.end(0.1)
    assert not alive(pid)


def test_a_worker_cannot_read_another_ones_standard_input_or_ours(pool: LocalPool) -> None:
    worker = pool.start("candidate")
    load(worker, "import sys\nprint(repr(sys.stdin.read()), flush=True)\ndef scale(): pass")
    assert worker.log_tail().strip() == "''"
    worker.end()


def test_a_zygote_that_was_killed_is_replaced() -> None:
    with LocalPool() as pool:
        worker = pool.start("candidate")
        zygote = psutil.Process(worker.pid).parent()
        assert zygote is not None
        zygote.kill()
        assert wait_for(lambda: not alive(worker.pid)), "a worker outlives its zygote"
        with pytest.raises(PeerGone):
            load(worker, KERNEL)
        worker.end()
        assert works(pool)


def test_a_pool_first_used_in_a_thread_outlives_the_thread() -> None:
    import threading

    with LocalPool() as pool:
        thread = threading.Thread(target=works, args=(pool,))
        thread.start()
        thread.join()
        time.sleep(0.1)
        (zygote,) = pool._zygotes.values()
        assert zygote.usable
        assert works(pool)


def test_a_closed_pool_leaves_no_process_and_no_folder() -> None:
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with LocalPool() as pool:
        worker = pool.start("candidate")
        load(worker, DETACHED + "def scale(): pass")
        assert wait_for((worker.folder / "detached").exists)
        detached = int((worker.folder / "detached").read_text())
        folder = worker.folder.parent
        started = {process.pid for process in psutil.Process().children(recursive=True)} - before
        assert {worker.pid, detached} <= started
    assert not folder.exists()
    assert not [pid for pid in started if alive(pid)]


HOLDER = f"""
import sys, time
from pathlib import Path
from kernel_skills.executor.pool import LocalPool
pool = LocalPool()
pool.warm("interpret")
worker = pool.start("candidate")
source = {(DETACHED + "def scale(): pass")!r}
solution = {{
    "name": "x", "definition": "x", "spec": {{"target_hardware": ["sm_90"], "entry_point": "k.py::scale"}},
    "sources": [{{"path": "k.py", "content": source}}],
}}
worker.request({{"op": "load", "device": "cpu", "solution": solution}}, timeout_s=30)
while not (worker.folder / "detached").exists():
    time.sleep(0.01)
print(worker.folder, flush=True)
time.sleep(600)
"""


def test_a_killed_parent_leaves_no_process_within_two_seconds(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), "TMPDIR": str(tmp_path)}
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().strip())
    started = [process.pid for process in psutil.Process(holder.pid).children(recursive=True)]
    started.append(int((folder / "detached").read_text()))
    assert len(set(started)) >= 3
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert wait_for(lambda: not any(map(alive, started)), seconds=2)

    # the next pool removes what the killed one left on disk
    tempfile_before = tempfile.tempdir
    tempfile.tempdir = str(tmp_path)
    try:
        LocalPool().close()
    finally:
        tempfile.tempdir = tempfile_before
    assert not folder.exists()


SKILL = """\
schema_version = 1
name = "scale-rows"
version = "1.0.0"
kind = "operator"
summary = "Scale."
patterns = ["locality"]

[[definition]]
name = "scale-rows"
op_type = "scale"
dtypes = { T = ["float32"] }
reference = "reference.py::scale"
axes = { rows = { type = "var" }, cols = { type = "var" } }
inputs = { x = { shape = ["rows", "cols"], dtype = "T" }, factor = { dtype = "float32", default = 3.0 } }
outputs = { y = { shape = ["rows", "cols"], dtype = "T" } }

[[workload]]
definition = "scale-rows"
name = "tiny"
purpose = "smoke"
axes = { rows = 3, cols = 5 }
dtypes = { T = "float32" }

[[variant]]
id = "portable"
definition = "scale-rows"
entry = "kernels/portable.py::scale"
archs = ["any"]
"""


def write_skill(folder: Path, kernel: str) -> None:
    files = {
        "SKILL.md": "---\nname: scale-rows\ndescription: Scale rows. Use for rows.\n---\n# Scale\n",
        "skill.toml": SKILL,
        "reference.py": REFERENCE,
        "kernels/portable.py": kernel,
    }
    for path, content in files.items():
        file = folder / "scale-rows" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)


HANGING = changed("    rows, cols = x.shape\n", "    while True: pass\n    rows, cols = x.shape\n")


@pytest.mark.parametrize(
    ("kernel", "role"),
    [
        pytest.param(HANGING, "compile", id="while it compiles"),
        pytest.param(
            # meta tensors, so while it compiles, have no address
            HANGING.replace("while True", "while x.device.type == 'cpu'"),
            "candidate",
            id="while it verifies",
        ),
    ],
)
def test_ctrl_c_exits_with_130_and_leaves_nothing(tmp_path: Path, kernel: str, role: str) -> None:
    write_skill(tmp_path / "skills", kernel)
    environment = {
        **os.environ,
        "PYTHONPATH": str(IMPORT_ROOT),
        "TMPDIR": str(tmp_path),
        "KERNEL_SKILLS_HOME": str(tmp_path / "home"),
    }
    command = ["--skills-dir", str(tmp_path / "skills"), "run", "scale-rows", "--target", "h100"]
    run = subprocess.Popen(
        [sys.executable, "-m", "kernel_skills.cli.main", *command],
        env=environment, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert wait_for(lambda: list(tmp_path.glob(f"kernel-skills-*/pool-*/*-{role}-*/source*")) or list(tmp_path.glob(f"kernel-skills-*/pool-*/*-{role}-*/solution")) or run.poll() is not None), "not started"  # fmt: skip
    time.sleep(0.3)
    started = [process.pid for process in psutil.Process(run.pid).children(recursive=True)]
    assert run.poll() is None, run.communicate()
    run.send_signal(signal.SIGINT)
    code = run.wait(10)
    assert run.stdout is not None
    assert code == 130, run.stdout.read()
    assert started
    assert wait_for(lambda: not any(map(alive, started)), seconds=2)
    assert not list(tmp_path.glob("kernel-skills-*/pool-*"))
    assert not list((tmp_path / "home").rglob("*.jsonl")), "a run that was broken off left evidence"
    assert run.stdout is not None
    run.stdout.close()
