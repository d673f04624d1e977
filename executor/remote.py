"""The candidate, seen from the task worker: inputs go into its memory, outputs are read out of it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernel_skills.executor import wire
from kernel_skills.executor.channel import Channel, MalformedFrame, PeerGone, PeerSilent
from kernel_skills.executor.failure import reported_status
from kernel_skills.executor.launch_modes import LaunchMode
from kernel_skills.executor.lint import Policy
from kernel_skills.executor.models import Scalar
from kernel_skills.executor.operator_log import (
    compute_operators,
    moves_data,
    objection_to_operators,
)
from kernel_skills.executor.process_state import objection_to_state


class CandidateFailed(Exception):
    """The candidate did not answer a request as it should.

    Attributes:
        status: a failed status of `trace.FailedStatus`.
        dead: the process must be replaced before the next request.
        rule: the check of the runtime that it broke; empty where it merely failed.
    """

    def __init__(self, status: str, log: str, dead: bool, rule: str = "") -> None:
        super().__init__(log)
        self.status, self.log, self.dead, self.rule = status, log, dead, rule


@contextlib.contextmanager
def _well_formed() -> Iterator[None]:
    """Turn whatever is wrong in an answer's fields into CHEATING: the harness's own code never answers so."""
    try:
        yield
    except (
        MalformedFrame, LookupError, TypeError, ValueError, ArithmeticError, AttributeError,
    ) as error:  # fmt: skip
        log = f"malformed result frame: {error}"
        raise CandidateFailed("CHEATING", log, dead=True, rule="R-protocol") from error


@dataclass(frozen=True)
class Output:
    """One returned value: a tensor that lives in the task worker's or the candidate's memory."""

    type_name: str
    tensor: torch.Tensor | None = None
    aliases_input: bool = False


class RemoteCandidate:
    """Requests to one candidate worker; what it reports of itself is judged with every answer."""

    def __init__(
        self, channel: Channel, device: str, timeout_s: float, policy: Policy = "strict"
    ) -> None:
        self._channel, self._device, self._timeout_s = channel, device, timeout_s
        self._policy: Policy = policy
        self.torch_operators: dict[str, int] = {}
        """Operators of torch that computed in the last call, with how often."""
        self._mapped: dict[int, dict[str, torch.UntypedStorage]] = {}

    def place(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Copy a set of inputs into the candidate's memory, strides and offsets kept."""
        message = {
            "op": "place", "set": index,
            "tensors": {name: wire.describe(tensor) for name, tensor in tensors.items()},
        }  # fmt: skip
        if self._device == "cpu":
            self._ask(message, [wire.storage_bytes(tensor) for tensor in tensors.values()])
            return
        answer, _ = self._ask(message)
        device = torch.device(self._device).index or 0
        with _well_formed():
            self._mapped[index] = {
                name: wire.import_handle(answer["handles"][name], device) for name in tensors
            }
        self.refill(index, tensors)

    def refill(self, index: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Write new values over a set that was placed before."""
        if self._device == "cpu":
            self.place(index, tensors)
            return
        for name, tensor in tensors.items():
            source = wire.flat_bytes(tensor.untyped_storage())
            wire.flat_bytes(self._mapped[index][name])[: source.numel()].copy_(source)
        torch.cuda.synchronize()

    def call(
        self,
        index: int,
        scalars: Mapping[str, Any],
        config: Mapping[str, Scalar],
        launches: LaunchMode = "usual",
        gradients: bool = True,
    ) -> list[Output]:
        """Run the entry once on a set, its fresh memory poisoned with NaN.

        Args:
            gradients: whether torch is in grad mode meanwhile.
        """
        message = {
            "op": "call", "set": index, "scalars": dict(scalars), "config": dict(config), "poison": True,
            "launches": launches, "gradients": gradients,
        }  # fmt: skip
        answer, data = self._ask(message)
        self._judge_facts(answer)
        return self._outputs(answer, data)

    def inputs_intact(self, index: int, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Tell whether the candidate's copies still hold what was placed."""
        if self._device == "cpu":
            _, data = self._ask({"op": "inputs", "set": index})
            return bytes(data) == b"".join(wire.storage_bytes(t) for t in tensors.values())
        return all(
            torch.equal(
                wire.flat_bytes(tensor.untyped_storage()),
                wire.flat_bytes(self._mapped[index][name])[: tensor.untyped_storage().nbytes()],
            )
            for name, tensor in tensors.items()
        )

    def prepare_timing(
        self, scalars: Mapping[str, Any], config: Mapping[str, Scalar], method: str | None = None
    ) -> str:
        message = {
            "op": "prepare_timing", "scalars": dict(scalars), "config": dict(config), "method": method,
        }  # fmt: skip
        answer, _ = self._ask(message)
        with _well_formed():
            if answer["method"] not in ("events", "graph"):
                raise ValueError(f"no timing method {answer['method']!r}")
            return str(answer["method"])

    def time(
        self, scalars: Mapping[str, Any], config: Mapping[str, Scalar], *, empty: bool = False
    ) -> tuple[list[float], float]:
        """Time one round over all sets; return its samples, and how long the answer took on our own clock.

        Args:
            empty: a round without calls, for what the answer itself takes.
        """
        message = {
            "op": "time", "scalars": dict(scalars), "config": dict(config), "empty": empty,
        }  # fmt: skip
        start = time.perf_counter()
        answer, _ = self._ask(message)
        wall_ms = 1e3 * (time.perf_counter() - start)
        with _well_formed():
            samples = [float(sample) for sample in answer["samples"]]
            if bool(samples) == empty or not all(math.isfinite(s) and s > 0 for s in samples):
                raise ValueError("times that no clock shows")
        return samples, wall_ms

    def replay(self, count: int) -> float:
        """Let the captured calls be replayed; return how long the answer took on our own clock, in milliseconds."""
        start = time.perf_counter()
        self._ask({"op": "replay", "count": count})
        return 1e3 * (time.perf_counter() - start)

    def timed_outputs(self, index: int) -> list[Output]:
        """Return the outputs of one set of the last timed round."""
        answer, data = self._ask({"op": "outputs", "set": index})
        self._judge_facts(answer)
        return self._outputs(answer, data)

    def torch_share(
        self, scalars: Mapping[str, Any], config: Mapping[str, Scalar]
    ) -> tuple[float, bool]:
        """Return the share of a call's device time that is left when its own kernels are not launched.

        And whether the operators that torch then runs, as far as they are seen, take time at all.
        """
        answer, _ = self._ask({"op": "share", "scalars": dict(scalars), "config": dict(config)})
        with _well_formed():
            whole, without = float(answer["whole_ms"]), float(answer["without_ms"])
            if not (math.isfinite(whole) and math.isfinite(without) and whole > 0 and without >= 0):
                raise ValueError("times that no clock shows")
            moves = moves_data({str(name): 1 for name in answer["facts"]["operators"]})
        return min(without / whole, 1.0), moves

    def judge_loaded(self, facts: Mapping[str, Any]) -> None:
        """Judge what changed while the candidate was imported.

        Raises:
            CandidateFailed: something that the policy forbids.
        """
        self._judge_facts({"facts": facts})

    def _judge_facts(self, answer: Mapping[str, Any]) -> None:
        with _well_formed():
            facts = answer["facts"]
            operators = {str(name): int(count) for name, count in facts["operators"].items()}
            changed = [str(name) for name in facts["changed"]]
            accesses = [str(finding) for finding in facts["accesses"]]
        self.torch_operators = compute_operators(operators)
        if log := objection_to_state(changed, self._policy):
            raise CandidateFailed("CHEATING", log, dead=False, rule="R-state")
        if log := objection_to_operators(operators, self._policy):
            raise CandidateFailed("CHEATING", log, dead=False, rule="R-dispatch")
        if accesses:
            log = "; ".join(accesses)
            raise CandidateFailed("RUNTIME_ERROR", log, dead=False, rule="R-sanitizer")

    def release(self) -> None:
        self._mapped.clear()
        if self._device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.ipc_collect()
        self._ask({"op": "release"})

    def close(self) -> None:
        self._mapped.clear()
        self._channel.close()

    def _ask(
        self, message: dict[str, Any], blob: list[memoryview] | None = None
    ) -> tuple[dict[str, Any], bytearray]:
        try:
            answer, data = self._channel.request(message, blob or [], timeout_s=self._timeout_s)
        except PeerSilent as error:
            log = f"no answer to {message['op']!r} within {self._timeout_s:g} s"
            raise CandidateFailed("TIMEOUT", log, dead=True, rule="R-timeout") from error
        except PeerGone as error:
            log = "the candidate's process ended"
            raise CandidateFailed("RUNTIME_ERROR", log, dead=True, rule="R-exit") from error
        except MalformedFrame as error:
            log = f"malformed result frame: {error}"
            raise CandidateFailed("CHEATING", log, dead=True, rule="R-protocol") from error
        if "failed" in answer:
            status = reported_status(answer)
            dead = bool(answer.get("device_lost")) or status == "CHEATING"
            rule = "R-protocol" if status == "CHEATING" else ""
            raise CandidateFailed(status, str(answer.get("log", "")), dead, rule)
        return answer, data

    def _outputs(self, answer: dict[str, Any], data: bytearray) -> list[Output]:
        with _well_formed():
            return self._parse_outputs(answer["outputs"], memoryview(data))

    def _parse_outputs(self, described: list[dict[str, Any]], data: memoryview) -> list[Output]:
        outputs, position = [], 0
        for item in described:
            if item["type"] != "Tensor":
                outputs.append(Output(str(item["type"])))
                continue
            size = int(item["storage_bytes"])
            if "handle" in item:
                device = torch.device(self._device).index or 0
                storage = wire.import_handle(item["handle"], device)
            else:
                storage = wire.storage_from_bytes(data[position : position + size])
                position += size
                if size == 0 and self._device != "cpu":
                    # memory of no bytes has no handle, but a place all the same
                    storage = torch.empty(
                        0, dtype=torch.uint8, device=self._device
                    ).untyped_storage()
            tensor = wire.rebuild(storage, item)
            if item["device"] != torch.device(self._device).type:
                outputs.append(Output(f"Tensor on {item['device']}"))
                continue
            outputs.append(Output("Tensor", tensor, bool(item["aliases_input"])))
        return outputs
