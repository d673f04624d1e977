from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kernel_skills.executor.remove_tree import remove_tree

DEEP = "import os\nfor _ in range(2000):\n    os.mkdir('d')\n    os.chdir('d')\n"


def test_many_closed_folders_beside_each_other_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    for number in range(20):
        (folder / f"n{number}" / "inner" / "most").mkdir(parents=True)
        (folder / f"n{number}" / "inner").chmod(0)
    remove_tree(folder)
    assert not folder.exists()


def test_folders_deeper_than_python_recurses_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    folder.mkdir()
    subprocess.run([sys.executable, "-c", DEEP], cwd=folder, check=True)
    remove_tree(folder)
    assert not folder.exists()


def test_what_a_link_points_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "kept")
    (folder / "dangling").symlink_to("nowhere")
    remove_tree(folder)
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").exists()


def test_a_folder_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "never")


def test_folders_closed_to_their_owner_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "left"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").touch()
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    remove_tree(folder)
    assert not folder.exists()
