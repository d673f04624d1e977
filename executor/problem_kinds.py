"""The kinds of values that a problem's inputs are given beside its own: the shapes are fixed, the values are not."""

from __future__ import annotations

from collections.abc import Mapping

KINDS: Mapping[str, str] = {
    "as-given": "as the problem draws them",
    "fresh": "as the problem draws them, from another seed",
    "scaled": "every floating input a hundred times larger",
    "small": "every floating input a thousand times smaller",
    "shifted": "3 added to every floating input",
    "spiked": "one element in 256, at least one, a hundred times larger",
    "redrawn": "inputs and parameters of one value everywhere drawn at random",
    "strided": "the same values in rows that lie further apart, at an offset",
}
"""Kind -> what it does. Integers and booleans stay: what they may be only the problem knows."""
