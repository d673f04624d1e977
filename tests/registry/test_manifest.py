from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.manifest import load_manifest
from kernel_skills.registry.toml_lines import Place, TomlLines

if TYPE_CHECKING:
    from tests.registry.conftest import Package


def error_of(package: Package) -> str:
    with pytest.raises(InvalidPackage) as caught:
        load_manifest(package.folder)
    assert "Traceback" not in str(caught.value)
    assert "pydantic" not in str(caught.value)
    return str(caught.value)


def test_a_manifest_loads_from_its_file_or_its_folder(package: Package) -> None:
    assert load_manifest(package.folder) == load_manifest(package.folder / "skill.toml")
    assert load_manifest(package.folder).name == "row-scale"


# (text to replace, replacement, start of the line that is named, what the message says)
FAULTS = [
    ('kind = "operator"', 'kind = "opera"', "kind", "it should be 'operator', 'application'"),
    ('kind = "operator"', "kind = ", "kind", "TOML: Invalid value, column 8"),
    ('version = "1.2.0"', 'version = "1.2"', "version", "'1.2' is no version; write \"MAJOR.MINOR.PATCH\""),
    ('version = "1.2.0"', "version = 1.2", "version", "1.2 is no version"),
    ('name = "row-scale"\nversion', 'name = "Row_Scale"\nversion', "name", "use lower-case words joined by hyphens"),
    ("summary = ", "sumary = ", "sumary", "unknown key `sumary`; did you mean `summary`?"),
    ('archs = ["sm_90"]', 'arch = ["sm_90"]', "arch = ", "variant 'hopper': unknown key `arch`; did you mean `archs`?"),
    ('archs = ["sm_90"]\n', "", '[[variant]]\nid = "hopper"', "variant 'hopper': lacks `archs`; add it"),
    ("hopper.py::row_scale", "hopper.py:row_scale", "entry = \"kernels/hopper", "path/to/file.py::function"),
    ('rows = { type = "var" }', 'rows = { type = "varr" }', "rows = ", "type 'varr' is unknown; use 'const', 'var'"),
    ('cols = { type = "var" }', 'cols = { type = "var", size = 1 }', "cols", "axes: cols: unknown key `size`"),
    ('y = { shape = ["rows", "cols"]', 'y = { shape = ["rows", "k"]', "y = ", "axis 'k' is not defined"),
    ('y = { shape = ["rows", "cols"], dtype = "T"', 'y = { shape = [], dtype = "U"', "y = ", "'U' is neither"),
    ('name = "torch-mul", entry', 'name = "torch-mul", entri', "  { name", "baselines 'torch-mul': unknown key `entri`"),
    ('definition = "row-scale"\nname = "large"', 'definition = "rows"\nname = "large"', 'definition = "rows"', "unknown"),
    ('name = "large"', 'name = "tiny"', None, "two workloads of 'row-scale' are called 'tiny'"),
    ('{ type = "scalar", value', '{ type = "scalar", valeu', "inputs = ", "did you mean `value`?"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "line", "words"), FAULTS, ids=[fault[3][:32] for fault in FAULTS]
)
def test_a_fault_is_named_with_file_line_and_mend(
    package: Package, old: str, new: str, line: str | None, words: str
) -> None:
    package.edit("skill.toml", old, new)
    shown = error_of(package)
    assert words in shown
    at = next(text for text in shown.splitlines() if words in text)
    file, number, _ = at.removeprefix(str(package.folder)).split(":", 2)
    assert file == "/skill.toml"
    if line is not None:
        text = (package.folder / "skill.toml").read_text(encoding="utf-8")
        assert "\n".join(text.splitlines()[int(number) - 1 :]).startswith(line)


def test_all_faults_are_listed_and_the_first_line_comes_first(package: Package) -> None:
    package.edit("skill.toml", 'purpose = "bench"', 'purpose = "benchmark"')
    package.edit("skill.toml", "interpretable = false", "interpretable = 7.5")
    package.edit("skill.toml", "schema_version = 1", "schema_version = 2")
    numbers = [int(line.split(":")[1]) for line in error_of(package).splitlines()]
    assert numbers == [
        package.line("skill.toml", start)
        for start in ("schema_version", 'purpose = "benchmark"', "interpretable")
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("[" * 3000, "recursion"),
        ("1" * 5000, "digits"),
        ('"a', "Illegal character"),
        ("nan", "level"),
    ],
    ids=["nested", "digits", "open-string", "not-a-number"],
)
def test_hostile_toml_is_one_error(package: Package, value: str, words: str) -> None:
    package.edit("skill.toml", "kind =", f"level = {value}\nkind =")
    assert words in error_of(package)


def test_bytes_that_are_no_text_are_named_by_line(package: Package) -> None:
    file = package.folder / "skill.toml"
    file.write_bytes(file.read_bytes().replace(b"[example_queries]", b"# \xff"))
    assert "skill.toml:8: is not UTF-8" in error_of(package)


def test_windows_line_ends_and_a_byte_order_mark_are_fine(package: Package) -> None:
    file = package.folder / "skill.toml"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert load_manifest(package.folder).name == "row-scale"


def test_a_missing_manifest_is_an_invalid_package(package: Package) -> None:
    (package.folder / "skill.toml").unlink()
    assert "no such file; add skill.toml" in error_of(package)


def test_a_pipe_in_the_manifests_place_does_not_block(package: Package) -> None:
    (package.folder / "skill.toml").unlink()
    os.mkfifo(package.folder / "skill.toml")
    assert "is no regular file" in error_of(package)


def test_a_manifest_over_one_mebibyte_is_not_parsed(package: Package) -> None:
    package.write("skill.toml", "#" * (1 << 20) + "\n")
    assert "larger than 1 MiB" in error_of(package)


TEXT = """\
a = 1
b = { c = 2, d = [1, 2] }
"quoted key" = '''
x = "no key"
[[no.table]]
'''
list = [
  { one = 1 }, # [
  { two = "]" },
]

[[t]]
k = 1
[t.sub]
k.deep = 2
[[t]]
[[t.u]]
k = "# \\" ["
[[t.u]]
k = 4
"""


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("a",), 1),
        (("b", "c"), 2),
        (("quoted key",), 3),
        (("x",), 1),
        (("list",), 7),
        (("list", 0, "one"), 8),
        (("list", 1), 9),
        (("t", 0), 12),
        (("t", 0, "k"), 13),
        (("t", 0, "sub", "k", "deep"), 15),
        (("t", 1), 16),
        (("t", 1, "u", 0, "k"), 18),
        (("t", 1, "u", 1, "k"), 20),
        (("t", 1, "u", 1, "gone"), 19),
    ],
)
def test_places_in_toml_have_their_lines(place: Place, line: int) -> None:
    assert TomlLines(TEXT).line_of(place) == line


@given(st.text(alphabet="ab=[]{}\"'#\n., 1\\", max_size=200))
def test_the_line_scan_never_fails_and_stays_in_the_text(text: str) -> None:
    lines = TomlLines(text)
    assert 1 <= lines.line_of(("a", 0, "b")) <= max(1, len(text.splitlines()))
