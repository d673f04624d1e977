"""Lay a table out in columns of text that fit a width."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence

_GAP = 2


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str], width: int | None
) -> list[str]:
    """Return the lines of a table, the head first; the head is always one line.

    Args:
        columns: heads, one per cell of a row.
        rows: cells of one line each.
        right: columns of figures: aligned to the right and never folded.
        width: characters there are; cells fold at spaces, then at hyphens, to stay within. None folds nothing.
    """
    table = [list(columns), *(list(row) for row in rows)]
    natural = [max(len(row[index]) for row in table) for index in range(len(columns))]
    widths = natural
    if width is not None:
        widths = _fitted(columns, rows, right, natural, width - _GAP * (len(columns) - 1))
    lines = []
    for row in table:
        folded = [_folded(cell, size) for cell, size in zip(row, widths, strict=True)]
        for depth in range(max(len(parts) for parts in folded)):
            parts = [
                _aligned(cell[depth] if depth < len(cell) else "", size, column in right)
                for cell, size, column in zip(folded, widths, columns, strict=True)
            ]
            lines.append((" " * _GAP).join(parts).rstrip())
    return lines


def _fitted(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[str],
    natural: list[int],
    room: int,
) -> list[int]:
    """Return column widths: each at least its longest word, or piece of a word, and together within the room."""
    if sum(natural) <= room:
        return natural
    least = natural
    for pieces in (str.split, _at_hyphens):
        least = [
            natural[index]
            if column in right
            else max(len(column), *(_longest(row[index], pieces) for row in rows), 0)
            for index, column in enumerate(columns)
        ]
        if sum(least) <= room:
            break
    widths = list(least)
    # what is left goes, one by one, to the column that lacks least: short columns become whole first
    for _ in range(room - sum(widths)):
        lacking = [index for index in range(len(widths)) if widths[index] < natural[index]]
        if not lacking:
            break
        widths[min(lacking, key=lambda index: natural[index] - widths[index])] += 1
    return widths


def _at_hyphens(text: str) -> list[str]:
    return re.findall(r"[^\s-]*-*", text)


def _longest(text: str, pieces: Callable[[str], list[str]]) -> int:
    return max((len(piece) for piece in pieces(text)), default=0)


def _folded(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    # a name stays in one piece where there is room for it
    at_hyphens = _longest(cell, str.split) > width
    return textwrap.wrap(cell, width, break_on_hyphens=at_hyphens)


def _aligned(cell: str, width: int, to_right: bool) -> str:
    return cell.rjust(width) if to_right else cell.ljust(width)
