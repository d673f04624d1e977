from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_skills.registry.version import Version, VersionRange

RANGES = [
    ("1.2.0", "1.2.0", "1.2.1 1.1.9"),
    ("^1", "1.0.0 1.9.9", "0.9.0 2.0.0 2.0.0-alpha 1.2.0-rc.1"),
    ("^0.2", "0.2.0 0.2.9", "0.3.0 0.1.0"),
    ("^0.0.3", "0.0.3", "0.0.4"),
    ("^0", "0.0.0 0.9.0", "1.0.0"),
    ("~1.2", "1.2.0 1.2.9", "1.3.0"),
    ("~1", "1.9.0", "2.0.0"),
    ("1", "1.4.0", "2.0.0"),
    ("1.2.x", "1.2.4", "1.3.0"),
    ("*", "0.0.0 9.0.0", "1.0.0-alpha"),
    (">=1.2,<2", "1.2.0 1.99.0", "2.0.0 1.1.9 2.0.0-alpha"),
    (">1.2", "1.3.0", "1.2.5"),
    ("<=1.2", "1.2.5", "1.3.0"),
    ("^1, !=1.2.0", "1.2.1", "1.2.0"),
    ("^1.0.0-rc.1", "1.0.0-rc.2 1.0.0", "1.0.0-alpha 1.1.0-rc.1"),
]


@pytest.mark.parametrize(("text", "inside", "outside"), RANGES)
def test_a_range_holds_what_it_says(text: str, inside: str, outside: str) -> None:
    versions = VersionRange(text)
    for version in inside.split():
        assert Version(version) in versions, version
    for version in outside.split():
        assert Version(version) not in versions, version


@pytest.mark.parametrize(
    "text", ["", "latest", "1..2", ">", "^", "1.2.3.4", ">=1,", "!=1", "1-rc.1"]
)
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|whole version|incomplete"):
        VersionRange(text)


numbers = st.integers(0, 5)
versions = st.builds(lambda a, b, c: Version(f"{a}.{b}.{c}"), numbers, numbers, numbers)


@given(versions, versions)
def test_a_caret_admits_later_versions_up_to_the_next_breaking_one(
    low: Version, other: Version
) -> None:
    first = next((i for i, number in enumerate(low.release) if number), 2)
    compatible = other.release[: first + 1] == low.release[: first + 1] and other >= low
    assert (other in VersionRange(f"^{low}")) == compatible


@given(versions, versions)
def test_order_is_that_of_the_numbers(one: Version, other: Version) -> None:
    assert (one < other) == (one.release < other.release)
