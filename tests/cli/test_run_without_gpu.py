"""`skills run` and its stages where there is no GPU: what is refused, and what is printed of a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Skills


@pytest.fixture
def one_skill(skills: Skills, apart: Path) -> Path:
    skills("new", "one-skill", "--dir", "skills")
    return apart / "skills" / "one-skill"


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.timeout(120)
def test_a_run_for_the_cpu_verifies_and_compiles_nothing(skills: Skills, one_skill: Path) -> None:
    shown = skills("run", "one-skill", "--target", "cpu")
    assert shown.code == 0, shown.out + shown.err
    assert "nothing compiled" in shown.out
    assert "verified-cpu" in shown.out


@pytest.mark.parametrize("command", ["compile", "bench", "profile"])
def test_what_a_cpu_cannot_do_is_a_usage_error(
    skills: Skills, one_skill: Path, command: str
) -> None:
    shown = skills(command, "one-skill", "--target", "cpu")
    assert shown.code == 2
    assert "CPU" in shown.err


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("cols = 1023", "cols = -5", "cols is negative"),
        ("rows = 3, cols = 1023", "rows = 3", "gives no value for cols"),
        ("rows = 3, cols = 1023", f"rows = {2**63}, cols = 2", "below 2**63"),
        ('archs = ["any"]', 'archs = ["any", "sm_9999"]', "'sm_9999' is no architecture"),
    ],
)
def test_a_workload_or_variant_that_breaks_its_definition_is_not_left_out_but_refused(
    skills: Skills, one_skill: Path, old: str, new: str, words: str
) -> None:
    _edit(one_skill / "skill.toml", old, new)
    shown = skills("run", "one-skill", "--target", "h100")
    assert shown.code == 3
    assert words in shown.err
    assert "skill.toml:" in shown.err


@pytest.mark.timeout(120)
def test_what_strikes_every_workload_is_printed_once(skills: Skills, one_skill: Path) -> None:
    _edit(
        one_skill / "kernels" / "portable.py", "    rows, cols = x.shape\n",
        "    rows, cols = x.shape\n    if rows >= 0:\n        raise ValueError('refused')\n",
    )  # fmt: skip
    shown = skills("run", "one-skill", "--target", "h100")
    assert shown.code == 1
    assert shown.out.count("ValueError: refused") == 1
    assert "all 9 workloads: RUNTIME_ERROR" in shown.out
    assert "portable.py" in shown.out
    assert "/source" not in shown.out


@pytest.mark.timeout(120)
def test_a_reference_that_raises_is_named_by_file_and_line(skills: Skills, one_skill: Path) -> None:
    _edit(
        one_skill / "reference.py", "    return x * ", "    raise ValueError('no')\n    return x * "
    )
    shown = skills("validate", str(one_skill))
    assert shown.code == 3
    assert "reference.py:8: ValueError: no" in shown.out
    assert "Traceback" not in shown.out
    assert 'File "' not in shown.out
