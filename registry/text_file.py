"""Read a package's text files: small, UTF-8, and every failure is a `Problem`."""

from __future__ import annotations

from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.registry.models import Problem

# a manifest of 40 workloads and 10 variants is under 20 kB, a long SKILL.md under 60 kB
LARGEST_TEXT_BYTES = 1 << 20


class BrokenText(InvalidPackage):
    """A file of a package that cannot be read as it should, with its `Problem`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_text(file: Path, rule: str) -> str:
    """Return the file's text with `\\n` line ends.

    Raises:
        BrokenText: it is missing, unreadable, larger than 1 MiB or not UTF-8; the problem carries `rule`.
    """

    def broken(message: str, mend: str = "", line: int | None = None) -> BrokenText:
        return BrokenText(Problem(path=str(file), line=line, rule=rule, message=message, mend=mend))

    try:
        # a pipe would block for ever, and a device never ends
        if file.exists() and not file.is_file():
            raise broken("is no regular file", "replace it by a file")
        with file.open("rb") as stream:
            content = stream.read(LARGEST_TEXT_BYTES + 1)
    except FileNotFoundError:
        raise broken("no such file", f"add {file.name}") from None
    except OSError as error:
        raise broken(f"cannot be read: {error.strerror}") from None
    if len(content) > LARGEST_TEXT_BYTES:
        raise broken("is larger than 1 MiB", "move long notes to references/")
    try:
        return content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise broken("is not UTF-8", "save it as UTF-8", line) from None
