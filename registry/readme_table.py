"""The table of skills with measured figures that the README shows, made from the evidence that packages carry.

Only a package's own `evidence/` counts, never the data home, so that every clone makes the same table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.models import Record, Workload
from kernel_skills.registry.docs_page import escape_markdown
from kernel_skills.registry.evidence import current_digests, own_evidence
from kernel_skills.registry.figures import Figure, figures_of
from kernel_skills.registry.models import Skill

BEGIN = "<!-- skills table: begin; made by `skills table --write`, do not edit -->"
END = "<!-- skills table: end -->"
NO_EVIDENCE = "no evidence yet"

_HEADS = (
    "skill", "definition", "GPU", "dtype", "against", "least ratio", "geometric mean", "least share of copy",
    "workloads", "toolchain", "measured",
)  # fmt: skip
_FIGURES = ("least ratio", "geometric mean", "least share of copy", "workloads")


class Row(Record):
    """What is known of one Definition on one chip in one dtype."""

    skill: str
    path: Path
    definition: str
    hardware: str = ""
    """Empty where nothing was measured."""
    dtype: str = ""
    rivals: tuple[str, ...] = ()
    """The fastest baseline of each workload."""
    least_ratio: float | None = None
    """Minimum over the workloads of the fastest baseline's median over the kernel's: above 1 the kernel is faster."""
    mean_ratio: float | None = None
    """Geometric mean of the same."""
    least_share_of_copy: float | None = None
    """Minimum of a device copy's median, of the same bytes in the same run, over the kernel's; memory-bound only."""
    measured: int = 0
    """Workloads with a figure, of those that the package names for this dtype."""
    workloads: int
    toolchains: tuple[str, ...] = ()
    first_day: date | None = None
    last_day: date | None = None


def table_rows(skills: Iterable[Skill]) -> tuple[Row, ...]:
    """Return the rows of every skill that has a bench workload, in order of skill and definition."""
    return tuple(row for skill in skills for row in _rows_of(skill))


def markdown_table(rows: Sequence[Row], root: Path | None = None) -> str:
    """Return the rows as a Markdown table.

    Args:
        root: skills below this folder link to their notes.
    """
    if not rows:
        return "No skill here has a workload to measure.\n"
    rule = ["---:" if head in _FIGURES else "---" for head in _HEADS]
    lines = [_HEADS, rule, *(_cells(row, root) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def with_table(page: str, table: str, name: str) -> str:
    """Return the page with the table between its markers.

    Args:
        name: of the page, for the error.

    Raises:
        UsageError: the page lacks a marker, or has them more than once or in the wrong order.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise UsageError(f"{name}: the table goes between one line '{BEGIN}' and one '{END}'")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table}{END}{after}"


# --- rows -------------------------------------------------------------------------------------


def _rows_of(skill: Skill) -> Iterator[Row]:
    figures = _own_figures(skill)
    for definition in skill.manifest.definition:
        workloads = {
            w.name: w
            for w in skill.manifest.workload
            if w.definition == definition.name and w.purpose == "bench"
        }
        if not workloads:
            continue
        groups: dict[tuple[str, str], dict[str, Figure]] = {}
        for figure in figures:
            if figure.definition == definition.name:
                key = (figure.hardware, _dtype(workloads[figure.workload]))
                _keep_faster(groups.setdefault(key, {}), figure)
        if not groups:
            yield Row(
                skill=skill.name,
                path=skill.path,
                definition=definition.name,
                workloads=len(workloads),
            )
        for (hardware, dtype), best in sorted(groups.items()):
            named = sum(_dtype(workload) == dtype for workload in workloads.values())
            yield _row(skill, definition.name, hardware, dtype, list(best.values()), named)


def _own_figures(skill: Skill) -> tuple[Figure, ...]:
    """Return the figures of variants and bench workloads as they are now."""
    digests = current_digests(skill)
    workloads = {w.uuid for w in skill.manifest.workload if w.purpose == "bench"}
    current = (
        trace
        for trace in own_evidence(skill).traces()
        if trace.skill is not None
        and trace.skill.variant_digest in digests
        and trace.workload.uuid in workloads
    )
    return figures_of(skill, current)


def _keep_faster(best: dict[str, Figure], figure: Figure) -> None:
    """Keep the variant that `skills run` would pick: the fastest on each workload."""
    rival = best.get(figure.workload)
    if rival is None or figure.latency_ms < rival.latency_ms:
        best[figure.workload] = figure


def _row(
    skill: Skill, definition: str, hardware: str, dtype: str, figures: Sequence[Figure], named: int
) -> Row:
    ratios = [figure.ratio for figure in figures if figure.ratio is not None]
    shares = [
        figure.share_of_copy
        for figure in figures
        if figure.share_of_copy is not None and figure.limited_by == "memory"
    ]
    days = [figure.measured.date() for figure in figures]
    return Row(
        skill=skill.name,
        path=skill.path,
        definition=definition,
        hardware=hardware,
        dtype=dtype,
        rivals=tuple(sorted({figure.rival for figure in figures if figure.rival})),
        least_ratio=min(ratios, default=None),
        mean_ratio=math.prod(ratios) ** (1 / len(ratios)) if ratios else None,
        least_share_of_copy=min(shares, default=None),
        measured=len(figures),
        workloads=named,
        toolchains=tuple(sorted({figure.toolchain for figure in figures})),
        first_day=min(days),
        last_day=max(days),
    )


def _dtype(workload: Workload) -> str:
    return ", ".join(sorted(set(workload.dtypes.values())))


# --- cells ------------------------------------------------------------------------------------


def _cells(row: Row, root: Path | None) -> list[str]:
    name = escape_markdown(row.skill)
    if root is not None and row.path.is_relative_to(root):
        name = f"[{name}]({row.path.relative_to(root).as_posix()}/SKILL.md)"
    head = [name, escape_markdown(row.definition)]
    if not row.hardware:
        blanks = [""] * (len(_HEADS) - len(head) - 1)
        return [*head, NO_EVIDENCE, *blanks]
    return [
        *head,
        escape_markdown(row.hardware),
        escape_markdown(row.dtype),
        escape_markdown(", ".join(row.rivals)),
        "" if row.least_ratio is None else f"{row.least_ratio:.3f}",
        "" if row.mean_ratio is None else f"{row.mean_ratio:.3f}",
        "" if row.least_share_of_copy is None else f"{100 * row.least_share_of_copy:.1f} %",
        f"{row.measured} of {row.workloads}",
        escape_markdown("; ".join(row.toolchains)),
        _days(row),
    ]


def _days(row: Row) -> str:
    if row.first_day == row.last_day:
        return f"{row.last_day}"
    return f"{row.first_day} to {row.last_day}"
