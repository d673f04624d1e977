"""`skills profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.console import print_fields, print_json, print_line, print_table, progress
from kernel_skills.cli.options import (
    AsJson,
    DefinitionName,
    DeviceIndex,
    Seconds,
    SkillName,
    TargetName,
    VariantName,
    WorkloadName,
)
from kernel_skills.cli.settings import settings_of

if TYPE_CHECKING:
    from kernel_skills.executor.profile import AnalyticProfile, CounterProfile, KernelProfile
    from kernel_skills.executor.trace import KernelReport
    from kernel_skills.registry.profile_skill import SkillProfile, WorkloadProfile


def profile(
    context: typer.Context,
    name: SkillName,
    target: TargetName,
    workload: WorkloadName = "",
    definition: DefinitionName = "",
    variant: VariantName = "",
    compiled: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Also compile, for registers and spills.")
    ] = True,
    device: DeviceIndex = 0,
    timeout: Seconds = 120.0,
    as_json: AsJson = False,
) -> None:
    """Say what holds a skill's kernels back: GPU counters by ncu, or the analytic roofline.

    Example: skills profile flash-attn --target h100 --workload d128-full

    With a fitting NVIDIA GPU and `ncu` (Nsight Compute), counters of one call are read, a few seconds for each
    workload; clocks are left alone. Elsewhere the roofline is counted from the definition, and says so.
    """
    from kernel_skills.executor.targets import find_target
    from kernel_skills.registry.discovery import find_skill
    from kernel_skills.registry.profile_skill import ProfileOptions, profile_skill

    chip = find_target(target)
    skill = find_skill(name, settings_of(context).skills_dir)
    options = ProfileOptions(
        workload=workload, definition=definition, variant=variant, device=device, compiled=compiled,
        timeout_s=timeout,
    )  # fmt: skip
    with progress(f"{skill.name} for {chip.name}", as_json=as_json) as display:

        def report(stage: str, done: int, total: int, what: str) -> None:
            display.describe(f"{stage} {done}/{total} {what}")

        found = profile_skill(skill, chip, options, report)
    if as_json:
        print_json(found)
    else:
        _print(found)


def _print(found: SkillProfile) -> None:
    why = found.why_no_counters
    here = (
        f"no counters: {why}; everything below is counted, not measured"
        if why
        else "counters by ncu"
    )
    if found.device and not why:
        here += f" on {found.device.hardware}, clocks left alone"
    print_fields(
        [
            ("skill", f"{found.skill} {found.version}"),
            ("target", f"{found.target.name}: {found.target.title}, {found.target.arch}"),
            ("here", here),
        ]
    )
    for profile_ in found.profiles:
        _print_workload(profile_)


def _print_workload(found: WorkloadProfile) -> None:
    config = ", ".join(f"{key}={value}" for key, value in found.config.items())
    print_line()
    print_line(
        f"{found.definition}, variant {found.variant}, {found.workload}{f', {config}' if config else ''}"
    )
    print_line(f"  {found.bottleneck}")
    if found.note:
        print_line(f"  {'counters: ' if found.counters is None else ''}{found.note}")
    if found.counters is not None:
        _print_counters(found.counters)
    _print_analytic(found.analytic)


# --- counters ---------------------------------------------------------------------------------

_HEADS = (
    "kernel", "us", "DRAM %", "L2 %", "L2 hit %", "L1 hit %", "tensor %", "MUFU %", "issue %", "occ %", "regs",
    "waves", "most stalls (warps)",
)  # fmt: skip


def _print_counters(found: CounterProfile) -> None:
    print_table(_HEADS, [_kernel_row(kernel) for kernel in found.kernels], right=_HEADS[1:-1])
    if len(found.kernels) > 1:
        for kernel in found.kernels:
            print_line(f"  {kernel.kernel}: {kernel.bottleneck.text}")
    if found.missing:
        print_line(f"  not read: {', '.join(found.missing)}")


def _kernel_row(kernel: KernelProfile) -> tuple[object, ...]:
    c = kernel.counters
    shares = (
        c.dram_percent, c.l2_percent, c.l2_hit_percent, c.l1_hit_percent, c.tensor_percent, c.mufu_percent,
        c.issue_percent, c.occupancy_percent,
    )  # fmt: skip
    stalls = ", ".join(f"{stall.reason} {stall.warps:.1f}" for stall in kernel.stalls[:3])
    return (
        kernel.kernel, _number(c.duration_us, 2), *(_number(share, 1) for share in shares), c.registers,
        _number(c.waves, 2), stalls,
    )  # fmt: skip


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


# --- analytic ---------------------------------------------------------------------------------


def _print_analytic(found: AnalyticProfile) -> None:
    ceilings = f"{found.ceiling_gbps:.0f} GB/s"
    if found.ceiling_tflops is not None:
        ceilings = f"{found.ceiling_tflops:.0f} TFLOP/s, {ceilings}"
    rows = [
        ("  work", f"{found.flops / 1e9:.4g} GFLOP, {found.bytes_moved / 1e6:.4g} MB (analytic)"),
        ("  intensity", f"{found.intensity:.3g} FLOP/byte{_ridge(found.ridge)} (analytic)"),
        (
            "  bound",
            f"{found.bound_ms:.4g} ms, limited by {found.limited_by}, ceilings {ceilings} (analytic)",
        ),
        ("  evidence", _evidence(found)),
    ]
    print_fields([*rows, *(("  compiled", _compiled(report)) for report in found.kernels)])


def _ridge(ridge: float | None) -> str:
    return "" if ridge is None else f"; ridge at {ridge:.3g}"


def _evidence(found: AnalyticProfile) -> str:
    quoted = found.quoted
    if quoted is None:
        return "none on this architecture: nothing is known of its speed"
    return (
        f"{quoted.percent_of_bound:.1f} % of the bound of {quoted.target}, {quoted.latency_ms:.4g} ms "
        f"(measured on {quoted.hardware}, {quoted.when:%Y-%m-%d})"
    )


def _compiled(report: KernelReport) -> str:
    parts = [f"{report.kernel}: {report.num_warps} warps"]
    if report.registers is not None:
        parts.append(f"{report.registers} registers")
    if report.spill_bytes:
        parts.append(f"{report.spill_bytes} bytes spilled")
    parts.append(f"{report.shared_bytes} bytes shared")
    if report.occupancy is not None:
        parts.append(f"occupancy {100 * report.occupancy:.0f} % by {report.limited_by}")
    return ", ".join([*parts, *report.warnings])
