"""Name what holds a kernel back, from its counters alone."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_skills.executor.profile import Bottleneck, BottleneckKind, Counters, Stall

_SPILLING = 5.0
"""Percent of instructions that touch local memory: spills on a cold path stay below."""
_SCATTERED = 50.0
"""Percent of the loaded bytes that were asked for: below, half of the traffic is waste."""
_FEW_WAVES = 1.0
_LOW_OCCUPANCY = 25.0
_SATURATED: tuple[tuple[BottleneckKind, str, str, float], ...] = (
    # a device copy reaches 89 % of the data sheet's DRAM rate on an H200, so 70 is near the top
    ("memory-bound", "dram_percent", "DRAM", 70.0),
    ("l2-bound", "l2_percent", "L2", 75.0),
    ("tensor-bound", "tensor_percent", "tensor pipe", 70.0),
    ("mufu-bound", "mufu_percent", "MUFU", 70.0),
    ("issue-bound", "issue_percent", "issue slots", 75.0),
)
"""(kind, counter, its name, percent from which the unit counts as full)."""
_NOT_WAITING = ("selected", "not_selected")
"""States of a warp that could issue."""


def find_bottleneck(counters: Counters, stalls: Sequence[Stall]) -> Bottleneck:
    """Return the bottleneck: waste first (spills, scattered loads), then the fullest unit, else latency."""
    numbers = _numbers(counters)
    if not numbers:
        return Bottleneck(kind="unknown", text="unknown: no counter could be read")
    if (counters.spill_percent or 0) >= _SPILLING:
        what = f"{counters.spill_percent:.1f} % of the instructions touch local memory"
        if counters.registers:
            what += f", {counters.registers} registers a thread"
        return _worded("spills", [what, *numbers])
    scattered = counters.coalesced_percent is not None and counters.coalesced_percent < _SCATTERED
    if scattered and _memory_matters(counters, stalls):
        what = f"{counters.coalesced_percent:.0f} % of the bytes that loads fetched were asked for"
        return _worded("uncoalesced", [what, *numbers])
    kind = _fullest(counters)
    if kind is not None:
        return _worded(kind, numbers)
    return _worded("latency-bound", [*_latency_words(counters, stalls), *numbers])


def _worded(kind: BottleneckKind, parts: Sequence[str]) -> Bottleneck:
    return Bottleneck(kind=kind, text=f"{kind}: {', '.join(parts)}")


def _numbers(counters: Counters) -> list[str]:
    """Return the shares that were read, fullest first: they show why it is this one and no other."""
    shares = [
        (value, name)
        for _, field, name, _ in _SATURATED
        if (value := getattr(counters, field)) is not None
    ]
    shown = [f"{name} {value:.1f} %" for value, name in sorted(shares, reverse=True)]
    if counters.occupancy_percent is not None:
        shown.append(f"occupancy {counters.occupancy_percent:.0f} %")
    return shown


def _fullest(counters: Counters) -> BottleneckKind | None:
    scores = [
        (value / full, kind)
        for kind, field, _, full in _SATURATED
        if (value := getattr(counters, field)) is not None and value >= full
    ]
    return max(scores, key=lambda score: score[0])[1] if scores else None


def _memory_matters(counters: Counters, stalls: Sequence[Stall]) -> bool:
    """Tell whether loads are what the kernel spends its time on."""
    busy = max(counters.dram_percent or 0, counters.l2_percent or 0, counters.l1_percent or 0)
    top = top_stall(stalls)
    waits = top is not None and top.reason in ("long_scoreboard", "lg_throttle")
    return busy >= 60 or waits


def _latency_words(counters: Counters, stalls: Sequence[Stall]) -> list[str]:
    words = []
    if counters.waves is not None and counters.waves < _FEW_WAVES:
        words.append(f"{counters.waves:.2f} waves leave multiprocessors without work")
    if counters.occupancy_percent is not None and counters.occupancy_percent < _LOW_OCCUPANCY:
        limit = counters.occupancy_limit_percent
        words.append(f"few warps to hide latency (limit {limit:.0f} %)" if limit else "few warps")
    if top := top_stall(stalls):
        words.append(f"{top.warps:.1f} warps wait for {top.reason}")
    return words or ["no unit is full"]


def top_stall(stalls: Sequence[Stall]) -> Stall | None:
    """Return the largest reason to wait; being ready and not picked is none."""
    waiting = [stall for stall in stalls if stall.reason not in _NOT_WAITING]
    return max(waiting, key=lambda stall: stall.warps, default=None)
