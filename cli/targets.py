"""`skills targets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kernel_skills.cli.options import AsJson

if TYPE_CHECKING:
    from kernel_skills.executor.targets import Rate, Target


def targets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Chip to show in full.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the known chips, or show one with its sources.

    Example: skills targets h200
    """
    from kernel_skills.cli.console import print_json
    from kernel_skills.executor.targets import find_target, load_targets

    if name is not None:
        target = find_target(name)
        print_json(target) if as_json else _show(target)
    elif as_json:
        print_json(list(load_targets().values()))
    else:
        _list(list(load_targets().values()))


def _list(known: list[Target]) -> None:
    from kernel_skills.cli.console import print_line, print_table

    columns = ("name", "chip", "arch", "SMs", "memory GB", "GB/s", "bf16 TFLOP/s", "fp32 TFLOP/s")
    rows = [
        (
            target.name,
            target.title,
            target.arch,
            target.multiprocessors,
            f"{target.memory_bytes / 1e9:.0f}",
            _rate(target.gbps),
            _rate(target.tflops("bfloat16")),
            _rate(target.tflops("vector-float32") or target.tflops("float32")),
        )
        for target in known
    ]
    print_table(columns, rows, right=columns[3:])
    print_line()
    print_line(
        "measured ceilings where there are any, else the data sheet; `skills targets NAME` gives the sources"
    )


def _rate(rate: Rate | None) -> str:
    return f"{rate.value:g}" if rate else ""


def _show(target: Target) -> None:
    from kernel_skills.cli.console import print_fields, print_line, print_table

    print_line(f"{target.name}: {target.title}")
    print_line()
    print_fields(
        (
            ("architecture", f"{target.arch} ({target.backend})"),
            ("multiprocessors", target.multiprocessors),
            ("threads in a warp", target.warp_size),
            ("warps per multiprocessor", target.max_warps_per_multiprocessor),
            ("blocks per multiprocessor", target.max_blocks_per_multiprocessor),
            ("registers per multiprocessor", target.registers_per_multiprocessor),
            ("registers per thread", target.max_registers_per_thread),
            ("shared memory per multiprocessor", f"{target.shared_bytes_per_multiprocessor} bytes"),
            ("shared memory per block", f"{target.shared_bytes_per_block} bytes"),
            ("L2 cache", f"{target.l2_bytes} bytes"),
            ("device memory", f"{target.memory_bytes} bytes"),
            ("driver names", ", ".join(target.device_names)),
        )
    )
    print_line()
    rows: list[tuple[str, str, str, str]] = []
    for kind, tflops, gbps in (
        ("data sheet", target.peak_tflops, target.peak_gbps),
        ("measured", target.measured_tflops, target.measured_gbps),
    ):
        rows += [
            (f"{dtype} TFLOP/s", kind, f"{rate.value:g}", rate.source)
            for dtype, rate in tflops.items()
        ]
        if gbps is not None:
            rows.append(("memory GB/s", kind, f"{gbps.value:g}", gbps.source))
    print_table(("rate", "kind", "value", "source"), rows, right=("value",))
