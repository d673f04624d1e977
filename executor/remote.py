"""The candidate, seen from the task worker: inputs go into its memory, outputs are read out of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernel_skills.executor import wire
from kernel_skills.executor.channel import Channel, MalformedFrame, PeerGone, PeerSilent
from kernel_skills.executor.failure import reported_status
from kernel_skills.executor.launch_modes import LaunchMode
from kernel_skills.executor.models import Scalar


class CandidateFailed(Exception):
    """The candidate did not answer a request as it should.

    Attributes:
        status: a failed status of `trace.FailedStatus`.
        dead: the process must be replaced before the next request.
    """

    def __init__(self, status: str, log: str, dead: bool) -> None:
        super().__init__(log)
        self.status, self.log, self.dead = status, log, dead


@contextlib.contextmanager
def _well_formed() -> Iterator[None]:
    """Turn whatever is wrong in an answer's fields into CHEATING: the harness's own code never answers so."""
    try:
        yield
    except (MalformedFrame, LookupError, TypeError, ValueError, ArithmeticError) as error:
        log = f"malformed result frame: {error}"
        raise CandidateFailed("CHEATING", log, dead=True) from error


@dataclass(frozen=True)
class Output:
    """One returned value: a tensor that lives in the task worker's or the candidate's memory."""

    type_name: str
    tensor: torch.Tensor | None = None
    aliases_input: bool = False


class RemoteCandidate:
    """Requests to one candidate worker."""

    def __init__(self, channel: Channel, device: str, timeout_s: float) -> None:
        self._channel, self._device, self._timeout_s = channel, device, timeout_s
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
    ) -> list[Output]:
        """Run the entry once on a set, its fresh memory poisoned with NaN."""
        message = {
            "op": "call", "set": index, "scalars": dict(scalars), "config": dict(config), "poison": True,
            "launches": launches,
        }  # fmt: skip
        return self._outputs(*self._ask(message))

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
        self, scalars: Mapping[str, Any], config: Mapping[str, Scalar], check: int
    ) -> tuple[list[float], list[Output]]:
        """Time one round over all sets; return the samples and the outputs of the set `check`."""
        message = {
            "op": "time", "scalars": dict(scalars), "config": dict(config), "check": check,
        }  # fmt: skip
        answer, data = self._ask(message)
        with _well_formed():
            samples = [float(sample) for sample in answer["samples"]]
            if not samples or not all(math.isfinite(s) and s > 0 for s in samples):
                raise ValueError("times that no clock shows")
        return samples, self._outputs(answer, data)

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
            raise CandidateFailed("TIMEOUT", log, dead=True) from error
        except PeerGone as error:
            raise CandidateFailed(
                "RUNTIME_ERROR", "the candidate's process ended", dead=True
            ) from error
        except MalformedFrame as error:
            raise CandidateFailed(
                "CHEATING", f"malformed result frame: {error}", dead=True
            ) from error
        if "failed" in answer:
            status = reported_status(answer)
            dead = bool(answer.get("device_lost")) or status == "CHEATING"
            raise CandidateFailed(status, str(answer.get("log", "")), dead)
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
            tensor = wire.rebuild(storage, item)
            if item["device"] != torch.device(self._device).type:
                outputs.append(Output(f"Tensor on {item['device']}"))
                continue
            outputs.append(Output("Tensor", tensor, bool(item["aliases_input"])))
        return outputs
