"""The nouns of packages: manifest, variant, template, problem, and a skill as loaded from its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from kernel_skills.executor.errors import NotFound
from kernel_skills.executor.models import Definition, EntryPoint, Name, Record, Scalar, Workload
from kernel_skills.registry.version import Version

Pattern = Literal["locality", "fusion", "pipelining", "memory-hierarchy", "parallelism", "sparsity"]
Kind = Literal["operator", "application", "pattern", "hardware"]


def _parse_version(value: Any) -> Any:
    return Version(value) if isinstance(value, str) else value


VersionField = Annotated[
    InstanceOf[Version], BeforeValidator(_parse_version), PlainSerializer(str, return_type=str)
]


class Toolchain(Record):
    """Ranges in the notation of PEP 440, e.g. `>=3.6,<3.8`; empty means any."""

    triton: str = ""
    torch: str = ""


class Variant(Record):
    """One kernel implementation of one Definition, for the architectures it names exactly."""

    id: Name
    definition: Name
    entry: EntryPoint
    files: tuple[str, ...] = ()
    """Further files of the package that the entry imports; the entry's own file is always one of them."""
    archs: tuple[str, ...] = Field(min_length=1)
    """`sm_90` is not `sm_100`. `any` is every architecture that Triton compiles for."""
    dtypes: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """Type variable -> dtypes taken; default: all of the Definition's."""
    requires: Toolchain = Toolchain()
    constraints: tuple[str, ...] = ()
    """Over axes and scalar inputs, beyond the Definition's own."""
    parameters: Mapping[str, tuple[Scalar, ...]] = Field(default_factory=dict)
    """Tuning parameters of the entry (keyword-only, default None) and the values worth a search."""
    parameter_constraints: tuple[str, ...] = ()
    """Over parameters, axes and scalar inputs: combinations worth a search."""
    preference: int = 0
    """Between variants that fit and have no evidence on the device, the higher is taken."""
    interpretable: bool = True
    """Runs under Triton's interpreter (Gluon and descriptors made on the device do not)."""
    description: str = ""


class GraphPattern(Record):
    """A graph shape that a template can implement: operators in order, and what varies."""

    operators: tuple[str, ...]
    description: str = ""


class Template(Record):
    """A parameterised kernel source (Jinja2) with its search space."""

    id: Name
    definition: Name
    path: str
    entry: str
    """Name of the function that the filled source defines."""
    parameters: Mapping[str, tuple[Scalar, ...]] = Field(default_factory=dict)
    defaults: Mapping[str, Scalar] = Field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    implements: tuple[GraphPattern, ...] = ()
    archs: tuple[str, ...] = ("any",)
    description: str = ""


class Capabilities(Record):
    """What the package's code may do; everything is off unless asked for."""

    gpu: bool = True
    network: bool = False
    filesystem: bool = False
    subprocess: bool = False


class ExampleQueries(Record):
    """A self-test of retrieval, never indexed."""

    en: tuple[str, ...] = ()
    zh: tuple[str, ...] = ()


class Manifest(Record):
    """`skill.toml`: everything typed about a skill."""

    schema_version: Literal[1] = 1
    name: Name
    version: VersionField
    kind: Kind
    summary: str = Field(max_length=300)
    license: str = "Apache-2.0"
    authors: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    level: int = Field(default=1, ge=1, le=5)
    """Place in the graded course: 1 first kernel, 5 research."""
    prerequisites: tuple[Name, ...] = ()
    dependencies: Mapping[str, str] = Field(default_factory=dict)
    """Skill -> semver range."""
    capabilities: Capabilities = Capabilities()
    example_queries: ExampleQueries = ExampleQueries()
    definition: tuple[Definition, ...] = ()
    workload: tuple[Workload, ...] = ()
    variant: tuple[Variant, ...] = ()
    template: tuple[Template, ...] = ()

    @model_validator(mode="after")
    def _references_resolve(self) -> Manifest:
        problems = list(self._unresolved())
        if problems:
            # read by `registry.manifest`, which gives each its line
            raise PydanticCustomError(
                "references", "{first}", {"first": problems[0][1], "problems": problems}
            )
        return self

    def _unresolved(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Yield where and why the manifest's parts do not fit together."""
        names: set[str] = set()
        for index, definition in enumerate(self.definition):
            if definition.name in names:
                yield (
                    ("definition", index, "name"),
                    f"two definitions are called {definition.name!r}",
                )
            names.add(definition.name)
        for kind in ("workload", "variant", "template"):
            seen: set[tuple[str, str]] = set()
            for index, item in enumerate(getattr(self, kind)):
                key = "name" if kind == "workload" else "id"
                label = getattr(item, key)
                if item.definition not in names:
                    reason = f"{kind} {label!r} names the unknown definition {item.definition!r}"
                    yield (kind, index, "definition"), reason
                if (item.definition, label) in seen:
                    yield (
                        (kind, index, key),
                        f"two {kind}s of {item.definition!r} are called {label!r}",
                    )
                seen.add((item.definition, label))
        if self.kind == "operator" and not (self.definition and self.variant):
            yield ("kind",), "an operator skill needs at least one definition and one variant"

    def definition_named(self, name: str) -> Definition:
        """Return a Definition.

        Raises:
            NotFound: no such one; close names are offered.
        """
        known = {definition.name: definition for definition in self.definition}
        if name not in known:
            raise NotFound.named(f"definition in {self.name}", name, known)
        return known[name]


class Problem(Record):
    """One way in which a package breaks its contract."""

    path: str
    line: int | None = None
    rule: str
    """A stable word for programs."""
    message: str
    mend: str = ""

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.message}" + (f"; {self.mend}" if self.mend else "")


class Skill(Record):
    """A package as loaded from its folder."""

    manifest: Manifest
    path: Path
    source: str
    """Where it was found: `--skills-dir`, `KERNEL_SKILLS_PATH`, `project`, `home` or `shipped`."""
    description: str
    """From the front matter of SKILL.md."""

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> Version:
        return self.manifest.version
