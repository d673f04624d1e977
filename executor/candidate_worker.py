"""The process that runs a candidate. It gets inputs and calls; it never sees the reference.

One candidate per process. The socket is first the parent's (`load`), then handed to the task worker (the rest).
Standard output is a log file and is never read for results.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from kernel_skills.executor import wire
from kernel_skills.executor.binding import bind
from kernel_skills.executor.calling import Calling
from kernel_skills.executor.channel import Channel
from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.failure import describe_failure
from kernel_skills.executor.launch_modes import launching
from kernel_skills.executor.models import Definition, Solution
from kernel_skills.executor.operator_log import OperatorLog, hide_interpreters_copies
from kernel_skills.executor.persisting_l2 import reset_persisting_l2
from kernel_skills.executor.process_state import ProcessState, watching_random_numbers
from kernel_skills.executor.sanitizer import Sanitizer
from kernel_skills.executor.timing import GraphTimer, choose_method, device_time, time_by_events

Answer = tuple[dict[str, Any], list[memoryview]]


def serve(channel: Channel) -> None:
    """Answer requests until the other side closes the channel."""
    sanitizer = Sanitizer()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from kernel_skills.executor.interpreter import answer_device_queries, repair_interpreter

        repair_interpreter()
        hide_interpreters_copies()
        answer_device_queries()
        sanitizer.install()
    candidate = Candidate(sanitizer)
    while True:
        message, blob, _ = channel.receive()
        operation: Callable[[dict[str, Any], bytearray], Answer] = getattr(
            candidate, f"do_{message['op']}"
        )
        try:
            answer, data = operation(message, blob)
        except BaseException as error:  # noqa: BLE001 - foreign code may raise anything; it is reported, typed
            answer, data = describe_failure(error), []
        channel.send(answer, data)


class Candidate:
    """The loaded entry, its input sets and the outputs of its last call."""

    def __init__(self, sanitizer: Sanitizer) -> None:
        self._sanitizer = sanitizer
        self._entry: Callable[..., Any] | None = None
        self._calling = Calling()
        self._definition: Definition | None = None
        self._device = "cpu"
        self._sets: dict[int, dict[str, torch.Tensor]] = {}
        self._outputs: list[Any] = []
        self._timed: list[Any] = []
        self._timer: GraphTimer | None = None
        self._state: ProcessState | None = None
        self._changed: list[str] = []

    def do_load(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Import the Solution; on a GPU also start the driver."""
        solution = Solution.model_validate(message["solution"])
        self._device = message["device"]
        if self._device != "cpu":
            torch.cuda.set_device(torch.device(self._device))
            torch.empty(1, device=self._device)
            reset_persisting_l2()
        # after the driver's start, which sets variables; before the first line of foreign code
        self._state = ProcessState()
        tree = SourceTree(solution.sources, Path("solution"))
        self._entry = tree.function(solution.spec.entry_point)
        self._calling = Calling.model_validate(message.get("calling", {}))
        if self._calling.destination:
            self._definition = Definition.model_validate(message["definition"])
        return {"ok": True, "facts": self._facts({})}, []

    def do_place(self, message: dict[str, Any], blob: bytearray) -> Answer:
        """Make room for one set of inputs: from raw bytes on the CPU, as exported memory on a GPU."""
        tensors, handles, position = {}, {}, 0
        for name, description in message["tensors"].items():
            size = description["storage_bytes"]
            if self._device == "cpu":
                storage = wire.storage_from_bytes(memoryview(blob)[position : position + size])
                position += size
            else:
                storage = torch.empty(
                    max(size, 1), dtype=torch.uint8, device=self._device
                ).untyped_storage()
                handles[name] = wire.export_handle(storage)
            tensors[name] = wire.rebuild(storage, description)
        self._sets[message["set"]] = tensors
        return {"handles": handles}, []

    def do_call(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Run the entry once on a set and describe what it returned, and what else it did."""
        launches = launching(message.get("launches", "usual"), self._device == "cpu")
        call, log = self._bound(message["set"], message), OperatorLog()
        drawn: list[str] = []
        self._sanitizer.forget()
        with (
            torch.set_grad_enabled(message.get("gradients", True)), _poisoned(message["poison"]), launches,
            watching_random_numbers(drawn), log,
        ):  # fmt: skip
            result = call()
            self._synchronize()
        self._changed += drawn
        self._outputs = _as_list(result)
        answer, data = self._describe(self._outputs, self._sets[message["set"]])
        return {**answer, "facts": self._facts(log.found())}, data

    def do_inputs(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Return the input storages as they are now (CPU; on a GPU the task worker has them mapped)."""
        tensors = self._sets[message["set"]].values()
        return {"ok": True}, [wire.storage_bytes(tensor) for tensor in tensors]

    def do_prepare_timing(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Warm up on every set and choose the method, unless the caller has."""
        calls = self._calls(message)
        method = message.get("method") or choose_method(calls)
        self._timer = GraphTimer(calls) if method == "graph" else None
        return {"method": method}, []

    def do_time(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Time one round over all sets, or an empty one; the outputs stay here until `outputs` asks for some.

        Which will be asked for is not known to this process before.
        """
        self._timed = []
        if reset_persisting_l2():
            self._changed.append("share of the L2 cache set aside")
        if message.get("empty"):
            return {"samples": time_by_events([])}, []
        if self._timer is not None:
            samples, self._timed = self._timer.time(), self._timer.outputs
        else:
            calls = [_keeping(call, self._timed) for call in self._calls(message)]
            samples = time_by_events(calls)
        return {"samples": samples}, []

    def do_replay(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Replay the captured calls a number of times and wait for the device."""
        assert self._timer is not None, "only a graph is replayed"
        self._timer.replay(int(message["count"]))
        return {"ok": True}, []

    def do_outputs(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Describe the outputs of one set of the last timed round."""
        self._outputs = _as_list(self._timed[message["set"]])
        answer, data = self._describe(self._outputs, self._sets[message["set"]])
        return {**answer, "facts": self._facts({})}, data

    def do_share(self, message: dict[str, Any], _: bytearray) -> Answer:
        """Return the device time of a call, and of the same with its own kernels left out: what torch does in it."""
        call = self._bound(min(self._sets), message)
        whole = device_time(call)
        log = OperatorLog()
        with launching("none", interpreted=False):
            without = device_time(call)
            with log:
                call()
            self._synchronize()
        return {"whole_ms": whole, "without_ms": without, "facts": self._facts(log.found())}, []

    def do_release(self, _message: dict[str, Any], _: bytearray) -> Answer:
        """Forget inputs and outputs, and give the memory back."""
        self._sets, self._outputs, self._timed, self._timer = {}, [], [], None
        if self._device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
        return {"ok": True}, []

    def _synchronize(self) -> None:
        """Wait for the whole device, every stream of it."""
        if self._device != "cpu":
            torch.cuda.synchronize()

    def _facts(self, operators: Mapping[str, int]) -> dict[str, Any]:
        """Return what the candidate did beside computing, for the task worker to judge."""
        assert self._state is not None, "load comes first"
        changed = list(dict.fromkeys((*self._changed, *self._state.changes())))
        accesses = self._sanitizer.findings()
        return {"operators": dict(operators), "changed": changed, "accesses": accesses}

    def _bound(self, index: int, message: Mapping[str, Any]) -> Callable[[], Any]:
        assert self._entry is not None, "load comes first"
        keywords = {**message["scalars"], **message["config"]}
        return bind(self._entry, self._calling, self._definition, self._sets[index], keywords)

    def _calls(self, message: Mapping[str, Any]) -> list[Callable[[], Any]]:
        return [self._bound(index, message) for index in sorted(self._sets)]

    def _describe(self, outputs: list[Any], inputs: Mapping[str, torch.Tensor]) -> Answer:
        owned = {tensor.untyped_storage().data_ptr() for tensor in inputs.values()} - {0}
        described, data = [], []
        for output in outputs:
            if type(output) is not torch.Tensor:
                described.append({"type": type(output).__name__})
                continue
            if vars(output):
                # what is set on a tensor may compute when it is read
                described.append({"type": "Tensor with attributes of its own"})
                continue
            item = {"type": "Tensor", "device": output.device.type, **wire.describe(output)}
            item["aliases_input"] = output.untyped_storage().data_ptr() in owned
            if output.device.type == "cpu":
                data.append(wire.storage_bytes(output))
            elif output.numel():
                item["handle"] = wire.export_handle(output.untyped_storage())
            described.append(item)
        return {"outputs": described}, data


def _as_list(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def _keeping(call: Callable[[], Any], kept: list[Any]) -> Callable[[], Any]:
    def run() -> None:
        kept.append(call())

    return run


class _poisoned:  # noqa: N801 - reads as a clause of `with`
    """Fill what `torch.empty` returns with NaN, so that an element never written is seen."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __enter__(self) -> None:
        if self._on:
            # torch's public function for the same also imports the compiler, for 1.5 s
            torch._C._set_deterministic_algorithms(True, warn_only=True)
            # the default; said because a candidate may have turned it off
            torch._C._set_deterministic_fill_uninitialized_memory(True)

    def __exit__(self, *_: object) -> None:
        if self._on:
            torch._C._set_deterministic_algorithms(False)
