"""Read what `ncu --csv` prints: one row per launch (`--page raw`) or one row per metric (the details page).

The text may begin with lines of the tool (`==PROF== ...`) or of the program. On the raw page a row of units follows
the head. Values may carry thousands separators; `n/a` is a counter that this chip does not have.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_NAME = "Kernel Name"
_LONG = ("Metric Name", "Metric Unit", "Metric Value")
# since 2024 some builds put the name of the counter's group before it: `TriageCompute.dram__throughput...`
_METRIC = re.compile(r"(?:^|\.)([a-z0-9]+__[A-Za-z0-9_.]+)$")
_PREFIXES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SECONDS = {
    "s": 1.0, "second": 1.0, "ms": 1e-3, "msecond": 1e-3, "us": 1e-6, "usecond": 1e-6, "ns": 1e-9,
    "nsecond": 1e-9,
}  # fmt: skip


@dataclass
class Launch:
    """One launch: kernel name, and metric -> value in base units (seconds, bytes, percent)."""

    kernel: str
    values: dict[str, float] = field(default_factory=dict)


def parse_launches(text: str) -> list[Launch]:
    """Return every launch in the order of the output; nothing where the text holds no table."""
    rows = _table(text)
    if not rows:
        return []
    head, body = rows[0], rows[1:]
    if all(name in head for name in _LONG):
        return _from_long(head, body)
    return _from_wide(head, body)


def _table(text: str) -> list[list[str]]:
    """Return the rows from the head on. Lines of the tool among them are left out."""
    lines = text.splitlines()
    start = next(
        (i for i, line in enumerate(lines) if f'"{_NAME}"' in line or f",{_NAME}," in line), None
    )
    if start is None:
        return []
    kept = [line for line in lines[start:] if line.strip() and not line.startswith("==")]
    rows = list(csv.reader(io.StringIO("\n".join(kept))))
    width = len(rows[0])
    return [rows[0], *(row for row in rows[1:] if len(row) == width)]


def _from_wide(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[Launch]:
    place = head.index(_NAME)
    units: Sequence[str] = [""] * len(head)
    launches = []
    for row in body:
        if not row[place].strip():
            # only the row of units names no kernel
            units = row
            continue
        launch = Launch(row[place].strip())
        for name, unit, value in zip(head, units, row, strict=True):
            _keep(launch, name, unit, value)
        launches.append(launch)
    return launches


def _from_long(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[Launch]:
    launches: dict[str, Launch] = {}
    for row in body:
        cells: Mapping[str, str] = dict(zip(head, row, strict=True))
        number = cells.get("ID", "")
        launch = launches.setdefault(number, Launch(cells[_NAME].strip()))
        _keep(launch, *(cells[column] for column in _LONG))
    return list(launches.values())


def _keep(launch: Launch, name: str, unit: str, text: str) -> None:
    found = _METRIC.search(name.strip())
    value = parse_number(text)
    if found and value is not None:
        launch.values[found[1]] = value * scale_of(unit)


def parse_number(text: str) -> float | None:
    """Return the number, or None for `n/a`, `(!) nan`, an empty cell and words."""
    plain = text.strip().replace(",", "").replace("\u202f", "").replace("'", "")
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if value == value and abs(value) != float("inf") else None


def scale_of(unit: str) -> float:
    """Return what turns a value in this unit into seconds, bytes or plain counts; 1 for a unit not known."""
    unit = unit.strip()
    if unit in _SECONDS:
        return _SECONDS[unit]
    match = re.match(r"([KMGT]?)(?:i?B\b|byte|inst|cycle|sector|request|hz|Hz|warp|block)", unit)
    return _PREFIXES[match[1]] if match else 1.0
