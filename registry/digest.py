"""Digests of packages, variants and definitions: what a lock pins and what evidence is about."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.models import Definition
from kernel_skills.registry.models import Skill, Variant

EVIDENCE_FOLDER = "evidence"
_CACHES = ("__pycache__", "node_modules")
_CACHE_SUFFIXES = (".pyc", ".pyo")


def root_digest(folder: Path) -> str:
    """Return the SHA-256 (hex) over the lines `path NUL sha256 LF` of a package's files, in bytewise order of paths.

    Left out: `evidence/`, caches, and whatever has a name that starts with a dot.

    Raises:
        InvalidPackage: the package holds a symbolic link, a special file or a name that is not UTF-8.
    """
    return _digest_of((path, _file_digest(folder / path)) for path in package_files(folder))


def variant_digest(skill: Skill, variant: Variant) -> str:
    """Return the digest of what a measurement of the variant depends on: its files, definition and parameters.

    Notes, other variants and the version may change without a new digest. The definition and the parameters enter
    under the names `/definition` and `/parameters`, which no file of a package can have.

    Raises:
        InvalidPackage: a file of the variant is missing, is a symbolic link or lies outside the package.
    """
    entry_file, entry = variant.entry.split("::")
    parts = {
        path: _file_digest(file_inside(skill.path, path)) for path in (entry_file, *variant.files)
    }
    parts["/definition"] = definition_digest(skill.manifest.definition_named(variant.definition))
    parts["/parameters"] = _json_digest({"entry": entry, "parameters": variant.parameters})
    return _digest_of(parts.items())


def definition_digest(definition: Definition) -> str:
    """Return the digest of a contract, descriptions left out.

    Fields at their default do not enter, so that a field added to the models later leaves old digests as they are.
    """
    return _json_digest(
        _without_descriptions(definition.model_dump(mode="json", exclude_defaults=True))
    )


def package_files(folder: Path) -> tuple[str, ...]:
    """Return the relative POSIX paths of the files that make up a package, in bytewise order.

    Raises:
        InvalidPackage: a path that `root_digest` refuses.
    """
    paths = []
    for path, refusal in walk_package(folder):
        if refusal:
            raise InvalidPackage(f"{folder / path}: {refusal}")
        paths.append(path)
    return tuple(paths)


def walk_package(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield every file of a package with why it may not be in one (empty: it may), in bytewise order of paths."""
    found: list[tuple[str, str]] = []
    _walk(folder, "", found)
    yield from sorted(found, key=lambda item: os.fsencode(item[0]))


def file_inside(folder: Path, path: str) -> Path:
    """Return the file at a package's relative path.

    Raises:
        InvalidPackage: it is missing, is reached through a symbolic link, or lies outside the package.
    """
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise InvalidPackage(f"{folder}: {path!r} leaves the package; name a file inside it")
    file = folder.joinpath(*parts.parts)
    for depth in range(1, len(parts.parts) + 1):
        if folder.joinpath(*parts.parts[:depth]).is_symlink():
            raise InvalidPackage(
                f"{file}: is a symbolic link; put the file itself into the package"
            )
    if not file.is_file():
        raise InvalidPackage(f"{file}: no such file")
    return file


def _walk(folder: Path, prefix: str, found: list[tuple[str, str]]) -> None:
    try:
        entries = list(os.scandir(folder))
    except OSError as error:
        raise InvalidPackage(f"{folder}: cannot be read: {error.strerror}") from None
    for entry in entries:
        path = prefix + entry.name
        if _is_left_out(path, entry.name):
            continue
        if entry.is_symlink():
            found.append((path, "is a symbolic link; put the file itself into the package"))
        elif entry.is_dir(follow_symlinks=False):
            _walk(Path(entry.path), f"{path}/", found)
        elif not stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
            found.append((path, "is no regular file; remove it"))
        else:
            found.append((path, _name_refusal(path)))


def _is_left_out(path: str, name: str) -> bool:
    return (
        name.startswith(".")
        or path == EVIDENCE_FOLDER
        or name in _CACHES
        or name.endswith(_CACHE_SUFFIXES)
    )


def _name_refusal(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8; rename it"
    return ""


def _digest_of(items: Iterable[tuple[str, str]]) -> str:
    whole = hashlib.sha256()
    for path, digest in sorted((path.encode(), digest.encode()) for path, digest in items):
        whole.update(path + b"\0" + digest + b"\n")
    return whole.hexdigest()


def _file_digest(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InvalidPackage(f"{file}: cannot be read: {error.strerror}") from None


def _json_digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _without_descriptions(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_descriptions(item)
            for key, item in value.items()
            if key != "description" or not isinstance(item, str)
        }
    return [_without_descriptions(item) for item in value] if isinstance(value, list) else value
