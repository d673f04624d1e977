"""Rules about the code itself: directions of imports, sizes of files, names, docstrings."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernel_skills.cli.main as cli_main

ROOT = Path(cli_main.__file__).resolve().parents[1]
FOLDERS = ("executor", "registry", "retrieval", "agents", "cli")
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))
         if "templates" not in file.parts]  # fmt: skip
MOST_LINES = 400
WORDS_WITHOUT_MEANING = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
HEAVY = ("torch", "triton", "pydantic", "chromadb", "langgraph", "matplotlib", "optuna", "numpy")


def named(file: Path) -> str:
    return str(file.relative_to(ROOT))


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".importroot")},
    )  # fmt: skip


def test_a_folder_imports_only_folders_below_it() -> None:
    pytest.importorskip("importlinter")
    done = run_python("-c", "from importlinter.cli import lint_imports_command as c; c()")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_the_command_line_starts_without_anything_heavy() -> None:
    script = "import sys, kernel_skills.cli.main\nprint(*sys.modules)"
    done = run_python("-c", script)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.split())
    assert [name for name in HEAVY if name in loaded] == []


def test_files_stay_short() -> None:
    lengths = {named(file): len(file.read_text(encoding="utf-8").splitlines()) for file in FILES}
    too_long = {name: lines for name, lines in lengths.items() if lines > MOST_LINES}
    assert too_long == {}, "split them by their nouns"


def test_no_module_is_named_for_nothing() -> None:
    assert [named(file) for file in FILES if file.stem in WORDS_WITHOUT_MEANING] == []


def test_every_module_says_what_it_is_for() -> None:
    trees = {named(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
    silent = [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    assert silent == []


def undocumented(tree: ast.Module) -> Iterator[str]:
    """Yield public functions that have no docstring though a name, a signature and six lines do not explain them."""
    for node in tree.body:
        if (
            not isinstance(node, ast.FunctionDef)
            or node.name.startswith("_")
            or node.name == "main"
        ):
            continue
        length = (node.end_lineno or node.lineno) - node.body[0].lineno + 1
        if ast.get_docstring(node) is None and length > 6:
            yield node.name


def test_public_functions_of_the_lower_folders_have_docstrings() -> None:
    found = [
        f"{named(file)}: {name}"
        for file in FILES
        if named(file).startswith(("executor", "registry"))
        for name in undocumented(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert found == []
