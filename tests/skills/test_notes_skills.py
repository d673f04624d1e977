"""The notes-only skills: complete, in agreement with targets and evidence, and their links lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernel_skills.cli.command_table import COMMANDS
from kernel_skills.executor.targets import Rate, Target, load_targets
from kernel_skills.registry.discovery import find_skills
from kernel_skills.registry.figures import figures_of
from kernel_skills.registry.front_matter import NOTES_NAME, body_of
from kernel_skills.registry.models import Skill
from kernel_skills.registry.validate import validate_package

from ..pages import ROOT

PATTERNS = ("locality", "fusion", "pipelining", "memory-hierarchy", "parallelism", "sparsity")
HARDWARE = ("ampere", "hopper", "blackwell", "cdna3")
READING = (*PATTERNS, "roofline")
NAMES = (*READING, *HARDWARE)
TARGETS = load_targets()
ROWS: Mapping[str, str] = {
    "multiprocessors": "multiprocessors",
    "registers of a multiprocessor": "registers_per_multiprocessor",
    "registers of a thread": "max_registers_per_thread",
    "shared memory of a multiprocessor": "shared_bytes_per_multiprocessor",
    "shared memory of a block": "shared_bytes_per_block",
    "warps of a multiprocessor": "max_warps_per_multiprocessor",
    "blocks of a multiprocessor": "max_blocks_per_multiprocessor",
    "L2": "l2_bytes",
}
"""Row of a hardware table -> field of a Target."""
DTYPES: Mapping[str, str] = {
    "bf16, fp16": "bfloat16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "tf32": "tf32",
    "float64": "float64",
    "float32": "vector-float32",
    "float32 lanes": "vector-float32",
}
PLACED: Mapping[str, tuple[str, str, str]] = {
    "`rms-norm`, 16384 x 4096, bf16": ("rms-norm", "rms-norm", "tokens-16384-hidden-4096"),
    "`rms-norm-backward`, 4096 x 32768": (
        "rms-norm",
        "rms-norm-backward",
        "tokens-4096-hidden-32768",
    ),
    "`matmul`, 16 x 8192 x 8192": ("matmul", "matmul", "skinny"),
    "`matmul`, 4096^3": ("matmul", "matmul", "square-4096"),
    "`flash-attn`, d64, full": ("flash-attn", "flash-attn", "d64-full"),
}
"""Row of the roofline's examples -> skill, definition, workload."""


@pytest.fixture(scope="module")
def library() -> dict[str, Skill]:
    return {skill.name: skill for skill in find_skills(ROOT / "skills").skills}


def notes(name: str) -> str:
    return body_of((ROOT / "skills" / name / NOTES_NAME).read_text(encoding="utf-8"))


def tables(text: str) -> list[list[list[str]]]:
    """Every table of a page, as rows of cells; the rule under the head is left out."""
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE)
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in block.strip().splitlines()
            if not re.fullmatch(r"[|\s:-]+", line)
        ]
        for block in blocks
    ]


@pytest.mark.parametrize("name", NAMES)
def test_it_keeps_the_contract_of_a_package(name: str) -> None:
    assert not validate_package(ROOT / "skills" / name)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_short_enough_to_be_read(name: str) -> None:
    assert notes(name).count("\n") < 300


@pytest.mark.parametrize("name", NAMES)
def test_it_is_of_its_kind_and_has_questions_in_both_languages(
    library: dict[str, Skill], name: str
) -> None:
    manifest = library[name].manifest
    assert manifest.kind == ("hardware" if name in HARDWARE else "pattern")
    # equal numbers, because uneven ones would favour the skills that have more
    assert (len(manifest.example_queries.en), len(manifest.example_queries.zh)) == (5, 3)
    if name in PATTERNS:
        assert manifest.patterns == (name,)


@pytest.mark.parametrize("name", READING)
def test_a_pattern_has_all_that_a_pattern_is_to_say(name: str) -> None:
    heads = re.findall(r"^## (.+)$", notes(name), re.MULTILINE)
    for wanted in ("On a CPU", "Search words", "Skills that show it", "Sources"):
        assert wanted in heads
    if name != "roofline":
        for start in ("Arithmetic", "When it pays", "When not", "What a profile shows"):
            assert any(head.startswith(start) for head in heads)
    reading = (ROOT / "skills" / name / "references" / "reading.md").read_text(encoding="utf-8")
    for kind in ("Papers", "Courses", "Talks and blogs", "Communities", "Tools and libraries"):
        assert re.search(rf"^## {kind}", reading, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_links_between_files_lead_somewhere(name: str) -> None:
    folder = ROOT / "skills" / name
    for page in (folder / NOTES_NAME, *folder.glob("references/*.md")):
        links = re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
        missing = [
            link for link in links if "://" not in link and not (page.parent / link).exists()
        ]
        assert not missing


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_that_it_names_exist(name: str, library: dict[str, Skill]) -> None:
    named = re.findall(r"(?:^ {4}|`)skills ([a-z]+) ?([\w-]*)", notes(name), re.MULTILINE)
    assert named
    for command, argument in named:
        assert command in COMMANDS
        if argument and not argument.startswith("-") and argument.islower():
            assert argument in library or argument in TARGETS


@pytest.mark.parametrize("name", HARDWARE)
def test_the_table_of_a_chip_agrees_with_the_targets(name: str) -> None:
    head, *rows = next(table for table in tables(notes(name)) if table[0][1] in TARGETS)
    chips = [TARGETS[cell] for cell in head[1:-1]]
    checked = 0
    for label, *cells, source in rows:
        assert source, f"{label} has no source"
        for chip, cell in zip(chips, cells, strict=True):
            if said := re.match(r"[\d.]+", cell):
                assert float(said[0]) == pytest.approx(_known(label, chip)), (label, chip.name)
                checked += 1
    assert checked >= 14 * len(chips) - 3


def _known(label: str, chip: Target) -> float:
    if label in ROWS:
        return float(getattr(chip, ROWS[label]))
    if label == "device memory":
        return chip.memory_bytes / 1e9
    if label.startswith("bandwidth"):
        measured = chip.measured_gbps if label.endswith("measured") else chip.peak_gbps
        assert measured is not None
        return measured.value
    rates = chip.measured_tflops if label.endswith("measured") else chip.peak_tflops
    return rates[DTYPES[label.split(" TFLOP/s")[0]]].value


def test_the_ridges_are_those_of_the_targets() -> None:
    head, *rows = next(table for table in tables(notes("roofline")) if "a100" in table[0])
    for label, *cells in rows:
        for name, cell in zip(head[1:], cells, strict=True):
            chip = TARGETS[name.split()[0]]
            rates = chip.measured_tflops if name.endswith("measured") else chip.peak_tflops
            gbps = chip.measured_gbps if name.endswith("measured") else chip.peak_gbps
            rate = rates.get(DTYPES[label])
            assert (rate is None) == (cell in ("", "none")), (label, name)
            if rate is not None:
                assert float(cell) == pytest.approx(_ridge(rate, gbps), abs=0.51), (label, name)


def _ridge(rate: Rate, gbps: Rate | None) -> float:
    assert gbps is not None
    return 1e3 * rate.value / gbps.value


def test_the_kernels_that_the_roofline_places_are_where_their_evidence_says(
    library: dict[str, Skill], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # only what the packages carry, not what this machine has measured
    monkeypatch.setenv("KERNEL_SKILLS_HOME", str(tmp_path))
    table = next(table for table in tables(notes("roofline")) if table[0][0] == "kernel")
    rows = {row[0]: row[3] for row in table[1:]}
    assert rows.keys() == PLACED.keys()
    for label, (skill, definition, workload) in PLACED.items():
        measured = [
            figure.latency_ms
            for figure in figures_of(library[skill])
            if (figure.definition, figure.workload) == (definition, workload)
        ]
        value, unit = rows[label].split()[:2]
        said_ms = float(value) / (1e3 if unit.startswith("us") else 1)
        # a kernel that has changed has no evidence until it is recorded again; runs of one differ by a percent or two
        if measured:
            assert said_ms == pytest.approx(min(measured), rel=0.03), label


def test_no_two_skills_ask_the_same_question(library: dict[str, Skill]) -> None:
    asked: dict[str, str] = {}
    for name in NAMES:
        queries = library[name].manifest.example_queries
        for query in (*queries.en, *queries.zh):
            assert asked.setdefault(query, name) == name


def test_the_reading_lists_give_whole_addresses() -> None:
    for name in READING:
        page: Path = ROOT / "skills" / name / "references" / "reading.md"
        for label, address in re.findall(r"\[([^]]+)\]\(([^)]+)\)", page.read_text("utf-8")):
            assert address.startswith(("https://", "http://"))
            if arxiv := re.fullmatch(r"arXiv:(\d{4}\.\d{5})", label):
                assert address == f"https://arxiv.org/abs/{arxiv[1]}"
