"""Measure a candidate beside its baselines on one Workload. Runs in the task worker, on a GPU.

Candidate and baselines alternate round by round. Every round draws fresh values for every input set, the sets
together are larger than twice the L2 cache, and the outputs of one set chosen at random are checked each round.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernel_skills.executor.device_state import DeviceStateReader
from kernel_skills.executor.models import Baseline, Scalar, Workload
from kernel_skills.executor.nvidia_smi import device_uuid
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.remote import CandidateFailed, RemoteCandidate
from kernel_skills.executor.seeds import derive_seed
from kernel_skills.executor.timing import GraphTimer, choose_method, percentile, time_by_events
from kernel_skills.executor.trace import COPY
from kernel_skills.executor.verify import Verdict, check_outputs

_MIN_SAMPLES = 40
_MIN_ROUNDS, _MAX_ROUNDS = 5, 40
_MAX_SETS = 24
_FREE_SHARE = 0.3
"""Of free device memory, for the input sets of both processes; the float64 reference needs the rest."""


@dataclass
class Measurement:
    """Samples in milliseconds of the candidate and of each baseline, or why there are none."""

    verdict: Verdict
    method: str = "events"
    samples: list[float] = field(default_factory=list)
    baselines: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    device_state: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "status": self.verdict.status,
            "log": self.verdict.log,
            "correctness": self.verdict.correctness(),
            "method": self.method,
            "timing": summary(self.samples),
            "baselines": {name: summary(samples) for name, samples in self.baselines.items()},
            "errors": self.errors,
            "device_state": self.device_state,
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


def bench_workload(
    reference: Reference,
    candidate: RemoteCandidate,
    workload: Workload,
    *,
    seed: int,
    device: str,
    config: Mapping[str, Scalar],
    fewest_bytes: int,
    baselines: Sequence[Baseline] | None = None,
) -> Measurement:
    """Measure a Workload.

    Args:
        fewest_bytes: what the operator must move; the copy baseline moves the same.
        baselines: of the definition; None measures no baseline at all (a tuning trial).

    Raises:
        CandidateFailed: the candidate's process is gone or lost its device.
    """
    bench = _Bench(reference, candidate, workload, seed, device, config)
    measurement = Measurement(Verdict())
    try:
        bench.place()
        bench.check(0, candidate.call(0, bench.scalars, config), measurement.verdict)
        if not measurement.verdict.passed:
            return measurement
        measurement.method = candidate.prepare_timing(bench.scalars, config)
        if baselines is not None:
            bench.prepare_baselines(baselines, fewest_bytes, measurement)
        bench.run_rounds(measurement, check=baselines is not None)
    except CandidateFailed as failed:
        if failed.dead:
            raise
        measurement.verdict.status, measurement.verdict.log = failed.status, failed.log
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
        self._seed, self._device, self._config = seed, device, config
        self._sets: list[dict[str, torch.Tensor]] = []
        self._timed: dict[str, Callable[[], list[float]]] = {}
        self._round = 0
        self.scalars: dict[str, Any] = {}
        self._dice = random.Random(derive_seed(seed, workload.uuid, "checked set"))

    def place(self) -> None:
        """Draw as many sets as twice the L2 cache holds, and copy them into the candidate's memory."""
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
        seed = derive_seed(self._seed, self._workload.uuid, "bench", self._round, index)
        return self._reference.draw(self._workload, seed, self._device)

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

    def check(self, index: int, outputs: list[Any], verdict: Verdict) -> None:
        """Compare outputs with the reference on the set that they were computed from."""
        tensors = self._sets[index]
        exact = self._reference.exact(tensors, self.scalars)
        honest = self._reference.honest(tensors, self.scalars, self._workload)
        check_outputs(self._reference, self._workload, outputs, exact, honest, verdict)

    def prepare_baselines(
        self, named: Sequence[Baseline], fewest_bytes: int, measurement: Measurement
    ) -> None:
        """Bind, compile and warm up every baseline; one that fails costs only itself."""
        makers: dict[str, Callable[[], list[Callable[[], Any]]]] = {}
        standard = self._reference.definition.standard_baselines
        if "eager" in standard:
            makers["eager"] = lambda: self._bind(self._reference.function)
        if "compile" in standard:
            makers["compile"] = self._compiled
        if COPY in standard:
            makers[COPY] = lambda: self._copies(fewest_bytes)
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

    def _copies(self, fewest_bytes: int) -> list[Callable[[], Any]]:
        half = max(fewest_bytes // 2, 1)
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
        rounds = math.ceil(_MIN_SAMPLES / len(self._sets))
        if measurement.method == "graph":
            rounds = _MIN_SAMPLES // 2
        rounds = max(_MIN_ROUNDS, min(rounds, _MAX_ROUNDS))
        names = list(self._timed)
        for turn in range(rounds):
            if check:
                self.refresh()
            self._time_candidate(measurement, check)
            if not measurement.verdict.passed:
                return
            # a different order each round, so that no one always follows the same neighbour
            for name in names[turn % max(len(names), 1) :] + names[: turn % max(len(names), 1)]:
                self._time_baseline(name, measurement)
        if check:
            properties = torch.cuda.get_device_properties(self._device)
            reader = DeviceStateReader(device_uuid(properties))
            while not reader.done():
                self._candidate.time(self.scalars, self._config, 0)
            measurement.device_state = reader.result()

    def _time_candidate(self, measurement: Measurement, check: bool) -> None:
        index = self._dice.randrange(len(self._sets))
        samples, outputs = self._candidate.time(self.scalars, self._config, index)
        measurement.samples.extend(samples)
        if check:
            self.check(index, outputs, measurement.verdict)

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
