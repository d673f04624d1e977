"""The front matter of SKILL.md: read fast for every listing, checked strictly (skills-ref) when validated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from kernel_skills.executor.models import Record
from kernel_skills.registry.models import Problem
from kernel_skills.registry.text_file import BrokenText, read_text

NOTES_NAME = "SKILL.md"
_RULE = "front-matter"
_FIELD = re.compile(r"([A-Za-z][\w-]*):(?: +(.*))?$")
_MEMBER = re.compile(r" +([\w.-]+): +(.*)$")
# a plain YAML scalar holds no ": " or " #" and starts with none of the indicators
_PLAIN = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`].*$")
_NOT_PLAIN = re.compile(r": |:$| #")


class FrontMatter(Record):
    """What SKILL.md says of the skill."""

    name: str
    description: str
    license: str = ""
    compatibility: str = ""
    metadata: Mapping[str, str] = Field(default_factory=dict)


def load_front_matter(folder: Path) -> FrontMatter:
    """Return the front matter of the SKILL.md in `folder`.

    Plain one-line fields are read here; anything else goes to skills-ref, whose YAML parser takes 0.1 s to import.

    Raises:
        BrokenText: no such file, no front matter, or not of the strict form; names file and line.
    """
    file = folder / NOTES_NAME
    text = read_text(file, _RULE)
    fields = _read_plain(text)
    if fields is None:
        problems = strict_problems(folder)
        if problems:
            raise BrokenText(problems[0])
        fields = _read_strictly(folder)
    for key in ("name", "description"):
        if not fields.get(key):
            raise BrokenText(_problem(file, 1, f"front matter lacks `{key}`", "add it"))
    if not isinstance(fields.get("metadata", {}), dict):
        raise BrokenText(
            _problem(
                file, 1, "front matter: `metadata` is no map", "write it as lines `  key: value`"
            )
        )
    return FrontMatter.model_validate(
        {k: v for k, v in fields.items() if k in FrontMatter.model_fields}
    )


def body_of(text: str) -> str:
    """Return what follows the front matter of a SKILL.md text."""
    end = re.search(r"^---[ \t]*$", text[3:], re.MULTILINE) if text.startswith("---") else None
    return text[3 + end.end() :].lstrip("\n") if end else text


def line_of_field(text: str, field: str) -> int:
    """Return the line of a field, or of a member of `metadata`; 1 where there is none."""
    found = re.search(rf"^[ \t]*{re.escape(field)}[ \t]*:", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def strict_problems(folder: Path) -> tuple[Problem, ...]:
    """Return everything that skills-ref, the reference validator of Agent Skills, finds in `folder`."""
    from skills_ref import validate

    file = folder / NOTES_NAME
    try:
        text = read_text(file, _RULE)
    except BrokenText as broken:
        return (broken.problem,)
    # resolved, because skills-ref compares the folder's own name, and `.` has none
    try:
        messages = validate(folder.resolve())
    except RecursionError:
        return (_problem(file, 1, "YAML: nested too deeply", "use plain `key: value` lines"),)
    return tuple(_located(file, text, message) for message in messages)


def _located(file: Path, text: str, message: str) -> Problem:
    """Give one of skills-ref's messages the line that it is about, on one line."""
    if message.startswith("Invalid YAML"):
        # YAML's text: what it was doing, its place and the source indented, what went wrong, its place
        places = re.findall(r"line (\d+), column", message)
        said = [part for part in message.splitlines() if part and not part.startswith(" ")]
        reason = said[-1].removeprefix("Invalid YAML in frontmatter: ")
        mend = "use plain `key: value` lines, quoted where needed"
        return _problem(file, int(places[0]) if places else 1, f"YAML: {reason}", mend)
    if "closed" in message:
        return _problem(file, 1, message, "end the front matter with a line `---`")
    named = re.search(r"Unexpected fields in frontmatter: ([\w-]+)", message)
    field = (
        named[1]
        if named
        else next((f for f in ("description", "compatibility") if f in message.lower()), "name")
    )
    line = line_of_field(text, field)
    return _problem(file, line, message.rstrip("."))


def _problem(file: Path, line: int, message: str, mend: str = "") -> Problem:
    return Problem(path=str(file), line=line, rule=_RULE, message=message, mend=mend)


def _read_strictly(folder: Path) -> dict[str, str | dict[str, str]]:
    from skills_ref import read_properties

    properties = read_properties(folder.resolve())
    fields = {
        "name": properties.name, "description": properties.description, "license": properties.license,
        "compatibility": properties.compatibility, "metadata": properties.metadata,
    }  # fmt: skip
    return {key: value for key, value in fields.items() if value}


def _read_plain(text: str) -> dict[str, str | dict[str, str]] | None:
    """Return the fields where all are one-line scalars (and one map of them), else None."""
    fields: dict[str, str | dict[str, str]] = {}
    members: dict[str, str] | None = None
    lines = text.splitlines()
    if not lines or lines[0].rstrip() != "---":
        return None
    for line in lines[1:]:
        if line.rstrip() == "---":
            return fields
        target: dict[str, str] | dict[str, str | dict[str, str]]
        if members is not None and (match := _MEMBER.match(line)):
            target = members
        elif match := _FIELD.match(line):
            members, target = None, fields
            if not match[2] and match[1] == "metadata" and "metadata" not in fields:
                members = fields["metadata"] = {}
                continue
        else:
            return None
        value = _scalar(match[2] or "")
        if value is None or "---" in line or "\t" in line or match[1] in target:
            return None
        target[match[1]] = value
    return None


def _scalar(text: str) -> str | None:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] == '"' and not re.search(r'["\\]', text[1:-1]):
        return text[1:-1]
    if _PLAIN.match(text) and not _NOT_PLAIN.search(text):
        return text
    return None
