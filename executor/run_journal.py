"""What a killed run would have said, said by the next start: INTERRUPTED, never nothing.

While work goes on, a file holds the lines that are to be appended to some record if it does not come to its end. The
file is locked by the process that works. The kernel lets the lock go when that dies, however it dies, so whoever can
take it knows that the work was cut.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from io import BufferedRandom, BufferedWriter
from pathlib import Path

from pydantic import ValidationError

from kernel_skills.executor.errors import KernelSkillsError
from kernel_skills.executor.models import Record

_TRIES = 5


class Pledge(Record):
    """A line that is to stand in a file if the work is cut."""

    file: Path
    line: str


class _Page(Record):
    pledges: tuple[Pledge, ...]


class RunJournal:
    """The pledges of all processes that share a folder and a name."""

    def __init__(self, folder: Path, name: str = "") -> None:
        """Name the place.

        Args:
            folder: made when it is needed; without a name, removed when nothing is left in it.
            name: of the file beside which pledges lie, where the folder is somebody else's.
        """
        self._folder, self._name = folder, f".{name}.running-" if name else "running-"

    @contextlib.contextmanager
    def pledged(self, pledges: Sequence[Pledge]) -> Iterator[None]:
        """Hold pledges while the block runs; however it ends, they are dropped, unless the process is killed."""
        token = f"{os.getpid()}-{secrets.token_hex(4)}"
        # locked before it has its name: `settle` of another process must not take it for abandoned
        hidden = self._folder / f".new-{self._name}{token}"
        page = self._folder / f"{self._name}{token}"
        with self._created(hidden) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(_Page(pledges=tuple(pledges)).model_dump_json().encode())
            file.flush()
            os.fsync(file.fileno())
            hidden.rename(page)
            try:
                yield
            finally:
                page.unlink(missing_ok=True)
        self._tidy()

    def _created(self, path: Path) -> BufferedWriter:
        for _ in range(_TRIES):
            self._folder.mkdir(parents=True, exist_ok=True)
            # another run may end just now, and take the empty folder with it
            with contextlib.suppress(FileNotFoundError):
                return path.open("wb")
        raise KernelSkillsError(f"{path} cannot be made: its folder goes away again and again")

    def settle(self) -> int:
        """Append what processes that were killed had pledged; return how many lines."""
        settled = 0
        for page in sorted(self._folder.glob(f"{self._name}*")):
            with contextlib.suppress(FileNotFoundError), page.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                if page.exists():
                    settled += _append(file.read())
                    page.unlink(missing_ok=True)
        self._tidy()
        return settled

    def _tidy(self) -> None:
        """Remove the folder where this was all that it was for."""
        if self._name == "running-":
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def _append(content: bytes) -> int:
    try:
        page = _Page.model_validate_json(content)
    except ValidationError:
        # torn: it was killed before its work began
        return 0
    for pledge in page.pledges:
        pledge.file.parent.mkdir(parents=True, exist_ok=True)
        with pledge.file.open("ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            _append_line(file, pledge.line.encode() + b"\n")
    return len(page.pledges)


def _append_line(file: BufferedRandom, line: bytes) -> None:
    """Append a line once, even if this was killed between the line and the removal of the pledge."""
    file.seek(0)
    content = file.read()
    if line in content.splitlines(keepends=True):
        return
    # a torn last line is ended first, so that this one stays whole
    file.write((b"\n" if content and not content.endswith(b"\n") else b"") + line)
    file.flush()
    os.fsync(file.fileno())
