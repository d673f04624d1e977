"""Find skills: where they are looked for, in which order, and by which version."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage, NotFound, UsageError
from kernel_skills.registry.front_matter import load_front_matter
from kernel_skills.registry.home import data_home
from kernel_skills.registry.manifest import MANIFEST_NAME, load_manifest
from kernel_skills.registry.models import Skill
from kernel_skills.registry.version import VersionRange

PATH_VARIABLE = "KERNEL_SKILLS_PATH"


@dataclass(frozen=True)
class BrokenSkill:
    """A package that cannot be loaded; the others are unaffected."""

    path: Path
    source: str
    error: InvalidPackage

    @property
    def name(self) -> str:
        return self.path.name


@dataclass(frozen=True)
class Discovery:
    """Every skill that a bare name reaches, by name, and the packages that could not be loaded."""

    skills: tuple[Skill, ...]
    broken: tuple[BrokenSkill, ...]


@dataclass(frozen=True)
class _Place:
    folder: Path
    source: str


def find_skills(skills_dir: Path | None = None) -> Discovery:
    """Return all skills; of those with one name the first hit, in the order of design section 4.

    A broken package keeps its name: what a later place holds under it is not taken in its stead.

    Raises:
        UsageError: `skills_dir` is no folder.
    """
    loaded: dict[str, Skill | BrokenSkill] = {}
    for place in _places(skills_dir):
        for name in _package_names(place.folder):
            if name not in loaded:
                loaded[name] = _try_load(place, name)
    found = [loaded[name] for name in sorted(loaded)]
    return Discovery(
        skills=tuple(item for item in found if isinstance(item, Skill)),
        broken=tuple(item for item in found if isinstance(item, BrokenSkill)),
    )


def find_skill(name: str, skills_dir: Path | None = None) -> Skill:
    """Return the skill called NAME, or the first one that satisfies NAME@RANGE (`^1`, `>=1.2,<2`, `1.2.0`).

    Raises:
        NotFound: no such skill (close names are offered) or version (those that are there are listed).
        InvalidPackage: the first hit is broken.
        UsageError: the range does not parse, or `skills_dir` is no folder.
    """
    wanted, _, range_text = name.partition("@")
    wanted = wanted.strip()
    versions = _parse_range(range_text or "*", name) if "@" in name else None
    places = list(_places(skills_dir))
    there: list[Skill] = []
    for place in places:
        if wanted not in _package_names(place.folder):
            continue
        skill = load_skill(place.folder / wanted, place.source)
        if versions is None or skill.version in versions:
            return skill
        there.append(skill)
    if there:
        known = ", ".join(f"{skill.version} ({skill.source})" for skill in there)
        raise NotFound(f"no version of {wanted!r} satisfies {str(versions)!r}; there is {known}")
    raise NotFound.named(
        "skill", wanted, {n for place in places for n in _package_names(place.folder)}
    )


def load_skill(folder: Path, source: str) -> Skill:
    """Return the skill in `folder`.

    Raises:
        InvalidPackage: the manifest or the front matter is missing or malformed, or the folder has another name.
    """
    folder = folder.absolute()
    manifest = load_manifest(folder / MANIFEST_NAME)
    if manifest.name != folder.name:
        file = folder / MANIFEST_NAME
        raise InvalidPackage(
            f"{file}: name {manifest.name!r} is not the folder's, {folder.name!r}; rename one"
        )
    return Skill(
        manifest=manifest,
        path=folder,
        source=source,
        description=load_front_matter(folder).description,
    )


def _try_load(place: _Place, name: str) -> Skill | BrokenSkill:
    try:
        return load_skill(place.folder / name, place.source)
    except InvalidPackage as error:
        return BrokenSkill(path=place.folder / name, source=place.source, error=error)


def _parse_range(text: str, asked: str) -> VersionRange:
    try:
        return VersionRange(text)
    except ValueError as error:
        raise UsageError(f"{asked!r}: {error}") from None


def _places(skills_dir: Path | None) -> Iterator[_Place]:
    if skills_dir is not None:
        if not skills_dir.is_dir():
            raise UsageError(f"--skills-dir {skills_dir}: no such folder")
        yield _Place(skills_dir.absolute(), "--skills-dir")
    for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep):
        if entry:
            yield _Place(Path(entry).expanduser().absolute(), PATH_VARIABLE)
    if project := _project_folder():
        yield _Place(project, "project")
    yield _Place(data_home() / "skills", "home")
    yield _Place(_shipped_folder(), "shipped")


def _project_folder() -> Path | None:
    """Return the nearest `skills/` upwards that holds a package; other tools have folders of that name, too."""
    try:
        here = Path.cwd()
    except FileNotFoundError:
        return None
    return next((f / "skills" for f in (here, *here.parents) if _package_names(f / "skills")), None)


def _shipped_folder() -> Path:
    # by path, not by import: skills/ is content, and its package stays unimported
    return Path(__file__).resolve().parent.parent / "skills"


def _package_names(folder: Path) -> list[str]:
    """Return the names of the folders in `folder` that hold a manifest; none where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return []
    return [name for name in names if os.path.lexists(folder / name / MANIFEST_NAME)]
