from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.digest import root_digest, variant_digest
from kernel_skills.registry.package import identity_of, solution_of, task_of

if TYPE_CHECKING:
    from tests.registry.conftest import Package


def test_a_task_holds_the_packages_python_files_without_the_candidates(package: Package) -> None:
    package.write("evidence/x.py", "x = 1")
    package.write("inputs/sparse.py", "x = 1")
    skill = package.load()
    task = task_of(skill, skill.manifest.definition[0])
    assert [source.path for source in task.sources] == [
        "baselines.py",
        "inputs/sparse.py",
        "reference.py",
        "validate.py",
    ]
    assert task.definition.name == "row-scale"


def test_a_solution_holds_exactly_the_variants_files(package: Package) -> None:
    solution = solution_of(package.load(), package.variant("portable"))
    assert [source.path for source in solution.sources] == [
        "kernels/portable.py",
        "kernels/common.py",
    ]
    assert solution.name == "row-scale.row-scale.portable"
    assert solution.spec.entry_point == "kernels/portable.py::row_scale"
    assert solution.spec.dependencies == ("torch", "triton>=3.6")
    assert solution.spec.target_hardware == ("any",)


def test_an_identity_names_version_and_digests(package: Package) -> None:
    skill, variant = package.load(), package.variant("hopper")
    identity = identity_of(skill, variant)
    assert (identity.name, identity.version, identity.variant) == ("row-scale", "1.2.0", "hopper")
    assert identity.root_digest == root_digest(skill.path)
    assert identity.variant_digest == variant_digest(skill, variant)


def test_a_file_that_is_no_text_is_an_invalid_package(package: Package) -> None:
    (package.folder / "kernels" / "common.py").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidPackage, match="not UTF-8"):
        solution_of(package.load(), package.variant("portable"))


def test_a_package_with_a_link_gives_no_task(package: Package) -> None:
    (package.folder / "passwords.py").symlink_to("/etc/passwd")
    skill = package.load()
    with pytest.raises(InvalidPackage, match="symbolic link"):
        task_of(skill, skill.manifest.definition[0])
