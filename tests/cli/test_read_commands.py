"""`list`, `show`, `targets`, `traces`, `docs`."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernel_skills.executor.trace import (
    BaselineTiming,
    Correctness,
    Environment,
    Passed,
    Performance,
    Timing,
    Trace,
)
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.evidence import own_evidence
from kernel_skills.registry.package import identity_of

from .conftest import Skills


@pytest.fixture
def one_skill(skills: Skills, apart: Path) -> Path:
    skills("new", "one-skill", "--dir", "skills")
    return apart / "skills" / "one-skill"


@pytest.fixture
def with_evidence(one_skill: Path) -> Path:
    """A Trace with made-up figures, as a run on a GPU would leave it."""
    skill = find_skill("one-skill")
    timing = Timing(median_ms=0.5, p20_ms=0.4, p80_ms=0.6, samples=10)
    performance = Performance(
        latency_ms=0.5, reference_latency_ms=1.0, speedup_factor=2.0, timing=timing, method="events",
        baselines=(
            BaselineTiming(name="eager", ratio=2.0), BaselineTiming(name="compile", ratio=1.25),
            BaselineTiming(name="copy", ratio=0.97),
        ),
        tflops=1.0, gbps=4000.0, bound_ms=0.45, percent_of_bound=90.0, percent_of_ceiling=93.0,
        limited_by="memory", speed="faster",
    )  # fmt: skip
    outcome = Passed(
        environment=Environment(
            hardware="Made-up GPU", target="h200", arch="sm_90", libs={"torch": "2.11.0"}
        ),
        timestamp=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        level="verified-gpu",
        correctness=Correctness(max_relative_error=1e-3, max_absolute_error=1e-3),
        performance=performance,
    )
    workload = next(w for w in skill.manifest.workload if w.purpose == "bench")
    identity = identity_of(skill, skill.manifest.variant[0])
    own_evidence(skill).append(
        Trace(definition="one-skill", workload=workload, evaluation=outcome, skill=identity)
    )
    return one_skill


def test_list_shows_what_is_there(skills: Skills, with_evidence: Path) -> None:
    shown = skills("list")
    row = next(line for line in shown.out.splitlines() if line.startswith("one-skill"))
    assert row.split()[1:3] == ["0.1.0", "operator"]
    # of the ceiling as it is known now, whatever the Trace says: 4000 of 4273
    assert "4000 GB/s, 94 % of ceiling, h200" in row
    assert row.endswith("project")


def test_list_goes_on_past_a_broken_package(skills: Skills, one_skill: Path) -> None:
    broken = one_skill.parent / "broken-one"
    broken.mkdir()
    (broken / "skill.toml").write_text('name = "broken-one"\nversion = \n')
    shown = skills("list")
    assert shown.code == 0
    assert "one-skill" in shown.out
    assert "broken: broken-one" in shown.err
    assert "skill.toml:2" in shown.err
    parsed = json.loads(skills("list", "--json").out)
    assert "broken-one" in [entry["name"] for entry in parsed["broken"]]


def test_list_of_nothing_says_how_to_start(skills: Skills, apart: Path) -> None:
    (apart / "empty").mkdir()
    parsed = json.loads(skills("list", "--json", "--skills-dir", "empty").out)
    assert all(entry["source"] == "shipped" for entry in parsed["skills"])


def test_show_tells_contract_variants_and_workloads(skills: Skills, one_skill: Path) -> None:
    shown = skills("show", "one-skill")
    assert shown.code == 0
    for words in ("(rows, cols) T", "portable", "odd-width", "0 traces", str(one_skill)):
        assert words in shown.out


def test_show_names_the_choice_for_a_target(skills: Skills, one_skill: Path) -> None:
    manifest = one_skill / "skill.toml"
    text = manifest.read_text(encoding="utf-8")
    other = (
        text[text.index("[[variant]]") :]
        .replace('"portable"', '"for-blackwell"')
        .replace('"any"', '"sm_100"')
    )
    manifest.write_text(f"{text}\n{other}", encoding="utf-8")
    shown = skills("show", "one-skill", "--target", "h100")
    assert "on h100 (sm_90)" in shown.out
    assert "one-skill: portable" in shown.out
    assert "not for-blackwell: made for sm_100, not for sm_90" in shown.out
    choices = json.loads(skills("show", "one-skill", "--target", "h100", "--json").out)["choices"]
    assert choices["definitions"][0]["chosen"] == "portable"


def test_show_reports_a_target_that_nothing_fits(skills: Skills, one_skill: Path) -> None:
    manifest = one_skill / "skill.toml"
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace('"any"', '"sm_100"'), encoding="utf-8"
    )
    shown = skills("show", "one-skill", "--target", "a100")
    assert shown.code == 0
    assert "one-skill: none" in shown.out


@pytest.mark.parametrize("command", ["show", "traces", "docs"])
def test_unknown_skill_exits_5_with_close_names(
    skills: Skills, one_skill: Path, command: str
) -> None:
    shown = skills(command, "one-skil")
    assert shown.code == 5
    assert "did you mean one-skill" in shown.err


def test_version_that_is_not_there_exits_5(skills: Skills, one_skill: Path) -> None:
    shown = skills("show", "one-skill@^2")
    assert shown.code == 5
    assert "0.1.0" in shown.err


@pytest.mark.parametrize(
    "words", [("show", "one-skill", "-t"), ("targets",), ("traces", "one-skill", "-t")]
)
def test_unknown_target_exits_5_with_close_names(
    skills: Skills, one_skill: Path, words: tuple[str, ...]
) -> None:
    shown = skills(*words, "h10")
    assert shown.code == 5
    assert "h100" in shown.err


@pytest.mark.parametrize("command", ["show", "traces", "docs"])
def test_malformed_manifest_exits_3_with_its_line(
    skills: Skills, one_skill: Path, command: str
) -> None:
    manifest = one_skill / "skill.toml"
    manifest.write_text(
        manifest.read_text(encoding="utf-8").replace("level = 1", "level = = 1"), encoding="utf-8"
    )
    shown = skills(command, "one-skill")
    assert shown.code == 3
    assert "skill.toml:8" in shown.err


def test_targets_give_their_sources(skills: Skills) -> None:
    assert "mi300x" in skills("targets").out
    assert "data sheet" in skills("targets", "H200").out
    assert json.loads(skills("targets", "h200", "--json").out)["arch"] == "sm_90"
    assert len(json.loads(skills("targets", "--json").out)) >= 9


def test_traces_filter(skills: Skills, with_evidence: Path) -> None:
    row = skills("traces", "one-skill").out.splitlines()[1]
    assert row.split() == [
        "2026-01-02", "03:04", "one-skill", "tokens-16384-hidden-4096", "portable", "h200", "PASSED", "0.5000", "1.25",
    ]  # fmt: skip
    assert (
        len(
            json.loads(
                skills("traces", "one-skill", "-t", "h200", "--status", "passed", "--json").out
            )
        )
        == 1
    )
    assert json.loads(skills("traces", "one-skill", "-t", "a100", "--json").out) == []
    assert json.loads(skills("traces", "one-skill", "--status", "TIMEOUT", "--json").out) == []


def test_traces_of_an_unknown_workload_or_status_exit_5(
    skills: Skills, with_evidence: Path
) -> None:
    assert "did you mean odd-width" in skills("traces", "one-skill", "-w", "odd-widht").err
    assert skills("traces", "one-skill", "--status", "PASED").code == 5


def test_a_changed_kernel_makes_its_traces_stale(skills: Skills, with_evidence: Path) -> None:
    kernel = with_evidence / "kernels" / "portable.py"
    kernel.write_text(kernel.read_text(encoding="utf-8") + "\n# changed\n", encoding="utf-8")
    assert skills("traces", "one-skill").out.splitlines()[1].endswith("stale")
    assert "none of them a measurement" in skills("show", "one-skill").out


def test_docs_page_has_contract_evidence_and_notes(skills: Skills, with_evidence: Path) -> None:
    page = skills("docs", "one-skill").out
    for words in (
        "# one-skill",
        "## Contract",
        "| 4000 | 94 % | 1.25 × compile |",
        "### When to use",
    ):
        assert words in page


def test_docs_page_in_html_keeps_a_package_from_acting(
    skills: Skills, one_skill: Path, apart: Path
) -> None:
    manifest = one_skill / "skill.toml"
    text = manifest.read_text(encoding="utf-8")
    evil = "SiLU <script>alert(1)</script> [x](javascript:alert(1)) a|b"
    manifest.write_text(
        text.replace(
            "SiLU of each element, until its author puts the operator in its place.", evil
        ),
        encoding="utf-8",
    )
    notes = one_skill / "SKILL.md"
    notes.write_text(
        notes.read_text(encoding="utf-8") + "\n<img src=x onerror=alert(1)> `<kept>`\n",
        encoding="utf-8",
    )
    assert skills("docs", "one-skill", "--out", "page.html").code == 0
    html = (apart / "page.html").read_text(encoding="utf-8")
    assert "<script" not in html
    assert "<img" not in html
    assert "javascript:" not in html.replace("(javascript:alert(1))", "")
    assert "<code>&lt;kept&gt;</code>" in html
    assert "<table>" in html


def test_docs_refuses_another_suffix_and_a_missing_folder(skills: Skills, one_skill: Path) -> None:
    assert skills("docs", "one-skill", "--out", "page.pdf").code == 2
    assert skills("docs", "one-skill", "--out", "nowhere/page.md").code == 2


def test_terminal_escapes_of_a_package_do_not_reach_the_terminal(
    skills: Skills, one_skill: Path
) -> None:
    manifest = one_skill / "skill.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(
        text.replace('summary = "SiLU', 'summary = "\\u001b[31mSiLU'), encoding="utf-8"
    )
    assert "\x1b" not in skills("show", "one-skill").out
