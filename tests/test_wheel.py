"""The wheel carries everything that an installed `skills` needs, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from .pages import ROOT

FOLDERS = ("agents", "cli", "executor", "registry", "retrieval", "skills")
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tree so that no build folder is left in it."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=_LEFT_OUT)
    shutil.copytree(ROOT / "tests" / "cli", copy / "tests" / "cli", ignore=_LEFT_OUT)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    made = tmp_path_factory.mktemp("wheel")
    # the installed setuptools: the test needs no network
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    done = subprocess.run(
        [*build, "--wheel-dir", str(made), str(copy)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = made.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> frozenset[str]:
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


def files_of(folder: str) -> set[str]:
    """Every file of a folder that is knowledge or code, as the wheel should name it."""
    paths = [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()]
    return {
        f"kernel_skills/{path.as_posix()}"
        for path in paths
        if "__pycache__" not in path.parts and not any(part.startswith(".") for part in path.parts)
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_file_of_a_folder_is_in_it(names: frozenset[str], folder: str) -> None:
    assert files_of(folder) - names == set()


def test_nothing_else_is_in_it(names: frozenset[str]) -> None:
    expected = set().union(*(files_of(folder) for folder in FOLDERS))
    strangers = {name for name in names - expected if ".dist-info/" not in name}
    assert strangers == set()


def test_both_commands_are_declared(wheel: Path, names: frozenset[str]) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(entry_points).decode()
    assert set(declared) == {"skills", "kernel-skills"}
    for command, target in declared.items():
        assert f"{command} = {target}" in text


def test_an_installed_command_finds_the_shipped_skills(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    environment = {
        name: value for name, value in os.environ.items() if name != "KERNEL_SKILLS_PATH"
    }
    environment |= {"PYTHONPATH": str(site), "KERNEL_SKILLS_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "kernel_skills.cli.main", "list", "--json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    shown = {skill["name"]: (skill["source"], skill["path"]) for skill in listed["skills"]}
    packages = {path.parent.name for path in (ROOT / "skills").glob("*/skill.toml")}
    assert listed["broken"] == []
    assert shown == {
        name: ("shipped", str(site / "kernel_skills" / "skills" / name)) for name in packages
    }
