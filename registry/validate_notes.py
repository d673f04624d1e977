"""Checks of SKILL.md: the strict form, agreement with skill.toml, and length."""

from __future__ import annotations

from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.findings import Findings
from kernel_skills.registry.front_matter import (
    NOTES_NAME,
    body_of,
    line_of_field,
    load_front_matter,
    strict_problems,
)
from kernel_skills.registry.models import Manifest
from kernel_skills.registry.text_file import read_text

# agents over-apply long skills; the Agent Skills specification asks for the same limit
BODY_LINES_LIMIT = 500


def check_notes(folder: Path, manifest: Manifest, findings: Findings) -> None:
    """Check the SKILL.md of a package."""
    problems = strict_problems(folder)
    findings.take(*problems)
    try:
        text = read_text(folder / NOTES_NAME, "front-matter")
        front = load_front_matter(folder)
    except InvalidPackage:
        return
    body_lines = body_of(text).rstrip().count("\n") + 1
    if body_lines >= BODY_LINES_LIMIT:
        message = f"the body has {body_lines} lines; fewer than {BODY_LINES_LIMIT} are read"
        findings.add(NOTES_NAME, None, "notes-length", message, "move long notes to references/")
    if not body_of(text).strip():
        findings.add(
            NOTES_NAME,
            None,
            "notes-length",
            "the body is empty",
            "write when and how to use the skill",
        )
    pairs = (
        ("name", front.name, manifest.name),
        ("license", front.license, manifest.license),
        ("version", front.metadata.get("version", ""), str(manifest.version)),
    )
    for field, here, there in pairs:
        if here != there:
            name = "metadata.version" if field == "version" else field
            message = (
                f"{name} is {here!r}, in skill.toml {there!r}"
                if here
                else f"front matter lacks `{name}`"
            )
            findings.add(
                NOTES_NAME, line_of_field(text, field), "agreement", message, f'write "{there}"'
            )
