"""The console entry: help, start-up cost, global options, exit codes."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path

import pytest

from kernel_skills.cli.command_table import COMMANDS
from kernel_skills.cli.lazy_group import load_command

from .conftest import IMPORT_ROOT, Skills, run_process

HELP_SECONDS = 0.25
HEAVY = ("pydantic", "torch", "triton", "rich", "jinja2", "chromadb", "langgraph", "numpy")


def test_help_starts_fast() -> None:
    if os.environ.get("KERNEL_SKILLS_BUSY_MACHINE"):
        pytest.skip("times mean nothing on a busy machine")
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert run_process("--help").code == 0
        times.append(time.perf_counter() - start)
    assert min(times) < HELP_SECONDS


def test_help_imports_nothing_heavy() -> None:
    shown = run_process("--help", python=("-X", "importtime"))
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in shown.err.splitlines()}
    assert "typer" in imported
    assert imported.isdisjoint(HEAVY)


def test_list_does_not_import_torch_or_rich() -> None:
    shown = run_process("list", python=("-X", "importtime"))
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in shown.err.splitlines()}
    assert shown.code == 0
    assert imported.isdisjoint({"torch", "triton", "rich", "jinja2", "numpy"})


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_in_the_table_is_the_first_of_the_docstring(name: str) -> None:
    entry = COMMANDS[name]
    function = getattr(import_module(f"kernel_skills.cli.{entry.module}"), entry.function)
    assert (inspect.getdoc(function) or "").splitlines()[0] == entry.summary


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example_of_itself(skills: Skills, name: str) -> None:
    shown = skills(name, "--help")
    assert shown.code == 0
    assert f"Example: skills {name}" in shown.out
    assert "--json" in shown.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained(name: str) -> None:
    for parameter in load_command(name).params:
        assert parameter.name == "help" or parameter.help, f"{name}: {parameter.name}"


def test_every_file_of_a_command_is_in_the_table() -> None:
    folder = Path(import_module("kernel_skills.cli.main").__file__ or "").parent
    commands = {
        path.stem
        for path in folder.glob("*.py")
        if path.read_text(encoding="utf-8").startswith('"""`skills ')
    }
    assert commands == {entry.module for entry in COMMANDS.values()}


def test_bare_call_shows_help(skills: Skills) -> None:
    shown = skills()
    assert shown.code == 0
    assert "doctor" in shown.out


def test_version(skills: Skills) -> None:
    assert skills("--version").out.startswith("kernel-skills ")


def test_unknown_command_offers_close_names(skills: Skills) -> None:
    shown = skills("docter")
    assert (shown.code, shown.out) == (2, "")
    assert shown.err.startswith("error: no command named 'docter'; did you mean doctor")


@pytest.mark.parametrize(
    "words", [("--nonsense",), ("show",), ("list", "--limit", "x"), ("traces", "x", "-n", "0")]
)
def test_usage_errors_are_one_line(skills: Skills, words: tuple[str, ...]) -> None:
    shown = skills(*words)
    assert shown.code == 2
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    "order",
    [("--skills-dir", "a", "list"), ("list", "--skills-dir", "a"), ("list", "--skills-dir=a")],
)
def test_global_options_stand_anywhere(skills: Skills, apart: Path, order: tuple[str, ...]) -> None:
    (apart / "a").mkdir()
    skills("new", "found-here", "--dir", "a")
    assert "--skills-dir" in skills(*order).out


def test_missing_value_of_a_global_option_is_a_usage_error(skills: Skills) -> None:
    assert skills("list", "--skills-dir").code == 2


def test_no_traceback_unless_asked_for(skills: Skills) -> None:
    assert skills("show", "no-such-skill").err.startswith("error: no skill named 'no-such-skill'")
    shown = run_process("show", "no-such-skill", "--debug")
    assert shown.code != 0
    assert "Traceback" in shown.err


def test_an_operating_system_error_is_one_line(skills: Skills, apart: Path) -> None:
    (apart / "file").write_text("in the way")
    shown = skills("new", "a-skill", "--dir", "file/below")
    assert shown.code == 1
    assert "Traceback" not in shown.err
    assert "file" in shown.err


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m kernel_skills.cli.main targets | true"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
    )
    assert done.stderr == ""


def test_interrupt_exits_130_and_says_nothing() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel_skills.cli.main", "doctor"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
    )
    # long enough to be waiting for torch's import, which takes seconds
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")
