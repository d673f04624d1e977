"""`constraints.txt` pins what `make` installs, within the ranges of `pyproject.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from .pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
INSTALLED_EXTRAS = ("plot", "tune", "opinfo", "dev")


def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def wanted() -> Iterator[Requirement]:
    """The project's own requirements, extras unfolded."""
    extras = PROJECT["optional-dependencies"]
    for text in [
        *PROJECT["dependencies"],
        *(line for name in INSTALLED_EXTRAS for line in extras[name]),
    ]:
        requirement = Requirement(text)
        if requirement.name != PROJECT["name"]:
            yield requirement


@pytest.mark.parametrize("requirement", tuple(wanted()), ids=lambda requirement: requirement.name)
def test_a_requirement_is_pinned_within_its_range(requirement: Requirement) -> None:
    version = pins()[canonicalize_name(requirement.name)]
    assert version in requirement.specifier


def test_what_the_requirements_need_is_pinned_too() -> None:
    todo = [canonicalize_name(requirement.name) for requirement in wanted()]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            needed = [Requirement(text) for text in requires(name) or ()]
        except PackageNotFoundError:
            continue
        todo += [
            canonicalize_name(requirement.name)
            for requirement in needed
            # a CUDA build of torch names its own libraries, each with its exact version
            if (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
            and not requirement.name.startswith(("nvidia-", "cuda-"))
        ]
    assert seen - set(pins()) == set()


def test_no_index_and_no_local_version_is_named() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert "://" not in text
    assert not any(line.startswith("-") for line in text.splitlines())
    assert all(version.local is None for version in pins().values())
