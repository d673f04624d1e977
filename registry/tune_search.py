"""Search a space of tuning parameters with a measuring function that is handed in; knows nothing of GPUs.

A small space is tried whole, in random order, so that a search cut short has seen all parts of it alike. A larger one
is sampled by TPE (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NIPS 2011) as Optuna has it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.expressions import holds
from kernel_skills.executor.models import Record, Scalar

Config = Mapping[str, Scalar]

_LARGEST_LISTED = 20_000
"""Combinations that are looked at one by one, which takes about a second; larger spaces are only sampled."""
_MISSES_PER_TRIAL = 30
"""Proposals that break a constraint or were tried before, until the sampler is taken to have run dry."""


class Reading(Record):
    """One measurement of one configuration."""

    status: str
    """`PASSED`, or why there is no time."""
    reason: str = ""
    median_ms: float | None = None
    p20_ms: float | None = None
    p80_ms: float | None = None

    @property
    def good(self) -> bool:
        return self.status == "PASSED" and self.median_ms is not None


class Trial(Record):
    """A configuration with its reading; {} is the entry's own default."""

    config: Config
    reading: Reading

    @property
    def median_ms(self) -> float:
        """Infinite where nothing was measured, so that trials sort."""
        return self.reading.median_ms if self.reading.median_ms is not None else math.inf


Measure = Callable[[Config], Reading]
Progress = Callable[[int, int, Trial], None]
"""(trials done, trials planned, the trial just done)."""


class Space:
    """Declared parameters, and the constraints on their combinations for one shape."""

    def __init__(
        self,
        parameters: Mapping[str, Sequence[Scalar]],
        constraints: Sequence[str] = (),
        names: Mapping[str, Any] | None = None,
    ) -> None:
        """Args:
        names: axes and scalar inputs of the shape, as the constraints see them.
        """
        self.parameters = {name: tuple(values) for name, values in parameters.items()}
        self._constraints, self._names = constraints, dict(names or {})

    @property
    def size(self) -> int:
        """Combinations, those that a constraint forbids included."""
        return math.prod(len(values) for values in self.parameters.values())

    def allows(self, config: Config) -> bool:
        """Tell whether a configuration keeps every constraint and has only declared values."""
        declared = config.keys() == self.parameters.keys() and all(
            value in self.parameters[name] for name, value in config.items()
        )
        return declared and all(
            holds(text, {**self._names, **config}) for text in self._constraints
        )

    def configs(self) -> Iterator[dict[str, Scalar]]:
        """Yield every allowed configuration."""
        for values in itertools.product(*self.parameters.values()):
            config = dict(zip(self.parameters, values, strict=True))
            if self.allows(config):
                yield config


@dataclass
class Search:
    """What a search has found so far."""

    method: Literal["grid", "tpe"]
    planned: int
    trials: list[Trial] = field(default_factory=list)
    interrupted: bool = False
    out_of_time: bool = False

    @property
    def ranked(self) -> list[Trial]:
        """Return the trials that were measured, fastest first."""
        good = (trial for trial in self.trials if trial.reading.good)
        return sorted(good, key=lambda trial: trial.median_ms)


def search(
    space: Space,
    measure: Measure,
    *,
    trials: int,
    budget_s: float,
    seed: int = 0,
    first: Sequence[Config] = (),
    progress: Progress | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Search:
    """Measure configurations until the space, the trials or the time run out. Ctrl-C keeps what was measured.

    Args:
        first: configurations to begin with, e.g. an earlier winner; those outside the space are left out.
        budget_s: seconds; no trial begins after them.

    Raises:
        UsageError: the space allows nothing, or it is large and Optuna is not installed.
    """
    listed = list(space.configs()) if space.size <= _LARGEST_LISTED else None
    if listed is not None and not listed:
        raise UsageError(
            "parameter_constraints forbid every combination of the parameters for this shape"
        )
    whole = listed is not None and len(listed) <= trials
    found = Search("grid" if whole else "tpe", len(listed) if whole and listed else trials)
    source: _Source
    if whole and listed is not None:
        random.Random(seed).shuffle(listed)
        source = _Listed(listed)
    else:
        source = _Sampled(space, seed, trials)
    deadline, seen = clock() + budget_s, set[str]()
    try:
        for config in itertools.chain(filter(space.allows, first), source):
            key = _key(config)
            if key in seen:
                continue
            if len(found.trials) >= found.planned:
                break
            if clock() >= deadline:
                found.out_of_time = True
                break
            seen.add(key)
            trial = Trial(config=dict(config), reading=measure(config))
            found.trials.append(trial)
            source.tell(trial)
            if progress is not None:
                progress(len(found.trials), found.planned, trial)
    except KeyboardInterrupt:
        found.interrupted = True
    return found


class _Source:
    """Proposes configurations and is told how they did."""

    def __iter__(self) -> Iterator[Config]:
        raise NotImplementedError

    def tell(self, trial: Trial) -> None:
        """Take in a result; a list has no use for it."""


class _Listed(_Source):
    def __init__(self, configs: Sequence[Config]) -> None:
        self._configs = configs

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs)


class _Sampled(_Source):
    """Optuna's TPE over categorical parameters, asked and told."""

    def __init__(self, space: Space, seed: int, trials: int) -> None:
        self._optuna = _import_optuna(space, trials)
        self._space = space
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        # a third at random before the model is trusted, 10 at most as Optuna has it
        startup = max(1, min(10, trials // 3))
        sampler = self._optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup)
        self._study = self._optuna.create_study(direction="minimize", sampler=sampler)
        self._distributions = {
            name: self._optuna.distributions.CategoricalDistribution(values)
            for name, values in space.parameters.items()
        }
        self._misses_left = _MISSES_PER_TRIAL * trials
        self._open: dict[str, Any] = {}
        self._results: dict[str, float] = {}

    def __iter__(self) -> Iterator[Config]:
        while self._misses_left > 0:
            asked = self._study.ask(self._distributions)
            config, key = dict(asked.params), _key(asked.params)
            if key not in self._results and self._space.allows(config):
                self._open[key] = asked
                yield config
                continue
            self._misses_left -= 1
            self._finish(asked, self._results.get(key, math.inf))

    def tell(self, trial: Trial) -> None:
        key = _key(trial.config)
        self._results[key] = trial.median_ms if trial.reading.good else math.inf
        asked = self._open.pop(key, None)
        if asked is None:
            # not of the sampler's making: an earlier winner
            self._study.enqueue_trial(dict(trial.config))
            asked = self._study.ask(self._distributions)
        self._finish(asked, self._results[key])

    def _finish(self, asked: Any, result: float) -> None:
        """Close a proposal; one without a time counts as pruned, which TPE ranks last (it leaves out failed ones)."""
        if math.isfinite(result):
            self._study.tell(asked, result)
        else:
            self._study.tell(asked, state=self._optuna.trial.TrialState.PRUNED)


def _key(config: Config) -> str:
    return json.dumps(config, sort_keys=True)


def _import_optuna(space: Space, trials: int) -> Any:
    try:
        import optuna
    except ImportError:
        raise UsageError(
            f"{space.size} combinations are more than {trials} trials, and sampling them needs optuna: "
            "pip install 'kernel-skills[tune]', or raise --trials to try all"
        ) from None
    return optuna
