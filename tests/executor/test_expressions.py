from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.expressions import evaluate, holds, scalar_default

NAMES: dict[str, Any] = {"rows": 6, "cols": 4, "causal": True, "mode": "sum", "window": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("rows * cols + 1", 25),
        ("-rows // 4", -2),
        ("rows / cols", 1.5),
        ("rows ** -0.5", 6**-0.5),
        ("2 ** 40", 2**40),
        ("min(rows, cols, 5)", 4),
        ("ceil(rows / cols)", 2),
        ("log2(cols) + sqrt(cols)", 4.0),
        ("rows if causal else cols", 6),
        ("rows % cols == 2 and not (cols > rows)", True),
        ("2 <= cols < rows", True),
        ("2 <= rows < cols", False),
        ("cols in (4, 8)", True),
        ("mode == 'sum'", True),
        ("mode not in ['mean']", True),
    ],
)
def test_arithmetic_over_names(text: str, value: object) -> None:
    assert evaluate(text, NAMES) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rows +",
        "unknown + 1",
        "__import__('os')",
        "rows.__class__",
        "[x for x in (1, 2)]",
        "(lambda: 1)()",
        "max(rows, key=cols)",
        "f'{rows}'",
        "rows[0]",
        "rows @ cols",
        "rows << 3",
        "rows / 0",
        "9 ** 9 ** 9",
        "2 ** 65",
        "(9 ** 64) ** 64",
        "(-8) ** 0.5",
        "0 ** -1",
        "'a' * 9999999999",
        "'%0999999999d' % 1",
        "(1, 2) * 9999999999",
        "window > 3",
        "1j",
        "(" * 500 + "1" + ")" * 500,
        "-" * 3000 + "1",
        "rows\0",
        "9" * 5000,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidPackage):
        evaluate(text, NAMES)


@given(st.text(alphabet="rowscl0123456789+-*/%().,<>=! '\"[]{}:andotifelsmx_", max_size=40))
def test_random_text_has_a_value_or_is_refused(text: str) -> None:
    try:
        evaluate(text, NAMES)
    except InvalidPackage as error:
        assert str(error)


@given(rows=st.integers(1, 1000), cols=st.integers(1, 1000))
def test_it_agrees_with_python(rows: int, cols: int) -> None:
    names = {"rows": rows, "cols": cols}
    assert evaluate("(rows + 7) // 8 * cols - rows % cols", names) == (
        (rows + 7) // 8 * cols - rows % cols
    )
    assert holds("rows % cols == 0 or cols > rows", names) == (rows % cols == 0 or cols > rows)
    assert math.isclose(evaluate("cols ** -0.5", names), cols**-0.5)


def test_an_unknown_name_is_shown_with_the_known_ones() -> None:
    with pytest.raises(InvalidPackage, match=r"'heads'; known: cols, rows"):
        evaluate("heads > 1", {"rows": 1, "cols": 2})


@pytest.mark.parametrize(
    ("default", "value"),
    [("cols ** -0.5", 0.5), ("mean", "mean"), (1e-6, 1e-6), (False, False), (None, None)],
)
def test_a_default_is_computed_where_its_text_is_an_expression(default: Any, value: object) -> None:
    assert scalar_default(default, NAMES) == value
