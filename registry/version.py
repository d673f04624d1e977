"""Semantic versions (semver.org 2.0.0) and ranges of them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import total_ordering

import semver


@total_ordering
class Version:
    """A semantic version, ordered by precedence.

    Raises:
        ValueError: the text is not `MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]`.
    """

    def __init__(self, text: str) -> None:
        self._version = semver.Version.parse(text)

    @property
    def release(self) -> tuple[int, int, int]:
        return (self._version.major, self._version.minor, self._version.patch)

    @property
    def is_prerelease(self) -> bool:
        return self._version.prerelease is not None

    def __str__(self) -> str:
        return str(self._version)

    def __repr__(self) -> str:
        return f"Version({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._version == other._version

    def __lt__(self, other: Version) -> bool:
        return bool(self._version < other._version)

    def __hash__(self) -> int:
        return hash(self._version)


class VersionRange:
    """A set of versions: `1.2.0` (exactly), `1.2` or `1.x`, `^1.2`, `~1.2`, `>=1.2,<2`, `!=1.3.0`, `*`.

    All parts split by commas must hold. A pre-release is in the range only where a part names a pre-release of the
    same MAJOR.MINOR.PATCH: nobody gets one unasked.

    Raises:
        ValueError: the text is no such range.
    """

    def __init__(self, text: str) -> None:
        self._text = text.strip()
        self._bounds: list[tuple[str, Version]] = []
        self._named: list[Version] = []
        for part in self._text.split(","):
            self._add(part.strip())

    def __str__(self) -> str:
        return self._text

    def __contains__(self, version: Version) -> bool:
        if version.is_prerelease and not any(
            named.is_prerelease and named.release == version.release for named in self._named
        ):
            return False
        return all(_COMPARE[sign](version, bound) for sign, bound in self._bounds)

    def _add(self, part: str) -> None:
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{part!r} is no version range; write 1.2.0, ^1.2, ~1.2 or >=1.2,<2")
        sign = match["sign"] or "="
        numbers = (
            [int(n) for n in match["numbers"].split(".") if n.isdigit()] if match["numbers"] else []
        )
        filled = [*numbers, 0, 0, 0][:3]
        low = Version(".".join(map(str, filled)) + (match["tail"] or ""))
        if match["tail"] and len(numbers) < 3:
            raise ValueError(f"{part!r} has a pre-release of an incomplete version")
        self._named.append(low)
        if sign == "=" and len(numbers) == 3:
            self._bounds.append(("=", low))
        elif sign in ("^", "~", "="):
            self._bounds.append((">=", low))
            if numbers:
                # `-0` sorts before every pre-release, so ^1 leaves out 2.0.0-alpha
                self._bounds.append(("<", Version(_next(numbers, sign) + "-0")))
        elif len(numbers) == 3 or sign in (">=", "<"):
            self._bounds.append((sign, low))
        elif numbers and sign == ">":
            self._bounds.append((">=", Version(_next(numbers, "="))))
        elif numbers and sign == "<=":
            self._bounds.append(("<", Version(_next(numbers, "=") + "-0")))
        else:
            raise ValueError(f"{part!r} needs a whole version")


_PART = re.compile(
    r"(?P<sign>\^|~|>=|<=|!=|>|<|=)?\s*(?:(?P<numbers>\d+(?:\.(?:\d+|[x*])){0,2})|[x*])"
    r"(?P<tail>(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)"
)
_COMPARE: dict[str, Callable[[Version, Version], bool]] = {
    "=": operator.eq, "!=": operator.ne, ">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt,
}  # fmt: skip


def _next(numbers: list[int], sign: str) -> str:
    """Return the first version that `^`, `~` or a part of a version (`=`) leaves out."""
    if sign == "^":
        # the first number that is not 0 may not change: ^1.2 < 2, ^0.2 < 0.3, ^0.0.3 < 0.0.4
        position = next((i for i, number in enumerate(numbers) if number), len(numbers) - 1)
    else:
        position = min(len(numbers) - 1, 1 if sign == "~" else 2)
    raised = [*numbers[:position], numbers[position] + 1, 0, 0][:3]
    return ".".join(map(str, raised))
