"""Time calls on a CUDA device. The same code times the candidate and, in another process, its baselines."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch

Method = Literal["events", "graph"]

_GRAPH_BELOW_MS = 0.05
"""A launch costs the host 5 to 50 us; below this, events round single calls would time the host."""
_HEAD_START_CYCLES = 4_000_000
"""About 2 ms at 1.98 GHz: the device waits while the host queues the calls, so no gap lies between them."""


def choose_method(calls: Sequence[Callable[[], Any]]) -> Method:
    """Return how to time these calls: CUDA graph replay where one takes less than 50 us."""
    for call in calls:
        call()
    samples = time_by_events(calls)
    return "graph" if sorted(samples)[len(samples) // 2] < _GRAPH_BELOW_MS else "events"


def time_by_events(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the milliseconds of each call, queued back to back, with an event between two."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)]
    outputs = []
    torch.cuda.synchronize()
    torch.cuda._sleep(_HEAD_START_CYCLES)
    events[0].record()
    for call, event in zip(calls, events[1:], strict=True):
        # kept until the clock has stopped, so that each call writes to a fresh address
        outputs.append(call())
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def device_time(call: Callable[[], Any]) -> float:
    """Return the milliseconds that the device works on one call, the shortest of three."""
    call()
    return min(time_by_events([call])[0] for _ in range(3))


class GraphTimer:
    """All calls captured once, in order, as one CUDA graph; each replay yields one sample of their mean."""

    def __init__(self, calls: Sequence[Callable[[], Any]]) -> None:
        self._count = len(calls)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in calls:
                call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.outputs = [call() for call in calls]
        self._graph.replay()
        torch.cuda.synchronize()

    def time(self) -> list[float]:
        """Return one sample: milliseconds per call over one replay."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(_HEAD_START_CYCLES)
        start.record()
        self._graph.replay()
        end.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / self._count]

    def replay(self, count: int) -> None:
        """Replay a number of times and wait for the device."""
        torch.cuda.synchronize()
        for _ in range(count):
            self._graph.replay()
        torch.cuda.synchronize()


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the samples lie, by linear interpolation."""
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
