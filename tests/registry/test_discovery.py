from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel_skills.executor.errors import InvalidPackage, NotFound, UsageError
from kernel_skills.registry import discovery
from kernel_skills.registry.discovery import find_skill, find_skills

if TYPE_CHECKING:
    from tests.registry.conftest import Package


@pytest.fixture
def places(
    package: Package,
    tmp_path: Path,
    private_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    new_package: type[Package],
) -> dict[str, Path]:
    """The same skill in all five places, each with a version of its own."""
    folders = {
        "--skills-dir": tmp_path / "given",
        "KERNEL_SKILLS_PATH": tmp_path / "path",
        "project": package.folder.parent,
        "home": private_home / "skills",
        "shipped": tmp_path / "shipped",
    }
    for number, folder in enumerate(folders.values(), start=1):
        other = new_package(folder / "row-scale")
        for path in ("skill.toml", "SKILL.md"):
            other.edit(path, '"1.2.0"', f'"{number}.0.0"')
    monkeypatch.setenv(
        "KERNEL_SKILLS_PATH", os.pathsep.join(["", str(tmp_path / "gone"), str(tmp_path / "path")])
    )
    monkeypatch.setattr(discovery, "_shipped_folder", lambda: folders["shipped"])
    (package.folder.parent.parent / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(package.folder.parent.parent / "src" / "deep")
    return folders


def test_the_first_hit_wins_in_the_documented_order_and_says_its_source(
    places: dict[str, Path],
) -> None:
    for number, (source, folder) in enumerate(places.items(), start=1):
        given = places["--skills-dir"] if places["--skills-dir"].exists() else None
        skill = find_skill("row-scale", given)
        assert (skill.source, str(skill.version)) == (source, f"{number}.0.0")
        assert [s.source for s in find_skills(given).skills] == [source]
        assert skill.path == folder / "row-scale"
        shutil.rmtree(folder)
    with pytest.raises(NotFound, match="no skill named 'row-scale'"):
        find_skill("row-scale")


@pytest.mark.parametrize(
    ("asked", "version"),
    [
        ("row-scale@^3", "3.0.0"),
        ("row-scale@>=2,<4", "2.0.0"),
        ("row-scale@5.0.0", "5.0.0"),
        ("row-scale@", "1.0.0"),
    ],
)
def test_a_range_takes_the_first_hit_that_satisfies_it(
    places: dict[str, Path], asked: str, version: str
) -> None:
    assert str(find_skill(asked, places["--skills-dir"]).version) == version


def test_a_version_that_is_not_there_lists_those_that_are(places: dict[str, Path]) -> None:
    with pytest.raises(NotFound) as caught:
        find_skill("row-scale@^7", places["--skills-dir"])
    assert "no version of 'row-scale' satisfies '^7'" in str(caught.value)
    assert "1.0.0 (--skills-dir), 2.0.0 (KERNEL_SKILLS_PATH), 3.0.0 (project)" in str(caught.value)


def test_a_range_that_does_not_parse_is_the_callers_error(places: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="no version range"):
        find_skill("row-scale@newest")


def test_close_names_are_offered(places: dict[str, Path]) -> None:
    with pytest.raises(NotFound, match="did you mean row-scale"):
        find_skill("row-scales")


@pytest.mark.parametrize("name", ["../row-scale", "/etc", "", ".", "row-scale/kernels"])
def test_a_path_is_no_name(places: dict[str, Path], name: str) -> None:
    with pytest.raises(NotFound):
        find_skill(name)


def test_a_skills_folder_without_packages_is_passed_over_on_the_way_up(
    places: dict[str, Path], package: Package
) -> None:
    (package.folder.parent.parent / "src" / "skills" / "notes").mkdir(parents=True)
    shutil.rmtree(places["KERNEL_SKILLS_PATH"])
    assert find_skill("row-scale").source == "project"


def test_a_broken_package_neither_hides_nor_breaks_the_others(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(package.folder.parent)
    monkeypatch.setattr(discovery, "_shipped_folder", lambda: tmp_path / "none")
    for name in ("bad-toml", "bad-front", "no-notes", "other-name", "not-text"):
        shutil.copytree(package.folder, package.folder.with_name(name))
    parent = package.folder.parent
    (parent / "bad-toml" / "skill.toml").write_text("name = \n")
    for name in ("bad-front", "no-notes", "not-text"):
        file = parent / name / "skill.toml"
        file.write_text(
            file.read_text(encoding="utf-8").replace('name = "row-scale"\nv', f'name = "{name}"\nv')
        )
    (parent / "bad-front" / "SKILL.md").write_text("---\nname: [\n---\n")
    (parent / "no-notes" / "SKILL.md").unlink()
    (parent / "not-text" / "SKILL.md").write_bytes(b"---\n\xff\n---\n")
    found = find_skills(parent)
    broken = {item.name: str(item.error) for item in found.broken}
    assert "row-scale" in [skill.name for skill in found.skills]
    assert set(broken) == {"bad-toml", "bad-front", "no-notes", "other-name", "not-text"}
    assert broken["bad-toml"].startswith(f"{parent / 'bad-toml' / 'skill.toml'}:1: TOML")
    assert broken["bad-front"].startswith(f"{parent / 'bad-front' / 'SKILL.md'}:2: YAML")
    assert "SKILL.md: no such file" in broken["no-notes"]
    assert "is not the folder's, 'other-name'" in broken["other-name"]
    assert "SKILL.md:2: is not UTF-8" in broken["not-text"]
    assert find_skill("row-scale", parent).name == "row-scale"
    for name in broken:
        with pytest.raises(InvalidPackage):
            find_skill(name, parent)


def test_a_broken_package_is_not_replaced_by_one_of_the_same_name_from_a_later_place(
    places: dict[str, Path],
) -> None:
    (places["--skills-dir"] / "row-scale" / "skill.toml").write_text("name = \n")
    found = find_skills(places["--skills-dir"])
    assert [(item.name, item.source) for item in found.broken] == [("row-scale", "--skills-dir")]
    assert "row-scale" not in [skill.name for skill in found.skills]
    with pytest.raises(InvalidPackage, match="TOML"):
        find_skill("row-scale", places["--skills-dir"])


def test_a_skills_dir_that_is_not_there_is_the_callers_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        find_skills(tmp_path / "gone")


def test_a_working_directory_that_is_gone_does_not_matter(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find_skill("row-scale").source == "KERNEL_SKILLS_PATH"


def test_the_shipped_skills_are_those_of_the_distribution() -> None:
    assert (discovery._shipped_folder() / "__init__.py").is_file()
