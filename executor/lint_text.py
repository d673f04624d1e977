"""What the characters of a file hide: names that are not ASCII, marks that reorder or vanish."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator

_BIDI = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
_VANISHING = frozenset(
    "\u200b\u2060\u2061\u2062\u2063\u2064\ufeff\u00ad\u034f\u180e\u115f\u1160\u3164\uffa0"
    + "".join(map(chr, range(0xE0000, 0xE0080)))  # tags, which spell hidden text
    + "".join(chr(code) for code in range(0x20) if chr(code) not in "\t\n\f\r")
)


def hidden_text(content: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each name outside ASCII and each mark that reorders or vanishes."""
    if content.isascii() and not _VANISHING & set(content):
        return
    for number, line in enumerate(content.splitlines(), start=1):
        for mark in sorted((_BIDI | _VANISHING) & set(line)):
            if not (number == 1 and mark == "\ufeff"):
                yield number, f"holds the invisible mark U+{ord(mark):04X}"
    try:
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            if token.type == tokenize.NAME and not token.string.isascii():
                yield token.start[0], f"names {token.string!r} with letters outside ASCII"
    except (tokenize.TokenError, SyntaxError, ValueError):
        return
