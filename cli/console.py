"""What the commands print: tables, JSON, progress. Results on standard output, progress on standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

# Packages are other people's text: an escape sequence in a summary must not reach the terminal
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: object) -> str:
    """Return the text without control characters; line breaks and tabs stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def print_line(text: object = "") -> None:
    print(clean(text))


def print_error(text: object) -> None:
    print(clean(text), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print pydantic models, mappings, sequences and scalars as indented JSON."""
    print(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()
) -> None:
    """Print rows under column heads: drawn by rich on a terminal, else aligned by spaces.

    Args:
        columns: heads, one per cell of a row.
        rows: cells, in the order of the columns.
        right: columns of figures, aligned to the right.
    """
    cells = [[_one_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich_table(columns, cells, right)
    else:
        _print_plain_table(columns, cells, right)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print `name  value` lines with the values aligned; empty values are left out."""
    shown = [(name, value) for name, value in fields if value not in ("", None, (), [])]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        print_line(f"{name.ljust(width)}  {value}")


@dataclass
class Progress:
    """A running progress display; every method does nothing where none is shown."""

    _display: RichProgress | None = None
    _task: TaskID | None = None

    def advance(self, steps: float = 1) -> None:
        if self._display is not None and self._task is not None:
            self._display.advance(self._task, steps)

    def describe(self, text: str) -> None:
        """Replace the words beside the bar."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, description=clean(text))

    def expect(self, total: float) -> None:
        """Set how many steps there are."""
        if self._display is not None and self._task is not None:
            self._display.update(self._task, total=total)


@contextmanager
def progress(text: str, total: float | None = None, as_json: bool = False) -> Iterator[Progress]:
    """Show a progress bar on standard error while the block runs.

    Nothing is shown where standard error is no terminal or `as_json` is set. The bar is gone when the block ends,
    also by Ctrl-C.

    Args:
        text: words beside the bar.
        total: steps in all; None shows a pulse.
    """
    if as_json or not sys.stderr.isatty():
        yield Progress()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    count = () if total is None else (MofNCompleteColumn(),)
    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), *count, TimeElapsedColumn())
    with RichProgress(*columns, console=Console(stderr=True), transient=True) as display:
        yield Progress(display, display.add_task(clean(text), total=total))


def _plain(value: Any) -> Any:
    """Return the JSON shape of a value."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def _one_line(cell: object) -> str:
    return "" if cell is None else " ".join(clean(cell).split())


def _print_plain_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]
) -> None:
    table = [list(columns), *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        parts = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        print("  ".join(parts).rstrip())


def _print_rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, column in enumerate(columns):
        # names and figures stay whole on a narrow terminal; the other columns fold
        whole = index == 0 or column in right
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(column, justify=justify, overflow="fold", no_wrap=whole)
    for row in rows:
        # Text, so that square brackets in a package's words are not read as markup
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
