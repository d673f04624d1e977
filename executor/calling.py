"""How a judge calls a candidate: as our own entries are called, positionally, into given outputs, as a module, or with
any arguments that an operator of PyTorch takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kernel_skills.executor.models import Record


class Calling(Record):
    """The convention of a problem's form. The default is that of skills: tensors by position, scalars by keyword."""

    style: Literal["keywords", "positional", "module", "tree"] = "keywords"
    """`tree`: the scalar input `call` holds the arguments, see `call_tree`."""
    order: tuple[str, ...] = ()
    """Names of the inputs of the call, in order (`positional` and `module`)."""
    destination: bool = False
    """Outputs are allocated by the judge and passed last."""
    groups: Mapping[str, str] = {}
    """Input of the call that is a list, a dictionary or nothing -> its parts, see `call_tree`; tensors in it are inputs."""
    init: tuple[Any, ...] = ()
    """What the module is constructed with."""
    init_keywords: Mapping[str, Any] = {}
    evaluation: bool = False
    """The module is put into evaluation mode."""
    dtype: str = ""
    """What the module is cast to; empty leaves it as it is."""
    parameters: Mapping[str, str] = {}
    """Input of the definition -> the parameter of the module that it becomes, in the module's order."""
    buffers: Mapping[str, str] = {}
    """The same for buffers, which a module may change: it gets a copy."""
    seed_input: str = ""
    """Scalar input that seeds the module's construction."""
