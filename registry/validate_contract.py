"""Checks of skill.toml beyond its types: definitions, workloads, variants, gradients, example queries."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.expressions import evaluate
from kernel_skills.executor.models import (
    DTYPE_BYTES,
    Definition,
    IntegerInput,
    ScalarInput,
    VarAxis,
    Workload,
)
from kernel_skills.executor.targets import load_targets
from kernel_skills.registry.findings import Findings
from kernel_skills.registry.manifest import MANIFEST_NAME
from kernel_skills.registry.models import Manifest, Skill, Variant
from kernel_skills.registry.shape import shape_of, shape_of_workload
from kernel_skills.registry.text_file import read_text
from kernel_skills.registry.toml_lines import Place
from kernel_skills.registry.version import VersionRange

_STOPS_A_RUN = ("dtype", "workload", "variant")
_PURPOSES = ("smoke", "edge", "bench")
_ARCHS = (
    "any", "cpu", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_101", "sm_103", "sm_110",
    "sm_120", "sm_121", "gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1101",
    "gfx1102", "gfx1150", "gfx1151", "gfx1200", "gfx1201", "gfx1250",
)  # fmt: skip
"""What ptxas of CUDA 13 and LLVM's AMDGPU backend take that Triton has code for; `sm_90a` is `sm_90` with a suffix."""
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_TUNING_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


def check_contract(manifest: Manifest, findings: Findings) -> None:
    """Check what the manifest says against itself."""
    _check_words(manifest, findings)
    if manifest.kind in ("pattern", "hardware") and (manifest.definition or manifest.variant):
        message = f"a {manifest.kind} skill is notes only"
        findings.at(("kind",), "kind", message, "make it an operator, or take the definitions out")
    for index, definition in enumerate(manifest.definition):
        place = ("definition", index)
        _check_dtypes(definition, place, findings)
        _check_gradient(manifest, definition, place, findings)
        if manifest.kind == "operator":
            _check_coverage(manifest, definition, place, findings)
    for index, workload in enumerate(manifest.workload):
        definition = manifest.definition_named(workload.definition)
        _Workload(workload, definition, ("workload", index), findings).check()
    for index, variant in enumerate(manifest.variant):
        _check_variant(manifest, variant, ("variant", index), findings)


def require_runnable(skill: Skill) -> None:
    """Refuse a skill whose workloads or variants break its definitions.

    A workload that breaks its definition fits no variant, and would be left out of a run without a word.

    Raises:
        InvalidPackage: one line `FILE:LINE: what is wrong; mend` per fault.
    """
    findings = Findings(skill.path, read_text(skill.path / MANIFEST_NAME, "manifest"))
    check_contract(skill.manifest, findings)
    broken = [problem for problem in findings.problems if problem.rule in _STOPS_A_RUN]
    if broken:
        raise InvalidPackage("\n".join(str(problem) for problem in broken))


# --- the skill --------------------------------------------------------------------------------


def _check_words(manifest: Manifest, findings: Findings) -> None:
    queries = manifest.example_queries
    for language, texts in (("en", queries.en), ("zh", queries.zh)):
        place = ("example_queries", language)
        if not texts:
            findings.at(
                place,
                "example-queries",
                f"no example query in {language!r}",
                "write what a user would ask",
            )
    for text in queries.zh:
        if not _CHINESE.search(text):
            findings.at(
                ("example_queries", "zh"),
                "example-queries",
                f"{text!r} is not Chinese",
                "translate it",
            )
    if not manifest.patterns and manifest.kind in ("operator", "pattern"):
        findings.at(("patterns",), "patterns", "names no pattern", "name those that make it fast")
    for key, names in (("patterns", manifest.patterns), ("prerequisites", manifest.prerequisites)):
        if len(set(names)) != len(names):
            findings.at((key,), key, f"{key} names one twice", "take the second out")
    if manifest.name in manifest.dependencies:
        findings.at(("dependencies",), "dependencies", "the skill asks for itself", "take it out")
    for name, text in manifest.dependencies.items():
        try:
            VersionRange(text)
        except ValueError as error:
            findings.at(("dependencies", name), "dependencies", str(error))


# --- definitions ------------------------------------------------------------------------------


def _check_dtypes(definition: Definition, place: Place, findings: Findings) -> None:
    for variable, dtypes in definition.dtypes.items():
        for dtype in dtypes:
            if dtype not in DTYPE_BYTES:
                message = f"{definition.name}: {variable} takes {dtype!r}, which is no dtype"
                findings.at(
                    (*place, "dtypes"), "dtype", message, f"known: {', '.join(DTYPE_BYTES)}"
                )


def _check_coverage(
    manifest: Manifest, definition: Definition, place: Place, findings: Findings
) -> None:
    purposes = {w.purpose for w in manifest.workload if w.definition == definition.name}
    for purpose in _PURPOSES:
        if purpose not in purposes:
            message = f"{definition.name} has no {purpose} workload"
            findings.at(
                place,
                "workload-purposes",
                message,
                f'add a [[workload]] with purpose = "{purpose}"',
            )
    variants = [v for v in manifest.variant if v.definition == definition.name]
    if not any("any" in variant.archs for variant in variants):
        message = f"{definition.name} has no portable variant"
        findings.at(place, "portable-variant", message, 'add a [[variant]] with archs = ["any"]')


def _check_gradient(
    manifest: Manifest, definition: Definition, place: Place, findings: Findings
) -> None:
    gradient, place = definition.gradient, (*place, "gradient")
    if gradient is None:
        return

    def wrong(message: str, mend: str = "") -> None:
        findings.at(place, "gradient", f"{definition.name}: gradient: {message}", mend)

    backward = next((d for d in manifest.definition if d.name == gradient.definition), None)
    if backward is None:
        wrong(f"names the unknown definition {gradient.definition!r}")
        return
    known = {f"grad:{name}" for name in definition.outputs} | {
        *definition.inputs,
        *definition.outputs,
    }
    for name in backward.inputs:
        source = gradient.inputs.get(name)
        if source is None and backward.inputs[name].default is None:
            wrong(
                f"says nothing of the input {name!r} of {backward.name}",
                f"add it to `inputs`: {_listed(known)}",
            )
        elif source is not None and source not in known:
            wrong(
                f"feeds {name!r} from {source!r}, which is nothing of the forward",
                f"use one of {_listed(known)}",
            )
    for name in gradient.inputs.keys() - backward.inputs.keys():
        wrong(f"{backward.name} has no input {name!r}")
    for name, output in gradient.grads.items():
        if name not in definition.tensor_inputs:
            wrong(f"{name!r} is no tensor input of {definition.name}")
        if output not in backward.outputs:
            wrong(f"{output!r} is no output of {backward.name}")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


# --- workloads --------------------------------------------------------------------------------


class _Workload:
    """The checks of one workload, which share its place and its words."""

    def __init__(
        self, workload: Workload, definition: Definition, place: Place, findings: Findings
    ) -> None:
        self._workload, self._definition = workload, definition
        self._place, self._findings = place, findings

    def check(self) -> None:
        axes_fit = self._check_axes()
        self._check_dtypes()
        self._check_inputs()
        if axes_fit:
            self._check_expressions()

    def _wrong(self, key: str, message: str, mend: str = "") -> None:
        text = f"workload {self._workload.name!r} of {self._definition.name}: {message}"
        self._findings.at((*self._place, key), "workload", text, mend)

    def _check_axes(self) -> bool:
        wanted = {name for name, axis in self._definition.axes.items() if isinstance(axis, VarAxis)}
        given = self._workload.axes
        missing, unknown = wanted - given.keys(), given.keys() - wanted
        if missing:
            self._wrong("axes", f"gives no value for {_listed(missing)}", "add it to `axes`")
        if unknown:
            self._wrong(
                "axes", f"gives {_listed(unknown)}, no variable axis", f"known: {_listed(wanted)}"
            )
        negative = [name for name, value in given.items() if value < 0]
        if negative:
            self._wrong("axes", f"{negative[0]} is negative")
        # torch takes sizes of 64 bits
        large = [name for name, value in given.items() if value >= 2**63]
        if large:
            self._wrong("axes", f"{large[0]} is {given[large[0]]}", "a size is below 2**63")
        return not (missing or unknown or negative or large)

    def _check_dtypes(self) -> None:
        legal, given = self._definition.dtypes, self._workload.dtypes
        if missing := legal.keys() - given.keys():
            self._wrong("dtypes", f"gives no dtype for {_listed(missing)}", "add it to `dtypes`")
        for name, dtype in given.items():
            if name not in legal:
                self._wrong("dtypes", f"{name!r} is no type variable of the definition")
            elif dtype not in legal[name]:
                self._wrong(
                    "dtypes",
                    f"{name} is {dtype!r}",
                    f"the definition takes {', '.join(legal[name])}",
                )

    def _check_inputs(self) -> None:
        inputs = self._definition.inputs
        for name, item in self._workload.inputs.items():
            if name not in inputs:
                self._wrong("inputs", f"{name!r} is no input", f"known: {', '.join(inputs)}")
            elif (inputs[name].shape is None) != isinstance(item, ScalarInput):
                kind = "a scalar" if inputs[name].shape is None else "a tensor"
                self._wrong("inputs", f"{name!r} is {kind}, and its type here is {item.type!r}")
        if self._workload.generator is None:
            for name, spec in self._definition.scalar_inputs.items():
                if spec.default is None and name not in self._workload.inputs:
                    self._wrong(
                        "inputs", f"gives no value for the scalar {name!r}", "add it to `inputs`"
                    )

    def _check_expressions(self) -> None:
        definition = self._definition
        names = shape_of_workload(definition, self._workload).names
        for constraint in definition.constraints:
            if self._value(constraint, names) is False:
                self._wrong("axes", f"breaks the constraint `{constraint}`", "choose other values")
        for label, text in (("flops", definition.flops), ("bytes_moved", definition.bytes_moved)):
            value = self._value(text, names) if text else 0
            if value is not None and not (isinstance(value, int | float) and value >= 0):
                self._wrong("axes", f"{label} is {value!r}", "it is a number, 0 or more")
        for name, item in self._workload.inputs.items():
            if isinstance(item, IntegerInput):
                high = self._value(item.high, names)
                if isinstance(high, int | float) and high <= item.low:
                    self._wrong(
                        "inputs", f"{name!r} draws from the empty range [{item.low}, {high})"
                    )

    def _value(self, text: str, names: dict[str, Any]) -> Any:
        try:
            return evaluate(text, names)
        except InvalidPackage as error:
            self._wrong("definition", str(error))
            return None


# --- variants ---------------------------------------------------------------------------------


def _check_variant(manifest: Manifest, variant: Variant, place: Place, findings: Findings) -> None:
    definition = manifest.definition_named(variant.definition)
    for key, message, mend in (
        *_arch_faults(variant),
        *_range_faults(variant),
        *_dtype_faults(variant, definition),
        *_parameter_faults(variant),
        *_constraint_faults(variant, definition),
    ):
        text = f"variant {variant.id!r} of {definition.name}: {message}"
        findings.at((*place, key), "variant", text, mend)


Fault = tuple[str, str, str]
"""Key of the variant, message, mend."""


def _arch_faults(variant: Variant) -> Iterator[Fault]:
    for arch in variant.archs:
        plain = re.sub(r"^(sm_\d+)[af]$", r"\1", arch)
        if plain not in _ARCHS and arch not in _plug_ins():
            yield "archs", f"{arch!r} is no architecture", _right_arch(arch)


@functools.cache
def _plug_ins() -> frozenset[str]:
    """Backends that other distributions have registered with Triton; each is an architecture by its name."""
    return frozenset(entry.name for entry in entry_points(group="triton.backends")) - {
        "nvidia",
        "amd",
    }


def _right_arch(arch: str) -> str:
    if target := load_targets().get(arch.lower()):
        return f"{arch} is a chip; its architecture is {target.arch}"
    near = get_close_matches(arch, _ARCHS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else ""
    return hint or "name it exactly: sm_90, gfx942, or any"


def _range_faults(variant: Variant) -> Iterator[Fault]:
    for package, text in variant.requires.model_dump().items():
        try:
            SpecifierSet(text)
        except InvalidSpecifier:
            yield "requires", f"{package} range {text!r} does not parse", "write it like >=3.6,<3.8"


def _dtype_faults(variant: Variant, definition: Definition) -> Iterator[Fault]:
    for name, dtypes in variant.dtypes.items():
        if name not in definition.dtypes:
            yield "dtypes", f"{name!r} is no type variable of the definition", ""
        elif extra := set(dtypes) - set(definition.dtypes[name]):
            yield (
                "dtypes",
                f"takes {name} in {_listed(extra)}, and the definition does not",
                "add it there first",
            )


def _parameter_faults(variant: Variant) -> Iterator[Fault]:
    for name, values in variant.parameters.items():
        if not _TUNING_NAME.fullmatch(name):
            yield (
                "parameters",
                f"{name!r} is not in capitals",
                "tuning parameters are keyword-only, in capitals",
            )
        if not values:
            yield "parameters", f"{name!r} has no values", "list those worth a search"


def _constraint_faults(variant: Variant, definition: Definition) -> Iterator[Fault]:
    """Evaluate on made-up values, to find what does not parse or names something unknown."""
    unset = {name: 1 for name, spec in definition.scalar_inputs.items() if spec.default is None}
    names = shape_of(definition, dict.fromkeys(definition.axes, 64), scalars=unset).names
    tuned = {**names, **{name: values[0] for name, values in variant.parameters.items() if values}}
    for key, constraints, known in (
        ("constraints", variant.constraints, names),
        ("parameter_constraints", variant.parameter_constraints, tuned),
    ):
        for constraint in constraints:
            try:
                evaluate(constraint, known)
            except InvalidPackage as error:
                yield key, str(error), ""
