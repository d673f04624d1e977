"""A killed run leaves no survivor, and the next start says that it was cut."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kernel_skills.executor.run_journal import Pledge, RunJournal

from .conftest import KERNEL
from .test_pool import HANGING, IMPORT_ROOT, alive, wait_for, write_skill

HOLD = """
import sys, time
from pathlib import Path
from kernel_skills.executor.run_journal import Pledge, RunJournal
with RunJournal(Path(sys.argv[1])).pledged([Pledge(file=Path(sys.argv[2]), line="cut")]):
    print("held", flush=True)
    time.sleep(60)
"""


def environment(folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": str(IMPORT_ROOT),
        "TMPDIR": str(folder),
        "KERNEL_SKILLS_HOME": str(folder / "home"),
    }


def test_work_that_ends_leaves_nothing(tmp_path: Path) -> None:
    journal, record = RunJournal(tmp_path / "runs"), tmp_path / "record"
    with journal.pledged([Pledge(file=record, line="cut")]):
        assert journal.settle() == 0, "it is at work still"
    with pytest.raises(KeyboardInterrupt), journal.pledged([Pledge(file=record, line="cut")]):
        raise KeyboardInterrupt
    assert journal.settle() == 0
    assert list(tmp_path.iterdir()) == []


def test_killed_work_is_recorded_once(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text('{"torn": ')
    command = [sys.executable, "-c", HOLD, str(tmp_path / "runs"), str(record)]
    with subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as work:
        assert work.stdout is not None
        assert work.stdout.readline() == "held\n"
        work.kill()
    journal = RunJournal(tmp_path / "runs")
    assert journal.settle() == 1
    assert journal.settle() == 0
    assert record.read_text() == '{"torn": \ncut\n'
    assert not (tmp_path / "runs").exists()


def test_a_torn_page_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "running-1-x").write_text('{"pledges": [{"fi')
    assert RunJournal(tmp_path).settle() == 0
    assert not (tmp_path / "running-1-x").exists()


def killed_while_verifying(command: list[str], folder: Path) -> None:
    """Start a command on a kernel that hangs, kill it with -9, and see that nothing is left running."""
    run = subprocess.Popen(
        [sys.executable, "-m", "kernel_skills.cli.main", *command],
        env=environment(folder), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    started = "kernel-skills-*/pool-*/*-candidate-*/solution"
    assert wait_for(lambda: list(folder.glob(started)) or run.poll() is not None, 60)
    below = [process.pid for process in psutil.Process(run.pid).children(recursive=True)]
    assert len(below) >= 3
    run.send_signal(signal.SIGKILL)
    assert run.wait(10) == -signal.SIGKILL
    assert wait_for(lambda: not any(map(alive, below)), seconds=2), "a survivor"


# meta tensors, so while it compiles, have no address
ENDLESS = HANGING.replace("while True", "while x.device.type == 'cpu'")


def test_a_killed_run_is_interrupted_in_the_evidence(tmp_path: Path) -> None:
    write_skill(tmp_path / "skills", ENDLESS)
    command = [
        "--skills-dir", str(tmp_path / "skills"), "verify", "scale-rows", "--target", "h100",
    ]  # fmt: skip
    killed_while_verifying(command, tmp_path)
    evidence = tmp_path / "home" / "evidence" / "scale-rows" / "scale-rows.jsonl"
    assert not evidence.exists()

    write_skill(tmp_path / "skills", KERNEL)
    done = subprocess.run(
        [sys.executable, "-m", "kernel_skills.cli.main", *command],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    traces = [json.loads(line) for line in evidence.read_text().splitlines()]
    assert [trace["evaluation"]["status"] for trace in traces] == ["INTERRUPTED", "PASSED"]
    assert traces[0]["workload"]["name"] == "tiny"
    assert traces[0]["evaluation"]["environment"]["sandbox"]["level"] == "embedded"
    assert traces[0]["skill"]["variant_digest"] != traces[1]["skill"]["variant_digest"]
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["evidence"]


PROBLEM = """
import torch

def make_inputs(seed):
    return [torch.randn(6, 8)]

def reference(x):
    return x * 3.0
"""


def test_a_killed_folder_is_interrupted_in_its_verdicts_and_judged_again(tmp_path: Path) -> None:
    (tmp_path / "problem.py").write_text(PROBLEM)
    candidates = tmp_path / "candidates"
    candidates.mkdir()
    kernel = KERNEL.replace("def scale(x, *, factor=2.0)", "def candidate(x, factor=3.0)")
    hanging = kernel.replace(
        "    rows, cols = x.shape\n",
        "    while x.device.type == 'cpu': pass\n    rows, cols = x.shape\n",
    )
    (candidates / "one.py").write_text(hanging)
    command = ["judge", str(tmp_path / "problem.py"), str(candidates), "--json"]
    killed_while_verifying(command, tmp_path)
    verdicts = candidates / "verdicts.jsonl"
    assert not verdicts.exists()

    done = subprocess.run(
        [sys.executable, "-m", "kernel_skills.cli.main", *command, "--timeout", "1"],
        env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert [line["verdict"]["outcome"] for line in lines] == ["INTERRUPTED", "TIMEOUT"]
    assert lines[0]["digest"] == lines[1]["digest"]
    assert sorted(path.name for path in candidates.iterdir()) == ["one.py", "verdicts.jsonl"]
