"""The shape to tune for: a workload by its name, or one's own axes over a workload of the skill."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernel_skills.executor.errors import NotFound, UsageError
from kernel_skills.executor.expressions import holds
from kernel_skills.executor.models import Definition, Scalar, ScalarInput, TensorSpec, Workload
from kernel_skills.executor.workload_values import workload_names
from kernel_skills.registry.models import Skill

_WORDS: Mapping[str, Scalar] = {"true": True, "false": False}
_LONGEST_NAME = 64


def workload_to_tune(skill: Skill, text: str, definition_name: str = "") -> Workload:
    """Return the Workload that `--workload` asks for, with every type variable's dtype written out.

    Args:
        text: a name (`causal-d128`), axes (`batch=1,q_heads=32`), or both (`causal-d128,batch=1`). What is not
            given comes from the named workload, else from the definition's first bench workload. Besides axes,
            type variables (`T=float16`) and scalar inputs (`causal=true`) may be set.

    Raises:
        NotFound: no such workload or definition.
        UsageError: a word names nothing, a value does not fit, or several definitions could be meant.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    names = [word for word in words if "=" not in word]
    if len(names) > 1:
        raise UsageError(
            f"--workload {text}: names {len(names)} workloads; tune one shape at a time"
        )
    base = _base(skill, names[0] if names else "", definition_name)
    definition = skill.manifest.definition_named(base.definition)
    given = dict(word.split("=", 1) for word in words if "=" in word)
    base = _written_out(definition, base)
    return _changed(definition, base, given) if given else base


def _base(skill: Skill, name: str, definition_name: str) -> Workload:
    if not skill.manifest.definition:
        raise UsageError(
            f"{skill.name} is a {skill.manifest.kind} skill: it has no kernels to tune"
        )
    if definition_name:
        skill.manifest.definition_named(definition_name)
    workloads = [w for w in skill.manifest.workload if definition_name in ("", w.definition)]
    if name:
        found = [w for w in workloads if w.name == name]
        if not found:
            raise NotFound.named(f"workload in {skill.name}", name, {w.name for w in workloads})
    else:
        found = [w for w in workloads if w.purpose == "bench"]
        if not found:
            raise NotFound(f"{skill.name} has no bench workload to take the rest of the shape from")
    owners = sorted({workload.definition for workload in found})
    if len(owners) > 1:
        raise UsageError(
            f"{skill.name} has several definitions with this workload; say which with --definition {' or '.join(owners)}"
        )
    return found[0]


def _written_out(definition: Definition, workload: Workload) -> Workload:
    """Fill in dtypes and make `2` a float where a scalar is one: `load_kernel` looks its call up so."""
    dtypes = {
        name: workload.dtypes.get(name, choices[0]) for name, choices in definition.dtypes.items()
    }
    inputs = dict(workload.inputs)
    for name, spec in definition.scalar_inputs.items():
        given = inputs.get(name)
        if isinstance(given, ScalarInput) and _is_float(spec) and isinstance(given.value, int):
            inputs[name] = ScalarInput(value=float(given.value))
    return workload.model_copy(update={"dtypes": dtypes, "inputs": inputs})


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.startswith(("float", "bfloat"))


def _changed(definition: Definition, base: Workload, given: Mapping[str, str]) -> Workload:
    axes, dtypes, inputs = dict(base.axes), dict(base.dtypes), dict(base.inputs)
    variable = [name for name, axis in definition.axes.items() if axis.type == "var"]
    for name, text in given.items():
        if name in variable:
            axes[name] = _length(name, text)
        elif name in definition.dtypes:
            if text not in definition.dtypes[name]:
                raise UsageError(
                    f"{name}={text}: {name} may be {', '.join(definition.dtypes[name])}"
                )
            dtypes[name] = text
        elif name in definition.scalar_inputs:
            inputs[name] = ScalarInput(value=_scalar(name, text, definition.scalar_inputs[name]))
        else:
            known = [*variable, *definition.dtypes, *definition.scalar_inputs]
            raise UsageError(f"{definition.name} has no {name!r} to set; it has {', '.join(known)}")
    workload = base.model_copy(
        update={
            "name": _name(given), "purpose": "bench", "axes": axes, "dtypes": dtypes, "inputs": inputs,
            "description": f"from {base.name}",
        }
    )  # fmt: skip
    names = workload_names(definition, workload)
    for constraint in definition.constraints:
        if not holds(constraint, names):
            raise UsageError(f"the shape breaks the constraint {constraint!r} of {definition.name}")
    # model_copy checks nothing
    return Workload.model_validate(workload.model_dump())


def _name(given: Mapping[str, str]) -> str:
    words = re.findall(r"[a-z0-9]+", "-".join(f"{k}-{v}" for k, v in given.items()).lower())
    return "-".join(words)[:_LONGEST_NAME].strip("-") or "own-shape"


def _length(name: str, text: str) -> int:
    if not text.isdecimal():
        raise UsageError(f"{name}={text}: a length is a whole number")
    return int(text)


def _scalar(name: str, text: str, spec: TensorSpec) -> Scalar:
    if spec.dtype == "string":
        return text
    if spec.dtype == "bool":
        if text.lower() not in _WORDS:
            raise UsageError(f"{name}={text}: true or false")
        return _WORDS[text.lower()]
    try:
        return float(text) if _is_float(spec) else int(text)
    except ValueError:
        raise UsageError(f"{name}={text}: not a {spec.dtype}") from None
