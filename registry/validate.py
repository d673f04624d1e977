"""The static contract of a skill package: everything that can be checked without running its code.

That the reference runs, and the rest that needs a worker process, is the executor's to say.
"""

from __future__ import annotations

from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.digest import EVIDENCE_FOLDER, walk_package
from kernel_skills.registry.evidence import EvidenceStore
from kernel_skills.registry.findings import Findings
from kernel_skills.registry.front_matter import strict_problems
from kernel_skills.registry.manifest import MANIFEST_NAME, read_manifest
from kernel_skills.registry.models import Manifest, Problem
from kernel_skills.registry.text_file import read_text
from kernel_skills.registry.validate_contract import check_contract
from kernel_skills.registry.validate_notes import check_notes
from kernel_skills.registry.validate_prerequisites import check_prerequisites
from kernel_skills.registry.validate_sources import Sources, check_sources
from kernel_skills.registry.validate_templates import check_templates

__all__ = ["Problem", "validate_package"]

# knowledge is text: a larger file is data or a build output, and every clone would carry it
LARGEST_FILE_BYTES = 1 << 20


def validate_package(path: Path) -> tuple[Problem, ...]:
    """Return everything that is wrong with the package in the folder `path`, by file and line.

    An empty result says that the package keeps its static contract. Nothing of the package is imported or run. Where
    skill.toml does not load, only it and SKILL.md are checked.
    """
    if not path.is_dir():
        return (
            Problem(
                path=str(path),
                rule="folder",
                message="no such folder",
                mend="name a skill's folder",
            ),
        )
    manifest = read_manifest(path)
    if not isinstance(manifest, Manifest):
        return (*manifest, *strict_problems(path))
    findings = Findings(path, read_text(path / MANIFEST_NAME, "manifest"))
    folder_name = path.resolve().name
    if manifest.name != folder_name:
        message = f"name {manifest.name!r} is not the folder's, {folder_name!r}"
        findings.at(("name",), "agreement", message, "rename one")
    paths = _check_files(path, findings)
    sources = Sources(path, paths, findings)
    check_notes(path, manifest, findings)
    check_contract(manifest, findings)
    check_prerequisites(path, manifest, findings)
    check_sources(manifest, sources, findings)
    check_templates(path, manifest, sources.paths, findings)
    findings.take(*EvidenceStore(path / EVIDENCE_FOLDER).problems())
    return findings.problems


def _check_files(folder: Path, findings: Findings) -> list[str]:
    """Return the package's regular files of a legal size; the others are findings."""
    paths = []
    evidence = folder / EVIDENCE_FOLDER
    if evidence.is_symlink():
        findings.add(
            EVIDENCE_FOLDER, None, "file", "is a symbolic link", "evidence lies in the package"
        )
    try:
        for path, refusal in walk_package(folder):
            if refusal:
                what, _, mend = refusal.partition("; ")
                findings.add(path, None, "file", what, mend)
            elif (size := (folder / path).stat().st_size) > LARGEST_FILE_BYTES:
                message = f"has {size} bytes; the limit is {LARGEST_FILE_BYTES}"
                findings.add(path, None, "file", message, "keep data out of the package")
            else:
                paths.append(path)
    except InvalidPackage as error:
        findings.add(".", None, "file", str(error))
    return paths
