"""What a person sees while a folder of solutions is judged: a table that fills, and on Ctrl-C how to go on."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernel_skills.cli.console import clean, print_error

if TYPE_CHECKING:
    from rich.table import Table

    from kernel_skills.executor.problem_batch import Line

_REFRESHES_PER_SECOND = 4


class Phases:
    """Wall seconds by phase; a phase lasts until the next begins."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._name, self._since = "start", time.monotonic()

    def enter(self, name: str) -> None:
        now = time.monotonic()
        if name != self._name:
            self._seconds[self._name] = self._seconds.get(self._name, 0.0) + now - self._since
            self._name, self._since = name, now

    def seconds(self) -> dict[str, float]:
        """Return the seconds so far, by phase."""
        name, self._name = self._name, ""
        now = time.monotonic()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._since
        self._since = now
        return {name: round(seconds, 2) for name, seconds in self._seconds.items()}


class FolderProgress:
    """The state of each file; several threads tell of theirs."""

    def __init__(self, files: list[Path], live: bool) -> None:
        self._lock = threading.Lock()
        self._live = live
        self._now = {file.name: "waits" for file in files}
        self._lines: dict[str, Line] = {}

    @property
    def done(self) -> int:
        return len(self._lines)

    @property
    def accepted(self) -> int:
        return sum(line.verdict.accepted for line in self._lines.values())

    def working(self, file: Path, what: str) -> None:
        with self._lock:
            self._now[file.name] = what

    def finished(self, line: Line, known: bool) -> None:
        """Take a verdict; where no table is shown, print it as a line, unless it is an old one."""
        with self._lock:
            self._lines[line.file] = line
        if not self._live and not known:
            print_error(f"{line.file}: {line.verdict.verdict}, {line.verdict.outcome}")

    def table(self, height: int) -> Table:
        """Return the table; what does not fit into the height is counted, not shown."""
        from rich.table import Table

        columns = ("file", "now", "outcome", "ms", "speed-up")
        with self._lock:
            names = sorted(self._now, key=self._place)
            title = f"{len(self._lines)} of {len(names)} judged, {self.accepted} accepted"
            table = Table(title=title, title_justify="left", box=None)
            for column in columns:
                table.add_column(column, justify="right" if column in columns[3:] else "left")
            room = max(3, height - 5)
            for name in names[:room]:
                table.add_row(*self._row(name))
            if len(names) > room:
                table.add_row(f"and {len(names) - room} more")
        return table

    def _place(self, name: str) -> int:
        """Files at work first, then those that wait, then the verdicts."""
        if name in self._lines:
            return 2
        return int(self._now[name] == "waits")

    def _row(self, name: str) -> tuple[str, ...]:
        line = self._lines.get(name)
        if line is None:
            return clean(name), clean(self._now[name]), "", "", ""
        performance = line.verdict.figures.performance
        return (
            clean(name), line.verdict.verdict, line.verdict.outcome,
            f"{performance.latency_ms:.4g}" if performance else "",
            f"{performance.speedup_factor:.3g}" if performance else "",
        )  # fmt: skip


@contextmanager
def folder_progress(files: list[Path], results: Path, as_json: bool) -> Iterator[FolderProgress]:
    """Show a table on a terminal, lines elsewhere, and nothing beside JSON.

    On Ctrl-C the verdicts so far are in `results`; it is said how to go on, and the interruption goes on, too.
    """
    live = sys.stderr.isatty() and not as_json
    state = FolderProgress(files, live or as_json)
    try:
        with _shown(state) if live else _nothing():
            yield state
    except KeyboardInterrupt:
        print_error(
            f"interrupted: {state.done} of {len(files)} judged, verdicts in {results}; "
            "the same command goes on from there"
        )
        raise


@contextmanager
def _shown(state: FolderProgress) -> Iterator[None]:
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)

    def render() -> Any:
        return state.table(console.height)

    with Live(
        get_renderable=render,
        console=console,
        refresh_per_second=_REFRESHES_PER_SECOND,
        transient=True,
    ):
        yield


@contextmanager
def _nothing() -> Iterator[None]:
    yield
