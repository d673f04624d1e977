"""Decide between the fastest configurations of a search and the entry's own default. Knows nothing of GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernel_skills.executor.models import Record
from kernel_skills.registry.tune_search import Config, Measure, Reading, Trial

_SMALLEST_GAIN = 0.01
"""A gain below 1 % is not worth a configuration of one's own: two runs of one kernel differ by as much."""
_CANDIDATES = 5
"""Fastest configurations that are measured again, until one stands."""


class Verified(Record):
    """A smoke or edge workload run with the winner's configuration."""

    workload: str
    status: str
    log: str = ""

    @property
    def fine(self) -> bool:
        return self.status in ("PASSED", "SKIPPED")


Verify = Callable[[Config], Sequence[Verified]]


class Pick(Record):
    """The decision, and what it rests on."""

    winner: Trial | None
    """With the slower of its readings; None: the default is kept."""
    default: tuple[Reading, ...]
    """Before the search and after it."""
    dropped: tuple[Trial, ...] = ()
    """Fast at first, but not again, or not right."""
    verified: tuple[Verified, ...] = ()
    reason: str


def pick_winner(
    ranked: Sequence[Trial], default: Reading, measure: Measure, verify: Verify
) -> Pick:
    """Measure the default and the fastest once more, side by side, and verify what is about to be kept.

    The winner's slower reading must beat the default's faster one by more than noise.

    Args:
        ranked: measured configurations, fastest first.
        default: the reading of the default from before the search.
    """
    defaults = (default, measure({}))
    limit, words = _limit(defaults)
    dropped: list[Trial] = []
    for trial in ranked[:_CANDIDATES]:
        if trial.median_ms >= limit:
            break
        again = measure(trial.config)
        second = Trial(config=trial.config, reading=again)
        if not again.good:
            dropped.append(second)
            continue
        slower = max(trial, second, key=lambda reading: reading.median_ms)
        if slower.median_ms >= limit:
            reason = (
                f"{trial.median_ms:.4g} ms at first, {again.median_ms:.4g} ms when measured again"
            )
            dropped.append(_with_reason(slower, "NOT_REPEATED", reason))
            continue
        verified = tuple(verify(trial.config))
        wrong = next((item for item in verified if not item.fine), None)
        if wrong is None:
            reason = f"{slower.median_ms:.4g} ms against {words}"
            return Pick(
                winner=slower,
                default=defaults,
                dropped=tuple(dropped),
                verified=verified,
                reason=reason,
            )
        dropped.append(_with_reason(slower, wrong.status, f"{wrong.workload}: {wrong.log}"))
    reason = f"no configuration beats {words} by more than noise"
    if not ranked:
        reason = "no configuration could be measured"
    return Pick(winner=None, default=defaults, dropped=tuple(dropped), reason=reason)


def _limit(defaults: Sequence[Reading]) -> tuple[float, str]:
    """Return what a winner's median must stay below, and the default in words."""
    good = [reading for reading in defaults if reading.good]
    medians = [reading.median_ms for reading in good if reading.median_ms is not None]
    if not medians:
        return float("inf"), f"a default that fails ({defaults[0].status})"
    fastest = min(medians)
    spreads = [((r.p80_ms or 0) - (r.p20_ms or 0)) / 2 for r in good]
    noise = max(_SMALLEST_GAIN * fastest, *spreads)
    return fastest - noise, f"the default's {fastest:.4g} ms (noise {noise:.2g} ms)"


def _with_reason(trial: Trial, status: str, reason: str) -> Trial:
    reading = trial.reading.model_copy(update={"status": status, "reason": reason})
    return Trial(config=trial.config, reading=reading)
