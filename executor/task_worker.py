"""The process that knows the reference: draws inputs, compares, times baselines, runs a package's own checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernel_skills.executor.admission import describe_problem, refusal
from kernel_skills.executor.bench import Baselines, bench_workload
from kernel_skills.executor.channel import Channel
from kernel_skills.executor.checks import list_checks, run_check
from kernel_skills.executor.failure import describe_failure
from kernel_skills.executor.models import SourceFile, Task, Workload
from kernel_skills.executor.nvidia_smi import device_uuid
from kernel_skills.executor.reference import Reference, ReferenceFailed
from kernel_skills.executor.reference_memo import KeptReference
from kernel_skills.executor.remote import CandidateFailed, RemoteCandidate
from kernel_skills.executor.seeds import derive_seed
from kernel_skills.executor.verify import too_large_for_interpreter, verify_workload


def serve(channel: Channel) -> None:
    """Answer the parent until it closes the channel."""
    worker = TaskWorker()
    while True:
        message, _, fds = channel.receive()
        operation: Callable[[dict[str, Any], list[int]], dict[str, Any]] = getattr(
            worker, f"do_{message['op']}"
        )
        try:
            answer = operation(message, fds)
        except CandidateFailed as failed:
            answer = {
                "status": failed.status, "log": failed.log, "dead": failed.dead, "rule": failed.rule,
            }  # fmt: skip
        except ReferenceFailed as failed:
            answer = {
                "failed": "RUNTIME_ERROR",
                "log": str(failed),
                "by": "reference",
                "who": failed.who,
            }
        except BaseException as error:  # noqa: BLE001 - a package's reference is foreign code, too
            answer = {**describe_failure(error), "by": "task"}
        channel.send(answer)


class TaskWorker:
    """One Task, and the candidate attached at the moment."""

    def __init__(self) -> None:
        self._device = "cpu"
        self._task: Task | None = None
        self._reference: Reference | None = None
        self._candidate: RemoteCandidate | None = None
        self._strict = True
        self._keep = False
        self._baselines: dict[str, Baselines] = {}

    def do_open(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Load the reference. Matrix products keep full float32 on both sides: like is compared with like."""
        self._device, self._keep = message["device"], bool(message.get("keep"))
        if self._device != "cpu":
            torch.cuda.set_device(torch.device(self._device))
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self._task = Task.model_validate(message["task"])
        if self._task.opinfo is not None:
            # PyTorch's tests take 2 s to import
            from kernel_skills.executor.opinfo_samples import OpInfoReference

            self._reference = OpInfoReference(self._task, self._device)
        else:
            kind = KeptReference if self._keep else Reference
            self._reference = kind(self._task)
        return {"ok": True, **(self._describe_device() if self._device != "cpu" else {})}

    def do_probe(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Describe a GPU, or nothing where there is none with this index."""
        index = message["device"]
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            return {}
        self._device = f"cuda:{index}"
        return self._describe_device()

    def _describe_device(self) -> dict[str, Any]:
        properties = torch.cuda.get_device_properties(self._device)
        arch = properties.gcnArchName.split(":")[0] if torch.version.hip else ""
        return {
            "hardware": properties.name,
            "uuid": device_uuid(properties),
            "arch": arch or f"sm_{properties.major}{properties.minor}",
            "cuda": torch.version.cuda or torch.version.hip or "",
        }

    def do_attach(self, message: dict[str, Any], fds: list[int]) -> dict[str, Any]:
        """Take over the channel of a candidate worker, and judge its import; the one before is let go."""
        if self._candidate is not None:
            self._candidate.close()
        channel = Channel.from_fd(fds[0])
        self._strict = message["policy"] == "strict"
        self._candidate = RemoteCandidate(
            channel, self._device, message["timeout_s"], message["policy"]
        )
        self._candidate.judge_loaded(message["facts"])
        return {"ok": True}

    def do_reference(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Run the reference alone on a Workload: does it run, and does it return what is declared?"""
        reference, workload = self._loaded(), Workload.model_validate(message["workload"])
        tensors, scalars = reference.draw(workload, derive_seed(message["seed"]), self._device)
        reference.honest(tensors, scalars, workload)
        return {"status": "PASSED", "log": ""}

    def do_describe(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Say what a problem file draws and returns; no Task is open yet."""
        sources = [SourceFile.model_validate(source) for source in message["sources"]]
        return describe_problem(sources, message["adapter"], message["device"])

    def do_samples(self, _message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Say which samples PyTorch draws for the operator of the Task."""
        return self._loaded().describe()

    def do_admit(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Say why a Workload cannot tell a kernel from nothing, or nothing."""
        workload = Workload.model_validate(message["workload"])
        if self._device == "cpu" and too_large_for_interpreter(self._loaded(), workload):
            # it is skipped when its turn comes
            return {"refusal": ""}
        return {"refusal": refusal(self._loaded(), workload, message["seed"], self._device)}

    def do_verify(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        workload = Workload.model_validate(message["workload"])
        reference = self._loaded().at(workload)
        if self._device == "cpu" and (reason := too_large_for_interpreter(reference, workload)):
            return {"status": "SKIPPED", "log": reason}
        verdict = verify_workload(
            reference, self._attached(), workload,
            seed=message["seed"], device=self._device, config=message["config"],
            constraints=message["constraints"],
        )  # fmt: skip
        self._attached().release()
        return {
            "status": verdict.status, "log": verdict.log, "correctness": verdict.correctness(),
            "checks_not_run": verdict.checks_not_run, "rule": verdict.rule,
            "torch_operators": verdict.torch_operators, "seconds": verdict.seconds,
        }  # fmt: skip

    def do_bench(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Measure a Workload; its baselines once, where many candidates of one problem come."""
        reference, workload = self._loaded(), Workload.model_validate(message["workload"])
        measurement = bench_workload(
            reference, self._attached(), workload,
            seed=message["seed"], device=self._device, config=message["config"],
            baselines=reference.definition.baselines if message["baselines"] else None,
            measured=self._baselines.get(workload.uuid), strict=self._strict,
        )  # fmt: skip
        if self._keep and measurement.verdict.passed and measurement.baselines:
            found = Baselines(measurement.baselines, measurement.errors)
            self._baselines.setdefault(workload.uuid, found)
        self._attached().release()
        return measurement.to_json()

    def do_list_checks(self, _message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        return {"checks": list_checks(self._loaded())}

    def do_check(self, message: dict[str, Any], _: list[int]) -> dict[str, Any]:
        """Run one `check_*` function of validate.py against the attached candidate."""
        dtypes = message["dtypes"]
        outcome, log = run_check(
            self._loaded(), self._attached(), message["name"],
            device=self._device, dtypes=dtypes, seed=message["seed"],
            constraints=message["constraints"],
        )  # fmt: skip
        self._attached().release()
        return {"outcome": outcome, "log": log}

    def _loaded(self) -> Reference:
        assert self._reference is not None, "open comes first"
        return self._reference

    def _attached(self) -> RemoteCandidate:
        assert self._candidate is not None, "attach comes first"
        return self._candidate
