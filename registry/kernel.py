"""Use a skill's kernels in one's own program: `load_kernel` gives a callable over PyTorch tensors.

attention = load_kernel("flash-attn")
out = attention(q, k, v, causal=True)
print(attention.why(q, k, v, causal=True))
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch

from kernel_skills.executor.errors import NotFound, UsageError
from kernel_skills.executor.models import Scalar
from kernel_skills.registry.discovery import find_skill
from kernel_skills.registry.kernel_binding import BadCall
from kernel_skills.registry.kernel_choice import Choice, OutsideEnvelope, ReferenceFallback
from kernel_skills.registry.kernel_operator import Operator, operator_of
from kernel_skills.registry.kernel_plan import choice_of
from kernel_skills.registry.models import Skill

__all__ = ["BadCall", "Choice", "Kernel", "OutsideEnvelope", "ReferenceFallback", "load_kernel"]

OnMiss = Literal["reference", "raise"]


def load_kernel(
    name: str,
    *,
    definition: str | None = None,
    on_miss: OnMiss = "reference",
    skills_dir: Path | None = None,
    config: Mapping[str, Scalar] | None = None,
) -> Kernel:
    """Return a skill's operator as a callable.

    The skill's files are imported as they are, in this process: load only skills that you trust as you trust any
    library.

    Args:
        name: `NAME` or `NAME@RANGE`.
        definition: which operator of the skill; default: the one of the skill's name, else its first.
        on_miss: what a call outside the envelope does in which the kernels were verified (dtype, shape,
            architecture, toolchain): run the skill's plain PyTorch reference, with one `ReferenceFallback` warning
            per reason, or raise `OutsideEnvelope`.
        skills_dir: where to look first.
        config: tuning parameters for the chosen variant, in place of the tuned ones.

    Raises:
        NotFound: no such skill, version or definition; close names are offered.
        InvalidPackage: the skill breaks its contract.
    """
    if on_miss not in ("reference", "raise"):
        raise UsageError(f"on_miss is {on_miss!r}; it is 'reference' or 'raise'")
    skill = find_skill(name, skills_dir)
    operator = operator_of(skill, _definition_name(skill, definition))
    # registered here and not in the middle of a trace
    operator.overload()
    if backward := operator.gradient():
        backward.overload()
    return Kernel(operator, on_miss, skills_dir, dict(config or {}))


class Kernel:
    """A Definition of a skill, callable. Immutable: copies are the same object, so it may live in a module.

    The arguments are the Definition's inputs, by position or by name; scalars with a default may be left out.
    Leading dimensions that the Definition collapses may be several. Auxiliary outputs are kept from the caller.
    """

    def __init__(
        self,
        operator: Operator,
        on_miss: OnMiss,
        skills_dir: Path | None,
        config: Mapping[str, Scalar],
    ) -> None:
        config_text = json.dumps(config, sort_keys=True) if config else ""
        self._operator = operator
        self._dispatcher = operator.dispatcher(on_miss, config_text)
        self._signature = operator.signature
        self._arity = len(operator.signature.names)
        self._visible = operator.signature.visible
        self._hides = len(operator.signature.visible) != len(operator.definition.outputs)
        self._overload = operator.overload()
        self._several_outputs = len(operator.definition.outputs) > 1
        self._on_miss = on_miss
        self._config_text = config_text
        self._skills_dir = skills_dir
        self._config = config

    @property
    def skill(self) -> str:
        return self._operator.skill.name

    @property
    def version(self) -> str:
        return str(self._operator.skill.version)

    @property
    def definition(self) -> str:
        return self._operator.definition.name

    @property
    def digest(self) -> str:
        """Root digest of the skill's folder when it was loaded."""
        return self._operator.digest

    @property
    def operator(self) -> Any:
        """The registered `torch.library` operator (an OpOverload)."""
        return self._overload

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator.

        Returns:
            The outputs that are not auxiliary: one tensor, or a tuple in the Definition's order.

        Raises:
            BadCall: a ValueError: shapes, scalars or constraints do not fit the Definition.
            OutsideEnvelope: no kernel fits and `on_miss` is `raise`.
        """
        values = (
            args
            if len(args) == self._arity and not kwargs
            else self._signature.positional(args, kwargs)
        )
        if torch.compiler.is_compiling():
            result = self._overload(*values, self._on_miss, self._config_text)
            outputs = result if self._several_outputs else (result,)
        else:
            outputs = self._dispatcher(values)
        if self._hides:
            outputs = tuple([outputs[i] for i in self._visible])
        return outputs[0] if len(outputs) == 1 else outputs

    def why(self, *args: Any, **kwargs: Any) -> Choice:
        """Return which variant such a call takes, with which configuration, and why the others were rejected."""
        values = self._signature.positional(args, kwargs)
        return choice_of(self._operator, values, self._config)[1]

    def __repr__(self) -> str:
        return (
            f"<Kernel {self.definition} of {self.skill}@{self.version}, sha256 {self.digest[:12]}>"
        )

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Kernel:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        pinned = f"{self.skill}@{self.version}"
        return (
            _reload,
            (pinned, self.definition, self._on_miss, self._skills_dir, dict(self._config)),
        )


def _reload(
    name: str,
    definition: str,
    on_miss: OnMiss,
    skills_dir: Path | None,
    config: Mapping[str, Scalar],
) -> Kernel:
    return load_kernel(
        name, definition=definition, on_miss=on_miss, skills_dir=skills_dir, config=config
    )


def _definition_name(skill: Skill, wanted: str | None) -> str:
    names = [definition.name for definition in skill.manifest.definition]
    if wanted is not None:
        return skill.manifest.definition_named(wanted).name
    if not names:
        raise NotFound(
            f"the skill {skill.name} has no operator to load: it is of kind {skill.manifest.kind}"
        )
    return skill.name if skill.name in names else names[0]
