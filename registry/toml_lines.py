"""Where the keys and tables of a TOML text stand, for errors that name a line. `tomllib` keeps no positions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Place = tuple[str | int, ...]
"""Keys and positions in arrays from the top, e.g. `("variant", 1, "archs")`."""

_PART = r"""(?:"[^"]*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_HEADER = re.compile(rf"\s*(\[\[?)\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")
_STRING = re.compile(r"'[^'\n]*'|\"(?:\\.|[^\"\\\n])*\"")


class TomlLines:
    """Line numbers (from 1) of a TOML text's tables, keys and inline tables in arrays.

    The text has been accepted by `tomllib`; what this scan does not understand is left out, and a place in it
    gets the line of the nearest thing around it.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Place, int] = {(): 1}
        self._counts: dict[Place, int] = {}
        self._table: Place = ()
        self._key: Place = ()
        self._depth = 0
        self._quotes = ""
        for number, line in enumerate(text.splitlines(), start=1):
            self._read(number, line)

    def line_of(self, place: Sequence[str | int]) -> int:
        """Return the line of a place; parts that are not in the text are passed over."""
        found: Place = ()
        for part in place:
            if (*found, part) in self._lines:
                found = (*found, part)
        return self._lines[found]

    def _read(self, number: int, line: str) -> None:
        if self._depth == 0 and not self._quotes:
            if header := _HEADER.match(line):
                self._open_table(number, _parts(header[2]), is_array=header[1] == "[[")
                return
            if key := _KEY.match(line):
                self._key = (*self._table, *_parts(key[1]))
                for length in range(len(self._table) + 1, len(self._key) + 1):
                    self._lines.setdefault(self._key[:length], number)
                line = line[key.end() :]
        self._scan_value(number, line)

    def _open_table(self, number: int, parts: Sequence[str], *, is_array: bool) -> None:
        table: Place = ()
        for position, part in enumerate(parts):
            table = (*table, part)
            self._lines.setdefault(table, number)
            if is_array and position == len(parts) - 1:
                self._counts[table] = self._counts.get(table, 0) + 1
            if table in self._counts:
                table = (*table, self._counts[table] - 1)
        self._lines[table] = number
        self._table = table

    def _scan_value(self, number: int, text: str) -> None:
        for character in self._code(text):
            if character == "{" and self._depth == 1:
                index = self._counts.get(self._key, 0)
                self._counts[self._key] = index + 1
                self._lines.setdefault((*self._key, index), number)
            if character in "[{":
                self._depth += 1
            elif character in "]}":
                self._depth = max(0, self._depth - 1)

    def _code(self, text: str) -> Iterator[str]:
        """Yield the characters of a line outside strings and comments, keeping track of multi-line strings."""
        position = 0
        while position < len(text):
            if self._quotes:
                end = text.find(self._quotes, position)
                if end < 0:
                    return
                position = end + 3
                self._quotes = ""
            elif text[position] == "#":
                return
            elif text.startswith(('"""', "'''"), position):
                self._quotes = text[position : position + 3]
                position += 3
            elif string := _STRING.match(text, position):
                position = string.end()
            else:
                yield text[position]
                position += 1


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in re.findall(_PART, dotted)]
