from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel_skills.registry.validate import Problem, validate_package

if TYPE_CHECKING:
    from tests.registry.conftest import Package


def only(problems: tuple[Problem, ...]) -> Problem:
    assert len(problems) == 1, [str(problem) for problem in problems]
    return problems[0]


def test_a_package_that_keeps_its_contract_has_no_problems(package: Package) -> None:
    assert validate_package(package.folder) == ()


def test_validation_imports_and_runs_nothing_of_the_package(
    package: Package, tmp_path: Path
) -> None:
    trap = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
    for path in ("reference.py", "baselines.py", "validate.py", "kernels/common.py"):
        package.write(path, (package.folder / path).read_text() + trap)
    assert validate_package(package.folder) == ()
    assert not (tmp_path / "ran").exists()


# (rule, file, text to replace, replacement, start of the line that the problem names, words of its message)
EDITS = [
    ("agreement", "SKILL.md", '"1.2.0"', '"1.1.0"', "  version", "metadata.version is '1.1.0'"),
    ("agreement", "SKILL.md", "license: Apache-2.0", "license: MIT", "license", "license is 'MIT'"),
    ("notes-length", "SKILL.md", "Bound by memory", "word\n" * 500 + "Bound", None, "lines"),
    ("example-queries", "skill.toml", 'zh = ["按行缩放张量"]', "", "[example_queries]", "no example query in 'zh'"),
    ("example-queries", "skill.toml", "按行缩放张量", "scale", "zh", "is not Chinese"),
    ("example-queries", "skill.toml", 'en = ["scale a tensor by a constant"]', "", "[example_queries]", "'en'"),
    ("patterns", "skill.toml", 'patterns = ["locality"]', "patterns = []", "patterns", "names no pattern"),
    ("patterns", "skill.toml", '["locality"]', '["locality", "locality"]', "patterns", "twice"),
    ("prerequisites", "skill.toml", "patterns =", 'prerequisites = ["row-scale"]\npatterns =', "prereq", "itself"),
    ("dependencies", "skill.toml", "[example_q", '[dependencies]\na = "new"\n[example_q', "a = ", "no version range"),
    ("entry", "skill.toml", "reference.py::row_scale", "reference.py::rowscale", "reference", "no function 'rowscale'"),
    ("entry", "skill.toml", "reference.py::", "refs.py::", "reference", "no file 'refs.py'"),
    ("entry", "skill.toml", "baselines.py::mul", "baselines.py::mull", "  { name", "no function 'mull'"),
    ("entry", "skill.toml", "hopper.py::row_scale", "hopper.py::scale", 'entry = "kernels/hopper', "'scale'"),
    ("workload", "skill.toml", "rows = 2, cols = 3", "rows = 2", "axes = { rows = 2", "no value for cols"),
    ("workload", "skill.toml", "rows = 2, cols", "rows = 2, z = 1, cols", "axes = { rows = 2", "gives z"),
    ("workload", "skill.toml", "rows = 0, cols = 3", "rows = 3, cols = 0", "axes = { rows = 3", "breaks the constraint"),
    ("workload", "skill.toml", "rows = 0, cols", "rows = -1, cols", "axes = { rows = -1", "negative"),
    ("workload", "skill.toml", 'T = "bfloat16"', 'T = "float16"', 'dtypes = { T = "float16"', "T is 'float16'"),
    ("workload", "skill.toml", 'dtypes = { T = "bfloat16" }', "", "[[workload]]", "gives no dtype for T"),
    ("workload", "skill.toml", "{ factor = {", "{ fctor = {", "inputs = {", "'fctor' is no input"),
    ("workload", "skill.toml", "{ factor = {", "{ x = {", "inputs = {", "'x' is a tensor"),
    ("workload", "skill.toml", 'flops = "rows * cols"', 'flops = "rows * k"', "definition = ", "names 'k'"),
    ("workload-purposes", "skill.toml", 'purpose = "edge"', 'purpose = "smoke"', "[[definition]]", "no edge"),
    ("portable-variant", "skill.toml", 'archs = ["any"]', 'archs = ["sm_80"]', "[[definition]]", "portable"),
    ("variant", "skill.toml", 'archs = ["sm_90"]', 'archs = ["sm90"]', "archs = [\"sm90", "no architecture"),
    ("variant", "skill.toml", ">=3.6,<3.8", "3.6 or so", "requires = { triton = \"3", "does not parse"),
    ("variant", "skill.toml", "cols % 8", "col % 8", "constraints = [\"col %", "names 'col'"),
    ("variant", "skill.toml", 'T = ["bfloat16"]', 'T = ["float16"]', "dtypes = { T = [\"float16\"]", "float16"),
    ("dtype", "skill.toml", '["float32", "bfloat16"]', '["float32", "bfloat16", "half"]', "dtypes", "'half'"),
    ("files", "skill.toml", 'files = ["kernels/common.py"]', "files = []", "files", "imports kernels/common.py"),
    ("entry", "skill.toml", 'files = ["kernels/common.py"]', 'files = ["kernels/common.py", "k.py"]', "files", "k.py"),
    ("template", "skill.toml", "defaults = { BLOCK = 512 }", "defaults = { BLOCK = 7 }", "defaults", "not among"),
    ("template", "skill.toml", "scale.py.jinja", "scales.py.jinja", "path", "no file"),
    ("template", "templates/scale.py.jinja", "{{ BLOCK }}", "{{ BLOCK + }}", "BLOCK", "does not parse as Jinja2"),
    ("template", "templates/scale.py.jinja", "{{ BLOCK }}", "{{ BLOK }}", None, "'BLOK' is undefined"),
    ("template", "templates/scale.py.jinja", "{{ BLOCK }}", "{{ BLOCK }} =", None, "is no Python"),
    ("template", "templates/scale.py.jinja", "def scale", "def skale", None, "defines no function 'scale'"),
    ("signature", "reference.py", "x, factor=2.0", "x, scale=2.0", "def", "does not take the inputs"),
    ("signature", "kernels/hopper.py", "x, *, factor=2.0", "y, *, factor=2.0", "def", "by position"),
    ("signature", "kernels/hopper.py", "x, *, factor=2.0", "x", "def", "scalar input 'factor'"),
    ("signature", "kernels/hopper.py", "factor=2.0", "factor=2.0, **more", "def", "**kwargs"),
    ("signature", "kernels/hopper.py", "factor=2.0", "factor=2.0, other", "def", "needs 'other'"),
    ("signature", "kernels/portable.py", ", BLOCK=None", "", "def", "tuning parameter 'BLOCK'"),
    ("signature", "kernels/portable.py", "BLOCK=None", "BLOCK=512", "def", "does not default to None"),
    ("import", "kernels/common.py", "import triton", "import os", "import os", "imports 'os'"),
    ("import", "kernels/hopper.py", "import torch\n", "import torch.utils.cpp_extension\n", "import", "cpp_extension"),
    ("import", "kernels/hopper.py", "import torch\n", "import torch\nfrom .gone import x\n", "from .gone", "gone.py"),
    ("import", "kernels/hopper.py", "    return", "    import ctypes\n    return", "    import", "imports 'ctypes'"),
    ("python", "validate.py", "def check_zero(kernel):", "def check_zero(kernel:", "def", "does not parse"),
    ("python", "kernels/common.py", "import triton", "import", "import", "does not parse"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "path", "old", "new", "line", "words"), EDITS, ids=lambda value: str(value)[:24]
)
def test_each_breach_is_one_problem_at_its_file_and_line(
    package: Package, rule: str, path: str, old: str, new: str, line: str | None, words: str
) -> None:
    package.edit(path, old, new)
    found = [problem for problem in validate_package(package.folder) if problem.rule == rule]
    problem = next(p for p in found if words in p.message)
    assert problem.path == str(package.folder / path)
    if line is not None:
        lines = (package.folder / path).read_text(encoding="utf-8").splitlines()
        assert problem.line is not None
        assert lines[problem.line - 1].startswith(line)


def test_a_broken_manifest_is_reported_with_all_its_lines_and_the_notes_are_still_checked(
    package: Package,
) -> None:
    package.edit("skill.toml", 'kind = "operator"', 'kind = "opera"')
    package.edit("skill.toml", 'purpose = "edge"', 'purpose = "corner"')
    package.edit("SKILL.md", "license:", "licence:")
    manifest = [p.line for p in validate_package(package.folder) if p.rule == "manifest"]
    assert manifest == [
        package.line("skill.toml", "kind"),
        package.line("skill.toml", 'purpose = "corner"'),
    ]
    assert any(p.rule == "front-matter" and p.line == 4 for p in validate_package(package.folder))


def test_a_gradient_must_resolve(package: Package) -> None:
    package.edit(
        "skill.toml",
        "[definition.axes]",
        '[definition.gradient]\ndefinition = "gone"\ninputs = {}\ngrads = {}\n\n[definition.axes]',
    )
    problem = only(validate_package(package.folder))
    assert problem.rule == "gradient"
    assert "unknown definition 'gone'" in problem.message


def test_a_gradient_is_fed_from_the_forward_and_feeds_its_inputs(package: Package) -> None:
    package.edit(
        "skill.toml",
        "[definition.axes]",
        '[definition.gradient]\ndefinition = "row-scale"\ninputs = { x = "grad:z", k = "x" }\n'
        'grads = { factor = "y", x = "dx" }\n\n[definition.axes]',
    )
    messages = [problem.message for problem in validate_package(package.folder)]
    for words in (
        "feeds 'x' from 'grad:z'",
        "has no input 'k'",
        "'factor' is no tensor input",
        "'dx' is no output",
    ):
        assert any(words in message for message in messages), words


def test_a_symbolic_link_is_refused_even_to_a_file_inside(package: Package) -> None:
    (package.folder / "alias.py").symlink_to(package.folder / "reference.py")
    problem = only(validate_package(package.folder))
    assert (problem.rule, Path(problem.path).name) == ("file", "alias.py")


def test_a_file_named_outside_the_package_is_refused(package: Package) -> None:
    package.write("../outside.py", "x = 1\n")
    package.edit("skill.toml", '"kernels/common.py"]', '"kernels/common.py", "../outside.py"]')
    assert "'../outside.py'" in only(validate_package(package.folder)).message


def test_a_pipe_in_the_package_is_refused_and_never_opened(package: Package) -> None:
    os.mkfifo(package.folder / "pipe.py")
    assert only(validate_package(package.folder)).message == "is no regular file"


def test_a_file_over_one_mebibyte_is_refused(package: Package) -> None:
    package.write("data.txt", "x" * ((1 << 20) + 1))
    assert only(validate_package(package.folder)).rule == "file"


def test_a_line_of_evidence_that_is_no_trace_is_named(package: Package) -> None:
    package.write("evidence/row-scale.jsonl", '\n{"definition": 1}\n')
    problem = only(validate_package(package.folder))
    assert (problem.rule, problem.line) == ("evidence", 2)


def test_a_template_cannot_reach_python(package: Package) -> None:
    package.edit("templates/scale.py.jinja", "{{ BLOCK }}", "{{ BLOCK.__class__.__mro__ }}")
    assert only(validate_package(package.folder)).rule == "template"


def test_a_pattern_skill_is_notes_only(package: Package) -> None:
    package.edit("skill.toml", 'kind = "operator"', 'kind = "pattern"')
    assert "notes only" in only(validate_package(package.folder)).message


def test_the_folder_has_the_name_of_the_skill(package: Package) -> None:
    other = package.folder.rename(package.folder.with_name("scale-rows"))
    rules = {problem.rule for problem in validate_package(other)}
    assert rules == {"agreement", "front-matter"}


def test_a_missing_folder_is_one_problem(tmp_path: Path) -> None:
    assert only(validate_package(tmp_path / "gone")).rule == "folder"


@pytest.mark.parametrize(
    ("arch", "mend"),
    [
        ("sm_91", "did you mean sm_90"),
        ("gfx943", "did you mean gfx942"),
        ("h100", "its architecture is sm_90"),
        ("hopper", "name it exactly"),
    ],
)
def test_an_unknown_architecture_gets_close_names(package: Package, arch: str, mend: str) -> None:
    package.edit("skill.toml", 'archs = ["sm_90"]', f'archs = ["{arch}"]')
    (problem,) = [p for p in validate_package(package.folder) if p.rule == "variant"]
    assert f"{arch!r} is no architecture" in str(problem)
    assert mend in str(problem)
