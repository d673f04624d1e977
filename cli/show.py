"""`skills show`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from kernel_skills.cli.options import AnyTarget, AsJson, SkillName
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.models import TensorSpec
    from kernel_skills.registry.choices import Choices
    from kernel_skills.registry.figures import Figure
    from kernel_skills.registry.models import Skill


def show(
    context: typer.Context, name: SkillName, target: AnyTarget = None, as_json: AsJson = False
) -> None:
    """Show a skill: contract, variants, workloads, evidence.

    With --target also which variant would run there, and why each other one would not.

    Example: skills show flash-attn --target h100
    """
    from kernel_skills.cli.console import print_json
    from kernel_skills.executor.targets import find_target
    from kernel_skills.executor.toolchain import installed_toolchain
    from kernel_skills.registry.choices import choices_for
    from kernel_skills.registry.digest import root_digest
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.evidence import evidence_of
    from kernel_skills.registry.figures import figures_of

    skill = find_skill(name, settings_of(context).skills_dir)
    choices = choices_for(skill, find_target(target), installed_toolchain()) if target else None
    figures = figures_of(skill)
    digest = root_digest(skill.path)
    if as_json:
        print_json(
            {
                "manifest": skill.manifest,
                "description": skill.description,
                "source": skill.source,
                "path": str(skill.path),
                "root_digest": digest,
                "figures": figures,
                "traces": sum(1 for _ in evidence_of(skill)),
                "choices": choices,
            }
        )
        return
    _print_head(skill, digest)
    _print_contract(skill)
    _print_variants(skill)
    _print_workloads(skill)
    if skill.manifest.variant:
        _print_figures(figures, sum(1 for _ in evidence_of(skill)))
    if choices is not None:
        _print_choices(choices)


def _print_head(skill: Skill, digest: str) -> None:
    from kernel_skills.cli.console import print_fields, print_line

    manifest = skill.manifest
    print_line(f"{skill.name} {skill.version}: {manifest.summary}")
    print_line()
    print_fields(
        (
            ("kind", manifest.kind),
            ("patterns", ", ".join(manifest.patterns)),
            ("level", f"{manifest.level} of 5"),
            ("read first", ", ".join(manifest.prerequisites)),
            (
                "needs",
                ", ".join(f"{name} {wanted}" for name, wanted in manifest.dependencies.items()),
            ),
            ("licence", manifest.license),
            ("authors", ", ".join(manifest.authors)),
            ("from", f"{skill.source}, {skill.path}"),
            ("root digest", digest),
        )
    )


def _print_contract(skill: Skill) -> None:
    from kernel_skills.cli.console import print_fields, print_line

    for definition in skill.manifest.definition:
        print_line()
        print_line(f"definition {definition.name}: {definition.description}")
        dtypes = [f"{name} in {', '.join(taken)}" for name, taken in definition.dtypes.items()]
        inputs = [f"  {name}" for name in definition.inputs]
        outputs = [f"  -> {name}" for name in definition.outputs]
        specs = [
            _spec(spec) for spec in (*definition.inputs.values(), *definition.outputs.values())
        ]
        print_fields(
            (
                *zip([*inputs, *outputs], specs, strict=True),
                ("  where", "; ".join([*dtypes, *definition.constraints])),
                ("  flops", definition.flops),
                ("  gradient", definition.gradient.definition if definition.gradient else ""),
            )
        )


def _spec(spec: TensorSpec) -> str:
    shape = "scalar" if spec.shape is None else f"({', '.join(spec.shape)})"
    default = "" if spec.default is None else f" = {spec.default}"
    words = f"  {spec.description}" if spec.description else ""
    return f"{shape} {spec.dtype}{default}{words}"


def _print_variants(skill: Skill) -> None:
    from kernel_skills.cli.console import print_line, print_table

    rows = [
        (
            variant.definition,
            variant.id,
            ", ".join(variant.archs),
            "; ".join(", ".join(taken) for taken in variant.dtypes.values()) or "all",
            ", ".join(f"{k} {v}" for k, v in variant.requires.model_dump().items() if v),
            variant.description,
        )
        for variant in skill.manifest.variant
    ]
    if rows:
        print_line()
        print_table(
            ("definition", "variant", "architectures", "dtypes", "toolchain", "about"), rows
        )


def _print_workloads(skill: Skill) -> None:
    from kernel_skills.cli.console import print_line, print_table

    rows = [
        (
            workload.definition,
            workload.name,
            workload.purpose,
            ", ".join(f"{name}={size}" for name, size in workload.axes.items()),
            ", ".join(workload.dtypes.values()),
        )
        for workload in skill.manifest.workload
    ]
    if rows:
        print_line()
        print_table(("definition", "workload", "purpose", "axes", "dtypes"), rows)


def _print_figures(figures: tuple[Figure, ...], traces: int) -> None:
    from kernel_skills.cli.console import print_line, print_table

    print_line()
    if not figures:
        print_line(
            f"evidence: {traces} traces, none of them a measurement of the variants as they are now"
        )
        return
    print_line(f"evidence: {traces} traces; newest measurements")
    columns = (
        "definition",
        "workload",
        "variant",
        "on",
        "median ms",
        "reached",
        "ratio",
        "against",
    )
    rows = [
        (
            figure.definition,
            figure.workload,
            figure.variant,
            figure.hardware,
            f"{figure.latency_ms:.4f}",
            figure.headline,
            f"{figure.ratio:.2f}" if figure.ratio is not None else "",
            figure.rival,
        )
        for figure in figures
    ]
    print_table(columns, rows, right=("median ms", "ratio"))


def _print_choices(choices: Choices) -> None:
    from kernel_skills.cli.console import print_line

    versions = ", ".join(f"{name} {version}" for name, version in choices.toolchain.items())
    print_line()
    print_line(f"on {choices.target} ({choices.arch}) with {versions or 'no torch and no triton'}")
    for choice in choices.definitions:
        chosen: Any = choice.chosen or "none"
        why = f" ({choice.reason})" if choice.reason else ""
        print_line(f"  {choice.definition}: {chosen}{why}")
        for rejected in choice.rejected:
            print_line(f"    not {rejected.variant}: {rejected.reason}")
