"""The README holds: its commands run, its Python runs, its table is that of the evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import ATTENTION_INPUTS, ROOT, blocks_of, new_project, run_commands, run_python

README = ROOT / "README.md"
BLOCKS = blocks_of(README)


def test_it_opens_with_one_sentence_and_the_two_commands() -> None:
    title, sentence, commands = README.read_text(encoding="utf-8").split("\n\n")[:3]
    assert title.startswith("# ")
    assert sentence.count(". ") == 0
    assert [line.split()[:2] for line in commands.splitlines()] == [
        ["make", "run"],
        ["make", "test"],
    ]


@pytest.mark.timeout(600)
def test_the_session_works_as_pasted(tmp_path: Path) -> None:
    project = new_project(tmp_path)
    session = [block for block in BLOCKS if block.language == "sh"]
    assert [len(block.commands) for block in session] == [6]
    for block in session:
        run_commands(block, project)


def test_the_python_works_as_pasted(tmp_path: Path) -> None:
    project = new_project(tmp_path)
    for block in (block for block in BLOCKS if block.language == "python"):
        script = f"{ATTENTION_INPUTS}{block.text}\nassert out.shape == q.shape and out.isfinite().all()\n"
        done = run_python(["-W", "default", "-c", script], project)
        assert done.returncode == 0, f"{block.place}\n{done.stdout}{done.stderr}"


def test_the_table_is_that_of_the_evidence() -> None:
    done = run_python(["-m", "kernel_skills.cli.main", "table", "--check", str(README)], ROOT)
    assert done.returncode == 0, done.stderr
