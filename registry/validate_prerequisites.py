"""Checks of `prerequisites` against the skills that can be found: known, no higher level, no circle."""

from __future__ import annotations

from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage, NotFound
from kernel_skills.registry.discovery import find_skill, load_skill
from kernel_skills.registry.findings import Findings
from kernel_skills.registry.learning_path import prerequisite_faults
from kernel_skills.registry.manifest import MANIFEST_NAME
from kernel_skills.registry.models import Manifest


def check_prerequisites(folder: Path, manifest: Manifest, findings: Findings) -> None:
    """Check a package's place in the course.

    Skills beside the folder are looked at before the places where skills are found otherwise. Only what the
    package builds on is loaded, near or far: a whole library's manifests would take a second for each package.
    """
    others = {manifest.name: manifest}
    broken: set[str] = set()
    pending = list(manifest.prerequisites)
    while pending:
        name = pending.pop()
        if name in others or name in broken:
            continue
        try:
            others[name] = _manifest_of(name, folder.resolve().parent)
        except NotFound as error:
            if name in manifest.prerequisites:
                findings.at(("prerequisites",), "prerequisites", str(error), "or take it out")
            broken.add(name)
        except InvalidPackage:
            # its own validation says why
            broken.add(name)
        else:
            pending += others[name].prerequisites
    sound = tuple(name for name in manifest.prerequisites if name not in broken)
    for message, mend in prerequisite_faults(
        manifest.model_copy(update={"prerequisites": sound}), others
    ):
        findings.at(("prerequisites",), "prerequisites", message, mend)


def _manifest_of(name: str, beside: Path) -> Manifest:
    if (beside / name / MANIFEST_NAME).is_file():
        return load_skill(beside / name, "beside").manifest
    return find_skill(name).manifest
