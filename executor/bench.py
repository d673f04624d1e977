"""Measure a candidate beside its baselines on one Workload. Runs in the task worker, on a GPU.

Candidate and baselines alternate round by round. Every round draws fresh values for every input set, the sets
together are larger than twice the L2 cache, and the outputs of half of the sets, chosen at random after the round,
are checked. The candidate's own times are held against a clock in this process.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernel_skills.executor.compare import HonestError
from kernel_skills.executor.device_state import DeviceStateReader
from kernel_skills.executor.expected import Draw, expected_of, steady_errors
from kernel_skills.executor.external_clock import (
    Round,
    events_disagree,
    replays_disagree,
    replays_for,
)
from kernel_skills.executor.models import Baseline, Scalar, Workload
from kernel_skills.executor.nvidia_smi import device_uuid
from kernel_skills.executor.persisting_l2 import reset_persisting_l2
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.remote import CandidateFailed, RemoteCandidate
from kernel_skills.executor.roofline import fewest_bytes
from kernel_skills.executor.seeds import derive_seed
from kernel_skills.executor.timing import GraphTimer, choose_method, percentile, time_by_events
from kernel_skills.executor.trace import COPY
from kernel_skills.executor.verify import Verdict, check_outputs

_MIN_SAMPLES, _FEWEST_SAMPLES = 40, 10
_MIN_ROUNDS, _MAX_ROUNDS = 5, 40
_MAX_SETS = 24
_FREE_SHARE = 0.3
"""Of free device memory, for the input sets of both processes; the float64 reference needs the rest."""
_LONG_S = 0.3
"""Rounds that have taken so long end at ten samples: the others go on to forty."""
_CLOCK_REPEATS, _CLOCKED_ROUNDS = 3, 10
_MOST_TORCH_SHARE, _LEAST_TORCH_MS = 0.2, 0.02
"""Under `strict`, of a call's device time where torch neither fills nor copies; two events cannot tell 20 us apart."""


@dataclass
class Measurement:
    """Samples in milliseconds of the candidate and of each baseline, or why there are none."""

    verdict: Verdict
    method: str = "events"
    samples: list[float] = field(default_factory=list)
    baselines: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    device_state: dict[str, Any] | None = None
    torch_share: float | None = None
    """Of a call's device time, what torch's operators take."""

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.verdict.status,
            "log": self.verdict.log,
            "rule": self.verdict.rule,
            "correctness": self.verdict.correctness(),
            "method": self.method,
            "timing": summary(self.samples),
            "baselines": {name: summary(samples) for name, samples in self.baselines.items()},
            "errors": self.errors,
            "device_state": self.device_state,
            "torch_share": self.torch_share,
            "torch_operators": self.verdict.torch_operators,
            "seconds": self.verdict.seconds,
        }


def summary(samples: Sequence[float]) -> dict[str, float] | None:
    """Return the fields of `trace.Timing`."""
    if not samples:
        return None
    return {
        "median_ms": percentile(samples, 0.5),
        "p20_ms": percentile(samples, 0.2),
        "p80_ms": percentile(samples, 0.8),
        "samples": len(samples),
    }


@dataclass
class Baselines:
    """What a problem's first measured candidate found, for the candidates after it."""

    samples: dict[str, list[float]]
    errors: dict[str, str]


def bench_workload(
    reference: Reference,
    candidate: RemoteCandidate,
    workload: Workload,
    *,
    seed: int,
    device: str,
    config: Mapping[str, Scalar],
    baselines: Sequence[Baseline] | None = None,
    measured: Baselines | None = None,
    strict: bool = True,
) -> Measurement:
    """Measure a Workload.

    Args:
        baselines: of the definition; None measures no baseline at all (a tuning trial).
        measured: baselines of an earlier candidate, quoted instead of being measured again.
        strict: torch may take no share of a call that matters.

    Raises:
        CandidateFailed: the candidate's process is gone or lost its device.
    """
    bench = _Bench(reference, candidate, workload, seed, device, config)
    measurement = Measurement(Verdict())
    verdict = measurement.verdict
    try:
        with verdict.phase("bench: place", device):
            bench.place()
        with verdict.phase("bench: first call", device):
            bench.check([0], [candidate.call(0, bench.scalars, config)], verdict)
        if not verdict.passed:
            return measurement
        verdict.torch_operators.update(candidate.torch_operators)
        with verdict.phase("bench: warm-up", device):
            measurement.method = candidate.prepare_timing(bench.scalars, config)
        if baselines is not None and measured is None:
            with verdict.phase("bench: baselines", device):
                bench.prepare_baselines(baselines, measurement)
        with verdict.phase("bench: rounds", device):
            bench.run_rounds(measurement, check=baselines is not None)
        if measured is not None and verdict.passed:
            measurement.baselines, measurement.errors = measured.samples, measured.errors
        with verdict.phase("bench: share", device):
            if baselines is not None and verdict.passed:
                bench.check_share(measurement, strict)
    except CandidateFailed as failed:
        if failed.dead:
            raise
        verdict.status, verdict.log, verdict.rule = failed.status, failed.log, failed.rule
    finally:
        bench.close()
    return measurement


class _Bench:
    """Input sets in both processes, and the baselines bound to them."""

    def __init__(
        self,
        reference: Reference,
        candidate: RemoteCandidate,
        workload: Workload,
        seed: int,
        device: str,
        config: Mapping[str, Scalar],
    ) -> None:
        self._reference, self._candidate, self._workload = reference.uncached(), candidate, workload
        self._kept = reference
        self._seed, self._device, self._config = seed, device, config
        self._sets: list[dict[str, torch.Tensor]] = []
        self._timed: dict[str, Callable[[], list[float]]] = {}
        self._round = 0
        self._rounds: list[Round] = []
        self._steady: list[HonestError] | None = None
        self.scalars: dict[str, Any] = {}
        self._dice = random.Random(derive_seed(seed, workload.uuid, "checked set"))

    def place(self) -> None:
        """Draw as many sets as twice the L2 cache holds, and copy them into the candidate's memory."""
        torch.cuda.empty_cache()
        first, self.scalars = self._draw(0)
        size = sum(tensor.untyped_storage().nbytes() for tensor in first.values())
        l2 = torch.cuda.get_device_properties(self._device).L2_cache_size
        free, _ = torch.cuda.mem_get_info()
        wanted = math.ceil(2 * l2 / max(size, 1)) + 1
        count = max(2, min(wanted, _MAX_SETS, int(_FREE_SHARE * free / max(2 * size, 1))))
        self._sets = [first, *(self._draw(index)[0] for index in range(1, count))]
        for index, tensors in enumerate(self._sets):
            self._candidate.place(index, tensors)

    def _draw(self, index: int) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        return self._reference.draw(self._workload, self._seed_of(index), self._device)

    def _seed_of(self, index: int) -> int:
        return derive_seed(self._seed, self._workload.uuid, "bench", self._round, index)

    def refresh(self) -> None:
        """Write fresh values over every set, in place, so that what was captured stays valid."""
        self._round += 1
        for index, tensors in enumerate(self._sets):
            drawn, _ = self._draw(index)
            for name, tensor in tensors.items():
                # through .data, since a baseline's backward has saved these tensors
                if 0 in tensor.stride():
                    tensor.data[:1].copy_(drawn[name][:1])
                else:
                    tensor.data.copy_(drawn[name])
            self._candidate.refill(index, tensors)

    def check(self, indices: Sequence[int], outputs: Sequence[list[Any]], verdict: Verdict) -> None:
        """Compare the outputs of some sets with the reference on the inputs that they were computed from."""
        for index, found in zip(indices, outputs, strict=True):
            draw = Draw(self._workload, self._seed_of(index), self._device)
            steady = self._steady_errors(draw)
            expected = expected_of(
                self._reference, draw, self._sets[index], self.scalars, steady
            )  # fmt: skip
            check_outputs(self._reference, self._workload, found, expected, verdict)
            if not verdict.passed:
                return

    def _steady_errors(self, draw: Draw) -> list[HonestError]:
        """Return the honest errors of outputs of few elements: once for all rounds, and all candidates."""
        if self._steady is None:

            def find() -> list[HonestError]:
                exact = self._reference.exact(self._sets[0], self.scalars)
                return steady_errors(self._reference, draw, exact)

            key = ("steady", self._workload.uuid, self._seed)
            self._steady = self._kept.remembered(key, find)
        return self._steady

    def prepare_baselines(self, named: Sequence[Baseline], measurement: Measurement) -> None:
        """Bind, compile and warm up every baseline; one that fails costs only itself."""
        makers: dict[str, Callable[[], list[Callable[[], Any]]]] = {}
        standard = self._reference.definition.standard_baselines
        if "eager" in standard:
            makers["eager"] = lambda: self._bind(self._reference.function)
        if "compile" in standard:
            makers["compile"] = self._compiled
        if COPY in standard:
            makers[COPY] = self._copies
        for baseline in named:
            makers[baseline.name] = lambda b=baseline: self._named(b)  # type: ignore[misc]
        for name, make in makers.items():
            try:
                self._timed[name] = _timer(make(), measurement.method)
            except Exception as error:  # noqa: BLE001 - a library call may fail in any way on some chip
                measurement.errors[name] = f"{type(error).__name__}: {error}"[:500]

    def _bind(self, function: Callable[..., Any]) -> list[Callable[[], Any]]:
        return [
            functools.partial(function, *tensors.values(), **self.scalars) for tensors in self._sets
        ]

    def _compiled(self) -> list[Callable[[], Any]]:
        torch._dynamo.reset()  # a second shape would turn the graph dynamic, and several times slower
        mode = "max-autotune-no-cudagraphs"
        return self._bind(torch.compile(self._reference.function, mode=mode, dynamic=False))

    def _copies(self) -> list[Callable[[], Any]]:
        half = max(fewest_bytes(self._reference.definition, self._workload) // 2, 1)
        sources = [
            torch.empty(half, dtype=torch.uint8, device=self._device).random_() for _ in self._sets
        ]
        return [source.clone for source in sources]

    def _named(self, baseline: Baseline) -> list[Callable[[], Any]]:
        torch._dynamo.reset()
        function = self._reference.sources.function(baseline.entry)
        if baseline.prepares:
            return [function(*tensors.values(), **self.scalars) for tensors in self._sets]
        return self._bind(function)

    def run_rounds(self, measurement: Measurement, check: bool) -> None:
        """Alternate candidate and baselines until there are enough samples of each."""
        names = list(self._timed)
        start = time.perf_counter()
        for turn in range(self._most_rounds(measurement.method)):
            if check:
                self.refresh()
            self._time_candidate(measurement, check)
            if not measurement.verdict.passed:
                return
            # a different order each round, so that no one always follows the same neighbour
            for name in names[turn % max(len(names), 1) :] + names[: turn % max(len(names), 1)]:
                self._time_baseline(name, measurement)
            enough = turn + 1 >= _MIN_ROUNDS and len(measurement.samples) >= _FEWEST_SAMPLES
            if enough and time.perf_counter() - start > _LONG_S:
                break
        self._ask_second_clock(measurement)
        if names and measurement.verdict.passed:
            # with the baselines: once for many candidates of one problem
            measurement.device_state = self._device_state()

    def _most_rounds(self, method: str) -> int:
        rounds = math.ceil(_MIN_SAMPLES / len(self._sets))
        if method == "graph":
            rounds = _MIN_SAMPLES // 2
        return max(_MIN_ROUNDS, min(rounds, _MAX_ROUNDS))

    def _time_candidate(self, measurement: Measurement, check: bool) -> None:
        reset_persisting_l2()
        samples, wall_ms = self._candidate.time(self.scalars, self._config)
        measurement.samples.extend(samples)
        calls = len(self._sets) if measurement.method == "graph" else 1
        if check:
            self._check_timed(measurement)
        if len(self._rounds) < _CLOCKED_ROUNDS:
            # beside each round, since the pause in both lasts longer where clocks have fallen
            _, empty_ms = self._candidate.time(self.scalars, self._config, empty=True)
            self._rounds.append(Round(wall_ms, sum(samples) * calls, empty_ms, len(self._sets)))

    def _check_timed(self, measurement: Measurement) -> None:
        # chosen only now, so that nobody could know before which outputs count
        half = self._dice.sample(range(len(self._sets)), max(1, len(self._sets) // 2))
        for index in half:
            self.check([index], [self._candidate.timed_outputs(index)], measurement.verdict)
            if not measurement.verdict.passed:
                measurement.verdict.log = f"a timed call: {measurement.verdict.log}"
                measurement.verdict.rule = "R-fresh"
                return

    def _ask_second_clock(self, measurement: Measurement) -> None:
        """Hold the reported times against those of this process."""
        log = events_disagree(self._rounds)
        if not log and measurement.method == "graph":
            reported = percentile(measurement.samples, 0.5) * len(self._sets)
            count = replays_for(reported)
            shorter = [self._candidate.replay(count) for _ in range(_CLOCK_REPEATS)]
            longer = [self._candidate.replay(2 * count) for _ in range(_CLOCK_REPEATS)]
            log = replays_disagree(shorter, longer, count, reported)
        if log:
            verdict = measurement.verdict
            verdict.status, verdict.log, verdict.rule = "CHEATING", log, "R-timer-ext"

    def _device_state(self) -> dict[str, Any] | None:
        """Read clocks and power while the candidate keeps the device busy."""
        properties = torch.cuda.get_device_properties(self._device)
        reader = DeviceStateReader(device_uuid(properties))
        while not reader.done():
            self._candidate.time(self.scalars, self._config)
        return reader.result()

    def check_share(self, measurement: Measurement, strict: bool) -> None:
        """Find out what share of a call's device time is torch's, by leaving the candidate's kernels out."""
        try:
            share, moves = self._candidate.torch_share(self.scalars, self._config)
        except CandidateFailed as failed:
            if failed.dead:
                raise
            # it may look at what its launches return
            return
        measurement.torch_share = share
        hidden_ms = 0.0 if moves else share * percentile(measurement.samples, 0.5)
        if strict and share > _MOST_TORCH_SHARE and hidden_ms > _LEAST_TORCH_MS:
            verdict = measurement.verdict
            verdict.status, verdict.rule = "CHEATING", "R-share"
            verdict.log = (
                f"{100 * share:.0f} % of the device time is left when its kernels are left out, "
                "and no operator of torch was seen"
            )

    def _time_baseline(self, name: str, measurement: Measurement) -> None:
        """Add one round; a baseline that fails is out, with the reason, and costs only itself."""
        if name in measurement.errors:
            return
        try:
            measurement.baselines.setdefault(name, []).extend(self._timed[name]())
        except Exception as error:  # noqa: BLE001 - as in prepare_baselines
            measurement.baselines.pop(name)
            measurement.errors[name] = f"{type(error).__name__}: {error}"[:500]

    def close(self) -> None:
        self._sets, self._timed = [], {}
        torch.cuda.empty_cache()


def _timer(calls: list[Callable[[], Any]], method: str) -> Callable[[], list[float]]:
    """Warm the calls up and return what times one round of them by the candidate's own method."""
    choose_method(calls)
    if method == "graph":
        return GraphTimer(calls).time
    return lambda: time_by_events(calls)
