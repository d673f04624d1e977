"""How a judge calls a candidate: as our own entries are called, positionally, into given outputs, or as a module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kernel_skills.executor.models import Record


class Calling(Record):
    """The convention of a problem's form. The default is that of skills: tensors by position, scalars by keyword."""

    style: Literal["keywords", "positional", "module"] = "keywords"
    order: tuple[str, ...] = ()
    """Names of the inputs of the call, in order (`positional` and `module`)."""
    destination: bool = False
    """Outputs are allocated by the judge and passed last."""
    init: tuple[Any, ...] = ()
    """What the module is constructed with."""
    parameters: Mapping[str, str] = {}
    """Input of the definition -> the parameter of the module that it becomes, in the module's order."""
    buffers: Mapping[str, str] = {}
    """The same for buffers, which a module may change: it gets a copy."""
    seed_input: str = ""
    """Scalar input that seeds the module's construction."""
