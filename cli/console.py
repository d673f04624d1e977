"""What the commands print: tables, JSON, progress. Results on standard output, progress on standard error."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernel_skills.cli.layout import table_lines

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
    """Print rows under column heads; on a terminal, cells fold to its width.

    Args:
        columns: heads, one per cell of a row.
        rows: cells, in the order of the columns.
        right: columns of figures, aligned to the right.
    """
    cells = [[_one_line(cell) for cell in row] for row in rows]
    on_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else None
    head, *body = table_lines(columns, cells, right, width)
    print(f"\x1b[1m{head}\x1b[0m" if on_terminal and "NO_COLOR" not in os.environ else head)
    for line in body:
        print(line)


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
