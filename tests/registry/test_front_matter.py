from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.front_matter import _read_plain as read_plain
from kernel_skills.registry.front_matter import body_of, load_front_matter, strict_problems

if TYPE_CHECKING:
    from tests.registry.conftest import Package


def test_plain_fields_are_read(package: Package) -> None:
    front = load_front_matter(package.folder)
    assert front.name == "row-scale"
    assert front.description == "Multiply rows by a scalar. Use when a tensor is scaled row by row."
    assert front.metadata == {"version": "1.2.0"}


def test_a_folded_description_is_read_by_the_strict_parser(package: Package) -> None:
    package.edit("SKILL.md", "description: Multiply", "description: >\n  Multiply\n ")
    assert load_front_matter(package.folder).description.startswith("Multiply rows by a scalar.")


# (front matter between the dashes, line, words)
FAULTS = [
    ("name: row-scale", 1, "`description`"),
    ("name: row-scale\ndescription: {a: b}", 3, "YAML: Found ugly"),
    ("name: row-scale\ndescription: use: when", 3, "YAML: mapping values are not allowed here"),
    ("name: row-scale\n\tdescription: x", 3, "YAML: found character"),
    ('name: row-scale\ndescription: "open', 3, "YAML: found unexpected end of stream"),
    ("name: row-scale\nname: row-scale\ndescription: x", 3, "YAML: Duplicate key 'name'"),
    ("name: row-scale\ndescription: x\nmetadata: none", 1, "`metadata` is no map"),
    ("- a\n- b", 1, "must be a YAML mapping"),
    ("name: row-scale\ndescription: " + "[" * 2000, 3, "YAML"),
]


@pytest.mark.parametrize(
    ("front", "line", "words"), FAULTS, ids=[fault[2][:30] for fault in FAULTS]
)
def test_malformed_front_matter_is_named_with_file_and_line(
    package: Package, front: str, line: int, words: str
) -> None:
    file = package.write("SKILL.md", f"---\n{front}\n---\nnotes\n")
    with pytest.raises(InvalidPackage) as caught:
        load_front_matter(package.folder)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must start with"),
        ("# notes\n", "must start with"),
        ("---\nname: row-scale\n", "not properly closed"),
    ],
)
def test_a_file_without_front_matter_is_refused(package: Package, text: str, words: str) -> None:
    package.write("SKILL.md", text)
    with pytest.raises(InvalidPackage, match=words):
        load_front_matter(package.folder)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("license: Apache-2.0", "license: Apache-2.0\nversion: 1.2.0", 5, "Unexpected fields"),
        ("name: row-scale", "name: scale-rows", 2, "must match skill name"),
        ("name: row-scale", "name: Row-Scale", 2, "must be lowercase"),
        ("description: Multiply", "description: " + "x" * 1100 + " Multiply", 3, "exceeds 1024"),
        ("license:", "compatibility: " + "x" * 501 + "\nlicense:", 4, "exceeds 500"),
    ],
)
def test_the_strict_check_gives_the_lines_of_the_reference_validators_findings(
    package: Package, old: str, new: str, line: int, words: str
) -> None:
    package.edit("SKILL.md", old, new)
    problem = next(
        problem for problem in strict_problems(package.folder) if words in problem.message
    )
    assert problem.line == line


def test_the_body_is_what_follows_the_front_matter() -> None:
    assert body_of("---\na: b\n---\n\n# Title\n---\nrule\n") == "# Title\n---\nrule\n"


def test_plain_skills_are_listed_without_the_yaml_parser(package: Package) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from kernel_skills.registry.discovery import find_skills\n"
        f"assert find_skills(Path({str(package.folder.parent)!r})).skills\n"
        "print(sorted({'strictyaml', 'skills_ref', 'torch', 'triton', 'jinja2'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == "[]", done.stderr


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,8}", fullmatch=True),
        st.text(alphabet="ab:#-'\"{[&*>|%@ \\\t,1", min_size=1, max_size=12),
    )
)
def test_the_fast_reading_agrees_with_strict_yaml_or_declines(fields: dict[str, str]) -> None:
    strictyaml = pytest.importorskip("strictyaml")
    body = "".join(f"{key}: {value}\n" for key, value in fields.items())
    fast = read_plain(f"---\n{body}---\n")
    if fast:
        assert strictyaml.load(body).data == fast
