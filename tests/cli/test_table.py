from __future__ import annotations

from pathlib import Path

import pytest

from kernel_skills.registry.readme_table import BEGIN, END, NO_EVIDENCE

from .conftest import Skills


@pytest.fixture
def page(apart: Path, skills: Skills) -> Path:
    assert skills("new", "row-silu").code == 0
    page = apart / "README.md"
    page.write_text(f"# Title\n\n{BEGIN}\n{END}\n", encoding="utf-8")
    return page


def test_what_write_wrote_check_accepts(skills: Skills, page: Path) -> None:
    assert skills("table", "--check", str(page)).code == 3
    assert skills("table", "--write", str(page)).code == 0
    assert (
        f"| [row-silu](skills/row-silu/SKILL.md) | row-silu | {NO_EVIDENCE} |" in page.read_text()
    )
    assert skills("table", "--check", str(page)).code == 0


def test_a_broken_skill_beside_the_page_stops_the_table(skills: Skills, page: Path) -> None:
    (page.parent / "skills" / "row-silu" / "skill.toml").write_text("name = \n")
    before = page.read_text()
    assert skills("table", "--write", str(page)).code == 3
    assert page.read_text() == before


def test_a_page_that_is_not_there_is_named(skills: Skills) -> None:
    shown = skills("table", "--check", "missing.md")
    assert shown.code == 2
    assert "missing.md" in shown.err


def test_without_a_page_it_is_printed(skills: Skills, page: Path) -> None:
    assert NO_EVIDENCE in skills("table").out
