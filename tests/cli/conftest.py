"""Commands run in a folder of their own, with a data home of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

import kernel_skills.cli.main as cli_main

IMPORT_ROOT = Path(cli_main.__file__).resolve().parents[1] / ".importroot"


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


Skills = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the person's own skills and data home out of the tests."""
    monkeypatch.setenv("KERNEL_SKILLS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERNEL_SKILLS_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def skills(capfd: pytest.CaptureFixture[str]) -> Skills:
    """Run a command line in this process, by way of the one place that prints errors."""

    def run(*arguments: str) -> Outcome:
        code = cli_main.run_command(arguments)
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run


def run_process(*arguments: str, python: Sequence[str] = ()) -> Outcome:
    """Run `skills` as a process of its own."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "kernel_skills.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
    )
    return Outcome(done.returncode, done.stdout, done.stderr)
