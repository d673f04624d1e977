"""A second clock, in a process that the candidate cannot reach: does it agree with the times that the candidate reports?

The candidate's process measures itself with events and may lie. The task worker measures how long its answers take, on
its own clock; every answer comes after a wait for the whole device, so work on other streams is in it. The reported
figure stays the events' own: this clock also sees the host and the channel, and only bounds the lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

ROUND_SLACK_MS = 0.5
"""A round's answer crosses a socket and two schedulers, and the host makes an event per call."""
CALL_SLACK_MS = 0.75
"""What the host does for a call and the head start does not hide: a layer norm whose outputs of 268 MB are allocated
anew took 0.45 to 0.7 ms a call more than its events said (H200)."""
_EVENTS_SLACK = 0.35
"""Share of the reported time: clocks that fall under load, and what else the host does between two calls."""
GRAPH_SLACK_MS = 0.03
"""Between two replays of a graph the device waits for the host, 5 to 20 us."""
_GRAPH_SLACK = 0.6
_LEAST_MS = 4.0
"""What the longer of two batches of replays should take, so that the channel's noise is small beside it."""
MOST_REPLAYS = 400


@dataclass(frozen=True)
class Round:
    """One answer: milliseconds on our clock, and the sum of the times that it reports."""

    wall_ms: float
    reported_ms: float
    empty_ms: float
    """On our clock, an answer without calls right after."""
    calls: int = 1


def events_disagree(rounds: Sequence[Round]) -> str:
    """Return how far reported times fall short of our clock, or nothing."""
    if not rounds:
        return ""
    reported = median(one.reported_ms for one in rounds)
    seen = median(one.wall_ms for one in rounds) - median(one.empty_ms for one in rounds)
    slack = ROUND_SLACK_MS + CALL_SLACK_MS * max(one.calls for one in rounds)
    if seen <= reported * (1 + _EVENTS_SLACK) + slack:
        return ""
    return f"rounds that report {reported:.4g} ms take {seen:.4g} ms on a clock outside of the candidate's process"


def replays_for(reported_ms: float) -> int:
    """Return how often a graph is replayed in the shorter batch, by the time that one replay is said to take."""
    return max(1, min(MOST_REPLAYS, round(_LEAST_MS / 2 / max(reported_ms, 1e-4))))


def replays_disagree(
    shorter_ms: Sequence[float], longer_ms: Sequence[float], replays: int, reported_ms: float
) -> str:
    """Return how far the reported time of a replay falls short of our clock, or nothing.

    Args:
        shorter_ms, longer_ms: our times for batches of `replays` and of twice as many.
        reported_ms: of one replay.
    """
    # the shortest of each: whatever disturbs a batch makes it longer
    seen = (min(longer_ms) - min(shorter_ms)) / replays
    noise = ROUND_SLACK_MS / replays
    if seen <= reported_ms * (1 + _GRAPH_SLACK) + GRAPH_SLACK_MS + noise:
        return ""
    return f"replays that report {reported_ms:.4g} ms take {seen:.4g} ms on a clock outside of the candidate's process"
