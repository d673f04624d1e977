"""The second clock: honest times pass with all the noise of a host, lies do not."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_skills.executor.external_clock import (
    MOST_REPLAYS,
    Round,
    events_disagree,
    replays_disagree,
    replays_for,
)

PAUSE_MS = 2.0
"""The head start of a round, in both kinds of round."""


def rounds(true_ms: float, reported_ms: float, dice: random.Random, count: int = 8) -> list[Round]:
    """Return rounds on a host where an answer takes 50 to 200 us, and now and then a millisecond more."""

    def noise() -> float:
        return dice.uniform(0.05, 0.2) + (dice.random() < 0.15) * dice.uniform(0, 1.0)

    return [
        Round(PAUSE_MS + true_ms + noise(), reported_ms, PAUSE_MS + noise()) for _ in range(count)
    ]


@settings(deadline=None)
@given(st.floats(0.01, 500), st.integers(0, 2**32))
def test_an_honest_round_is_never_doubted(true_ms: float, seed: int) -> None:
    assert events_disagree(rounds(true_ms, true_ms, random.Random(seed))) == ""


def test_fallen_clocks_lengthen_both_kinds_of_round_and_are_no_lie() -> None:
    slow = [Round(1.6 * PAUSE_MS + 3.0, 3.0, 1.6 * PAUSE_MS) for _ in range(5)]
    assert events_disagree(slow) == ""


@pytest.mark.parametrize(("reported", "seen"), [(0.5956, 1.506), (0.8159, 1.793), (1.296, 2.677)])
def test_what_an_honest_layer_norm_showed_on_an_h200_is_no_lie(
    reported: float, seen: float
) -> None:
    shown = [Round(PAUSE_MS + seen, reported, PAUSE_MS, calls=2) for _ in range(10)]
    assert events_disagree(shown) == ""


@pytest.mark.parametrize("true_ms", [5.0, 10.0, 300.0])
def test_half_of_the_time_is_a_lie(true_ms: float) -> None:
    log = events_disagree(rounds(true_ms, true_ms / 2, random.Random(0)))
    assert "clock outside" in log


def test_no_rounds_say_nothing() -> None:
    assert events_disagree([]) == ""


def batches(true_ms: float, replays: int, dice: random.Random, gap_ms: float) -> list[float]:
    return [replays * (true_ms + gap_ms) + dice.uniform(0.05, 0.4) for _ in range(3)]


@settings(deadline=None)
@given(st.floats(0.005, 2.0), st.floats(0, 0.02), st.integers(0, 2**32))
def test_an_honest_graph_is_never_doubted_however_short(
    replay_ms: float, gap_ms: float, seed: int
) -> None:
    dice, count = random.Random(seed), replays_for(replay_ms)
    shorter, longer = (batches(replay_ms, n * count, dice, gap_ms) for n in (1, 2))
    assert replays_disagree(shorter, longer, count, replay_ms) == ""


@pytest.mark.parametrize("replay_ms", [0.12, 0.5, 2.0])
def test_a_graph_that_reports_a_third_is_a_lie(replay_ms: float) -> None:
    reported, dice = replay_ms / 3, random.Random(0)
    count = replays_for(reported)
    shorter, longer = (batches(replay_ms, n * count, dice, 0.005) for n in (1, 2))
    assert "clock outside" in replays_disagree(shorter, longer, count, reported)


def test_batches_are_long_enough_to_be_timed_and_no_longer_than_needed() -> None:
    assert replays_for(0.002) == MOST_REPLAYS
    assert replays_for(0.1) == 20
    assert replays_for(50.0) == 1
