from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.digest import (
    definition_digest,
    package_files,
    root_digest,
    variant_digest,
)

if TYPE_CHECKING:
    from tests.registry.conftest import Package


def test_the_root_digest_is_the_sha256_of_sorted_path_nul_sha256_lines(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x").write_bytes(b"one")
    (tmp_path / "b.txt").write_bytes(b"two")
    (tmp_path / "a").write_bytes(b"")
    one, two, none = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two", b""))
    # "b.txt" comes before "b/x": "." is 0x2e and "/" 0x2f
    text = f"a\0{none}\nb.txt\0{two}\nb/x\0{one}\n"
    assert root_digest(tmp_path) == hashlib.sha256(text.encode()).hexdigest()


def test_evidence_caches_and_dotfiles_do_not_enter_the_root_digest(package: Package) -> None:
    before = root_digest(package.folder)
    for path in (
        "evidence/row-scale.jsonl",
        "kernels/__pycache__/x.cpython-311.pyc",
        "kernels/x.pyc",
        ".git/config",
        "kernels/.cache",
    ):
        package.write(path, "anything")
    assert root_digest(package.folder) == before
    assert "evidence/row-scale.jsonl" not in package_files(package.folder)


def test_a_folder_called_evidence_deeper_down_is_content(package: Package) -> None:
    before = root_digest(package.folder)
    package.write("references/evidence/a.md", "a")
    assert root_digest(package.folder) != before


@pytest.mark.parametrize("path", ["SKILL.md", "skill.toml", "reference.py", "kernels/common.py"])
def test_every_byte_of_a_file_enters_the_root_digest(package: Package, path: str) -> None:
    before = root_digest(package.folder)
    package.write(path, (package.folder / path).read_text(encoding="utf-8") + " ")
    assert root_digest(package.folder) != before


def test_a_moved_file_changes_the_root_digest(package: Package) -> None:
    before = root_digest(package.folder)
    (package.folder / "validate.py").rename(package.folder / "validation.py")
    assert root_digest(package.folder) != before


@pytest.mark.parametrize("target", ["reference.py", "/etc/hostname", "..", "gone"])
def test_symbolic_links_are_refused(package: Package, target: str) -> None:
    (package.folder / "kernels" / "link").symlink_to(target)
    with pytest.raises(InvalidPackage, match="symbolic link"):
        root_digest(package.folder)


def test_a_pipe_is_refused_without_opening_it(package: Package) -> None:
    os.mkfifo(package.folder / "pipe")
    with pytest.raises(InvalidPackage, match="no regular file"):
        root_digest(package.folder)


def test_a_name_that_is_not_utf8_is_refused(package: Package) -> None:
    Path(os.fsdecode(os.fsencode(package.folder) + b"/\xff.md")).write_text("a")
    with pytest.raises(InvalidPackage, match="not UTF-8"):
        root_digest(package.folder)


names = st.text(alphabet="abé.~0", min_size=1, max_size=6).filter(
    lambda name: not name.startswith(".")
)
trees = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map("/".join), st.binary(max_size=8), max_size=8
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree=trees, data=st.data())
def test_the_root_digest_does_not_depend_on_the_order_of_writing(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes], data: st.DataObject
) -> None:
    paths = [p for p in tree if not any(other.startswith(p + "/") for other in tree)]
    digests = []
    for order in (paths, data.draw(st.permutations(paths))):
        folder = tmp_path_factory.mktemp("tree")
        for path in order:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(tree[path])
        digests.append(root_digest(folder))
    assert digests[0] == digests[1]


# --- variants ---------------------------------------------------------------------------------


def digest_of(package: Package, variant: str = "portable") -> str:
    return variant_digest(package.load(), package.variant(variant))


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("kernels/portable.py", "empty_like(x)", "empty_like( x)"),
        ("kernels/common.py", "import triton", "import triton  # same"),
        ("skill.toml", "BLOCK = [512, 1024] }\n\n[[variant]]", "BLOCK = [512] }\n\n[[variant]]"),
        ("skill.toml", 'constraints = ["cols >= 1"]', 'constraints = ["cols >= 2"]'),
        ("skill.toml", "default = 2.0", "default = 3.0"),
        ("skill.toml", "portable.py::row_scale", "portable.py::row_scale_two"),
    ],
)
def test_what_a_measurement_depends_on_changes_the_variant_digest(
    package: Package, path: str, old: str, new: str
) -> None:
    before = digest_of(package)
    package.edit(path, old, new)
    assert digest_of(package) != before


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("kernels/hopper.py", "import torch", "import torch  # other variant"),
        ("SKILL.md", "Bound by memory", "Memory-bound"),
        ("skill.toml", 'op_type = "scale"', 'op_type = "scale"\ndescription = "words"'),
        ("skill.toml", 'rows = { type = "var" }', 'rows = { type = "var", description = "words" }'),
        ("skill.toml", "preference = 10", "preference = 20"),
        ("reference.py", "return x", "return  x"),
        ("skill.toml", "rows = 4096", "rows = 8192"),
    ],
)
def test_notes_workloads_and_other_variants_leave_the_variant_digest(
    package: Package, path: str, old: str, new: str
) -> None:
    before = digest_of(package)
    package.edit(path, old, new)
    assert digest_of(package) == before


def test_a_new_version_leaves_the_variant_digest(package: Package) -> None:
    before = digest_of(package)
    package.edit("skill.toml", 'version = "1.2.0"', 'version = "1.3.0"')
    assert digest_of(package) == before


@pytest.mark.parametrize(
    "path", ["../outside.py", "/etc/hostname", "gone.py", "link.py", "linked/x.py"]
)
def test_a_variants_file_outside_the_package_is_refused(
    package: Package, tmp_path: Path, path: str
) -> None:
    package.write("../outside.py", "x = 1")
    (package.folder / "link.py").symlink_to("reference.py")
    (package.folder / "linked").symlink_to(tmp_path)
    (tmp_path / "x.py").write_text("x = 1")
    package.edit("skill.toml", '"kernels/common.py"', f'"{path}"')
    with pytest.raises(InvalidPackage):
        digest_of(package)


def test_the_definition_digest_does_not_depend_on_the_order_of_its_keys(package: Package) -> None:
    before = definition_digest(package.load().manifest.definition[0])
    package.edit("skill.toml", 'flops = "rows * cols"\n', "")
    package.edit("skill.toml", 'op_type = "scale"', 'flops = "rows * cols"\nop_type = "scale"')
    assert definition_digest(package.load().manifest.definition[0]) == before


def test_the_order_in_which_a_variant_lists_its_files_does_not_matter(package: Package) -> None:
    package.write("kernels/aaa.py", "import math\n")
    package.edit("skill.toml", '["kernels/common.py"]', '["kernels/common.py", "kernels/aaa.py"]')
    before = digest_of(package)
    package.edit(
        "skill.toml",
        '["kernels/common.py", "kernels/aaa.py"]',
        '["kernels/aaa.py", "kernels/common.py"]',
    )
    assert digest_of(package) == before
