"""The pages hold: their commands run, their links lead somewhere, the files that they name are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from kernel_skills.cli.command_table import COMMANDS

from .pages import ATTENTION_INPUTS, ROOT, Block, blocks_of, new_project, run_commands, run_python

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
GPU_BLOCKS = [block for page in DOCS for block in blocks_of(page) if block.needs == "gpu"]

_LINK = re.compile(r"\]\(([^)#\s]+)")
_FOLDERS = "agents|benchmarks|cli|docs|executor|registry|retrieval|tests|\\.ci"
_FILE = re.compile(rf"`((?:{_FOLDERS})/[\w./-]+\.\w+)`")


def _name(page: Path) -> str:
    return page.name


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", DOCS, ids=_name)
def test_the_commands_of_a_page_run_in_order(page: Path, tmp_path: Path) -> None:
    project = new_project(tmp_path)
    blocks = [block for block in blocks_of(page) if not block.needs]
    assert any(block.commands for block in blocks)
    for block in blocks:
        run_commands(block, project)


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", GPU_BLOCKS, ids=lambda block: block.place)
def test_the_commands_that_need_a_gpu_run(block: Block, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    project = new_project(tmp_path)
    for earlier in blocks_of(block.page):
        if earlier.line < block.line and not earlier.needs:
            run_commands(earlier, project)
    run_commands(block, project)


def test_the_python_of_the_pytorch_page_runs_in_order(tmp_path: Path) -> None:
    page = ROOT / "docs" / "using-a-kernel-from-pytorch.md"
    code = "\n".join(block.text for block in blocks_of(page) if block.language == "python")
    done = run_python(["-c", f"{ATTENTION_INPUTS}\n{code}"], new_project(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_command_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"[`$\n] ?skills ([a-z-]+)", page.read_text(encoding="utf-8")))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_is_of_a_known_kind_and_its_python_parses(page: Path) -> None:
    for block in blocks_of(page):
        assert block.needs in ("", "gpu"), block.place
        if block.language == "python" and not block.text.startswith("def "):
            ast.parse(block.text)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_and_file_names_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [page.parent / link for link in _LINK.findall(text) if "://" not in link]
    files = [ROOT / file for file in _FILE.findall(text)]
    missing = [str(path) for path in (*links, *files) if not path.exists()]
    assert not missing


def test_every_command_has_a_page() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    missing = [name for name in COMMANDS if f"skills {name}" not in text]
    assert not missing
