"""The commands and code that README and docs show, as tests run them.

A fence's language may be followed by a word that says what its block needs: `gpu`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import kernel_skills.cli.main as cli_main

ROOT = Path(cli_main.__file__).resolve().parents[1]
_FENCE = re.compile(r"^```(\w+)?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELL = ("sh", "console")

# small, because without a GPU the reference runs
ATTENTION_INPUTS = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
q, k, v = (torch.randn(1, 4, 128, 64, dtype=torch.bfloat16, device=device) for _ in range(3))
"""
"""The `q`, `k` and `v` that the pages' Python takes for given."""


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    needs: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[list[str]]:
        """The `skills` command lines, without the name of the program; what else the block shows is left out."""
        if self.language not in _SHELL:
            return []
        lines = (line.removeprefix("$ ") for line in self.text.splitlines())
        words = (shlex.split(line, comments=True) for line in lines if line.startswith("skills "))
        return [command[1:] for command in words]


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page, text.count("\n", 0, match.start()) + 1, match[1] or "", match[2].strip(), match[3]
        )
        for match in _FENCE.finditer(text)
    ]


def new_project(folder: Path) -> Path:
    """Return a folder with a copy of the repository's skills, for commands that write."""
    ignored = shutil.ignore_patterns("__pycache__", "__init__.py", "py.typed")
    shutil.copytree(ROOT / "skills", folder / "skills", ignore=ignored)
    shutil.copy(ROOT / "README.md", folder)
    return folder


def run_python(
    arguments: list[str], project: Path, timeout_s: float = 200
) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, with a data home of its own."""
    environment: Mapping[str, str] = {
        **{name: value for name, value in os.environ.items() if name != "KERNEL_SKILLS_PATH"},
        "KERNEL_SKILLS_HOME": str(project / "home"),
        "PYTHONPATH": str(ROOT / ".importroot"),
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False,
    )  # fmt: skip


def run_commands(block: Block, project: Path) -> None:
    """Run a block's commands; the first that fails is an error that shows what it printed."""
    for command in block.commands:
        done = run_python(["-m", "kernel_skills.cli.main", *command], project)
        shown = f"{block.place}: skills {shlex.join(command)}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, shown
