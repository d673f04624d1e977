"""The search and the decision, with a measuring function in place of a GPU."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec

import pytest

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.models import Scalar
from kernel_skills.registry.tune_pick import Verified, pick_winner
from kernel_skills.registry.tune_search import Config, Reading, Search, Space, Trial, search

needs_optuna = pytest.mark.skipif(
    find_spec("optuna") is None, reason="optuna is not installed (extra `tune`)"
)
SMALL = Space(
    {"BLOCK": (16, 32, 64, 128), "WARPS": (4, 8)},
    ("BLOCK * WARPS <= width", "BLOCK >= 32 or WARPS == 4"),
    {"width": 512},
)
LARGE = Space({name: tuple(range(10)) for name in "ABCDE"}, ("A <= B + 5",))


def passed(median_ms: float, spread: float = 0.0) -> Reading:
    return Reading(
        status="PASSED", median_ms=median_ms, p20_ms=median_ms - spread, p80_ms=median_ms + spread
    )


def valley(config: Config) -> Reading:
    """Fastest at A = B = C = D = E = 7; fails where E is 0."""
    if config["E"] == 0:
        return Reading(status="RUNTIME_ERROR", reason="out of resource: shared memory")
    return passed(1 + sum((int(value) - 7) ** 2 for value in config.values()) / 100)


def keys(found: Search) -> list[str]:
    return [str(sorted(trial.config.items())) for trial in found.trials]


# --- the search -----------------------------------------------------------------------------------


def test_a_small_space_is_tried_whole_within_its_constraints() -> None:
    found = search(SMALL, lambda c: passed(float(c["BLOCK"])), trials=40, budget_s=60)
    assert found.method == "grid"
    assert len(found.trials) == found.planned == len(set(keys(found))) == 6
    assert all(SMALL.allows(trial.config) for trial in found.trials)
    assert found.ranked[0].config == {"BLOCK": 16, "WARPS": 4}


def test_a_failing_configuration_is_kept_with_its_reason_and_never_ranked() -> None:
    def measure(config: Config) -> Reading:
        if config["WARPS"] == 8:
            return Reading(status="INCORRECT_NUMERICAL", reason="off by 3")
        return passed(1.0)

    found = search(SMALL, measure, trials=40, budget_s=60)
    assert len(found.trials) == 6
    assert {trial.config["WARPS"] for trial in found.ranked} == {4}
    failed = [trial for trial in found.trials if not trial.reading.good]
    assert {trial.reading.reason for trial in failed} == {"off by 3"}


@needs_optuna
def test_a_large_space_is_sampled_without_repeats_and_better_than_by_chance() -> None:
    found = search(LARGE, valley, trials=60, budget_s=60, seed=3)
    assert found.method == "tpe"
    assert len(found.trials) == len(set(keys(found))) == 60
    assert all(LARGE.allows(trial.config) for trial in found.trials)
    late = [trial.median_ms for trial in found.trials[30:] if trial.reading.good]
    early = [trial.median_ms for trial in found.trials[:10] if trial.reading.good]
    assert sum(late) / len(late) < sum(early) / len(early)


@needs_optuna
def test_the_same_seed_gives_the_same_trials() -> None:
    first, second = (search(LARGE, valley, trials=8, budget_s=60, seed=5) for _ in range(2))
    assert keys(first) == keys(second)


@pytest.mark.parametrize("space", [SMALL, pytest.param(LARGE, marks=needs_optuna)])
def test_an_earlier_winner_is_tried_first_and_once(space: Space) -> None:
    earlier = next(iter(space.configs()))
    foreign: Mapping[str, Scalar] = {"OTHER": 1}
    found = search(space, lambda _: passed(1.0), trials=6, budget_s=60, first=[foreign, earlier])
    assert found.trials[0].config == earlier
    assert len(set(keys(found))) == len(found.trials) == 6


@needs_optuna
def test_a_sampler_that_runs_dry_ends() -> None:
    narrow = Space({"A": tuple(range(40)), "B": tuple(range(1000))}, ("A == B", "A < 3"))
    found = search(narrow, lambda _: passed(1.0), trials=1, budget_s=60)
    assert len(found.trials) <= 1


def test_no_trial_begins_after_the_budget() -> None:
    now = [0.0]

    def measure(_: Config) -> Reading:
        now[0] += 10
        return passed(1.0)

    found = search(SMALL, measure, trials=40, budget_s=25, clock=lambda: now[0])
    assert len(found.trials) == 3
    assert found.out_of_time


def test_an_interrupt_keeps_what_was_measured() -> None:
    count = [0]

    def measure(_: Config) -> Reading:
        count[0] += 1
        if count[0] == 3:
            raise KeyboardInterrupt
        return passed(float(count[0]))

    found = search(SMALL, measure, trials=40, budget_s=60)
    assert found.interrupted
    assert [trial.median_ms for trial in found.ranked] == [1.0, 2.0]


def test_constraints_that_allow_nothing_are_an_error() -> None:
    with pytest.raises(UsageError, match="forbid every combination"):
        search(Space({"A": (1, 2)}, ("A > 2",)), lambda _: passed(1.0), trials=4, budget_s=60)


def test_only_a_large_space_needs_optuna(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert len(search(SMALL, lambda _: passed(1.0), trials=40, budget_s=60).trials) == 6
    with pytest.raises(UsageError, match=r"kernel-skills\[tune\]"):
        search(LARGE, valley, trials=8, budget_s=60)


# --- the decision ---------------------------------------------------------------------------------

A, B = {"BLOCK": 16}, {"BLOCK": 32}


def fine(_: Config) -> list[Verified]:
    return [Verified(workload="tiny", status="PASSED"), Verified(workload="big", status="SKIPPED")]


def measuring(times: Mapping[str, float | Reading]) -> Callable[[Config], Reading]:
    def measure(config: Config) -> Reading:
        value = times[str(config)]
        return value if isinstance(value, Reading) else passed(value)

    return measure


def trials(*pairs: tuple[Config, float]) -> list[Trial]:
    return [Trial(config=config, reading=passed(time)) for config, time in pairs]


def test_a_faster_configuration_wins_with_the_slower_of_its_readings() -> None:
    measure = measuring({"{}": 1.02, str(A): 0.9})
    pick = pick_winner(trials((A, 0.85), (B, 0.95)), passed(1.0), measure, fine)
    assert pick.winner is not None
    assert pick.winner.config == A
    assert pick.winner.median_ms == 0.9
    assert [reading.median_ms for reading in pick.default] == [1.0, 1.02]
    assert [item.workload for item in pick.verified] == ["tiny", "big"]


@pytest.mark.parametrize(("time", "spread"), [(0.995, 0.0), (0.96, 0.05), (1.0, 0.0), (1.2, 0.0)])
def test_a_gain_within_noise_keeps_the_default(time: float, spread: float) -> None:
    pick = pick_winner(trials((A, time)), passed(1.0, spread), measuring({"{}": 1.0}), fine)
    assert pick.winner is None
    assert "by more than noise" in pick.reason


def test_a_time_that_does_not_repeat_gives_way_to_the_next() -> None:
    measure = measuring({"{}": 1.0, str(A): 1.1, str(B): 0.8})
    pick = pick_winner(trials((A, 0.5), (B, 0.8)), passed(1.0), measure, fine)
    assert pick.winner is not None
    assert pick.winner.config == B
    assert pick.dropped[0].reading.status == "NOT_REPEATED"


def test_a_wrong_configuration_is_not_kept() -> None:
    def verify(config: Config) -> list[Verified]:
        wrong = Verified(workload="odd", status="INCORRECT_NUMERICAL", log="row 3")
        return [wrong] if config == A else fine(config)

    measure = measuring({"{}": 1.0, str(A): 0.5, str(B): 0.8})
    pick = pick_winner(trials((A, 0.5), (B, 0.8)), passed(1.0), measure, verify)
    assert pick.winner is not None
    assert pick.winner.config == B
    assert pick.dropped[0].reading.reason == "odd: row 3"


def test_a_configuration_that_fails_when_run_again_is_dropped() -> None:
    broken = Reading(status="TIMEOUT", reason="60 s")
    measure = measuring({"{}": 1.0, str(A): broken})
    pick = pick_winner(trials((A, 0.5)), passed(1.0), measure, fine)
    assert pick.winner is None
    assert pick.dropped[0].reading == broken


def test_where_the_default_fails_what_works_wins() -> None:
    broken = Reading(status="RUNTIME_ERROR", reason="out of resource")
    pick = pick_winner(trials((A, 2.0)), broken, measuring({"{}": broken, str(A): 2.0}), fine)
    assert pick.winner is not None
    assert "a default that fails (RUNTIME_ERROR)" in pick.reason


def test_nothing_measured_keeps_the_default() -> None:
    pick = pick_winner([], passed(1.0), measuring({"{}": 1.0}), fine)
    assert pick.winner is None
    assert pick.reason == "no configuration could be measured"
