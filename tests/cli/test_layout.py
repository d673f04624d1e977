"""How a table is laid out in a given width."""

from __future__ import annotations

from kernel_skills.cli.layout import table_lines

_HEADS = ("name", "definitions", "ms")
_ROWS = [("rms-norm", "rms-norm, rms-norm-backward", "0.5"), ("x", "y", "12.25")]


def _lines(width: int | None) -> list[str]:
    return table_lines(_HEADS, _ROWS, ("ms",), width)


def test_without_a_width_nothing_folds() -> None:
    assert _lines(None) == [
        "name      definitions                     ms",
        "rms-norm  rms-norm, rms-norm-backward    0.5",
        "x         y                            12.25",
    ]


def test_a_name_stays_whole_where_there_is_room() -> None:
    assert _lines(36) == [
        "name      definitions             ms",
        "rms-norm  rms-norm,              0.5",
        "          rms-norm-backward",
        "x         y                    12.25",
    ]


def test_a_name_folds_at_hyphens_where_there_is_none() -> None:
    assert _lines(30) == [
        "name      definitions       ms",
        "rms-norm  rms-norm,        0.5",
        "          rms-norm-",
        "          backward",
        "x         y              12.25",
    ]


def test_no_rows_are_a_head() -> None:
    assert table_lines(_HEADS, [], (), 10) == ["name  definitions  ms"]
