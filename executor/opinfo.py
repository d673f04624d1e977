"""Judge a kernel against the samples that PyTorch's own tests draw for an operator (`op_db`), dtype by dtype.

The parent's side: it plans, runs and counts. Samples and reference live in the task worker (`opinfo_samples.py`).
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kernel_skills.executor.calling import Calling
from kernel_skills.executor.errors import InvalidPackage, NotFound, Unsatisfiable
from kernel_skills.executor.judge import Report, judge
from kernel_skills.executor.judgement import Judged, Judgement
from kernel_skills.executor.models import Definition, OpInfoSource, Record, Task, Workload
from kernel_skills.executor.problem import Problem, slug
from kernel_skills.executor.problem_batch import Judges, JudgesOptions
from kernel_skills.executor.problem_judge import (
    Verdict,
    refused,
    rejected_early,
    request_of,
    verdict_of,
)
from kernel_skills.executor.problem_solution import load_solution
from kernel_skills.executor.session import Session
from kernel_skills.executor.trace import Failed, Passed, Skipped
from kernel_skills.executor.worker_process import Mode

_CONSTANT = "DTYPES"
_CHUNK = 32
"""Samples for one candidate process: what it keeps between calls, it does not keep for long."""
_COMPILE_TRIES = 3
_REFUSAL = re.compile(r"^(?:as declared: )?(ValueError\b.*)", re.MULTILINE)
NOT_MEASURED = "speed: samples are too small to measure"


class DtypeCoverage(Record):
    """What became of the samples of one dtype."""

    dtype: str
    samples: int
    """As PyTorch draws them, and again with other strides."""
    passed: int = 0
    telling: int = 0
    """Of those passed: samples that zeros, the mean, an input or another output would fail."""
    refused: int = 0
    """The candidate raised ValueError: outside its contract, neither passed nor failed."""
    failed: int = 0
    skipped: int = 0
    """Too large for the interpreter."""
    not_run: int = 0
    """After a TIMEOUT nothing more is asked."""
    left_out: Mapping[str, int] = {}
    """Reason -> samples that cannot be judged, whatever the candidate: random results, sparse tensors."""


class OpInfoVerdict(Verdict):
    """What is said of a kernel for one operator of PyTorch."""

    op: str
    coverage: tuple[DtypeCoverage, ...] = ()
    refusals: Mapping[str, int] = {}
    """What the candidate said, and of how many samples."""


class _Sample(Record):
    dtype: str
    telling: bool
    definition: Definition
    workload: Workload

    @property
    def elements(self) -> int:
        sizes = {
            name: axis.value for name, axis in self.definition.axes.items() if axis.type == "const"
        }
        count = 0
        for spec in self.definition.outputs.values():
            lengths = [sizes[axis] for axis in spec.shape or ()]
            product = 1
            for length in lengths:
                product *= length
            count += product
        return count


def require_samples() -> None:
    """Check that PyTorch's tests can be imported here.

    Raises:
        Unsatisfiable: a package that they need is missing.
    """
    if importlib.util.find_spec("expecttest") is None:
        raise Unsatisfiable(
            "--opinfo: PyTorch's samples need the package expecttest; install it by "
            "pip install 'kernel-skills[opinfo]'"
        )


def declared_dtypes(text: str) -> tuple[str, ...]:
    """Return the dtypes of a solution's constant `DTYPES`, as names or as `torch.float16`; none where it has none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # the lint says where
        return ()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else ()
        if any(isinstance(target, ast.Name) and target.id == _CONSTANT for target in targets):
            values = getattr(node.value, "elts", ()) if isinstance(node, ast.Assign) else ()
            return tuple(name for value in values if (name := _dtype_name(value)))
    return ()


def _dtype_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return str(node.value) if isinstance(node, ast.Constant) else ""


def judge_samples(
    judges: Judges,
    op: str,
    file: Path,
    dtypes: tuple[str, ...],
    options: JudgesOptions,
    report: Report | None = None,
) -> OpInfoVerdict:
    """Judge a solution on every sample of an operator.

    Args:
        dtypes: what to judge; empty takes the solution's own `DTYPES`, else the operator's floating dtypes.

    Raises:
        Unsatisfiable: PyTorch's tests cannot be imported.
        NotFound: no such operator, dtype or file.
        InvalidPackage: PyTorch cannot draw the samples here.
    """
    require_samples()
    run = _Run(judges, op, file, dtypes, options, report or (lambda *_: None))
    return run.verdict()


class _Run:
    """One solution on one operator."""

    def __init__(
        self,
        judges: Judges,
        op: str,
        file: Path,
        dtypes: tuple[str, ...],
        options: JudgesOptions,
        report: Report,
    ) -> None:
        self._judges, self._op, self._options, self._report = judges, op, options, report
        asked = dtypes or declared_dtypes(_text(file))
        self._source = OpInfoSource(op=op, dtypes=asked, seed=judges.seed)
        self._problem = Problem(
            name=slug(f"opinfo-{op}"), form="functions", workloads=(), calling=Calling(style="tree"),
            task=Task(definition=_EMPTY, sources=(), opinfo=self._source), dtypes=asked,
            checks_not_run=(NOT_MEASURED,),
        )  # fmt: skip
        names = (op.rpartition(".")[2], op.replace(".", "_"), "run")
        solution, calling = load_solution(file, self._problem, judges.target.arch, names)
        self._request = request_of(
            self._problem, solution, calling.model_copy(update={"style": "tree"}), judges.target,
            judges.seed, options.timeout_s, options.policy,
        )  # fmt: skip

    def verdict(self) -> OpInfoVerdict:
        policy = self._options.policy
        linted = self._request.model_copy(update={"workloads": (_PLACEHOLDER,)})
        if early := rejected_early(self._problem, linted, self._judges.lint(linted), policy):
            return self._summed(early, (), {})
        mode: Mode = "device" if self._judges.device else "interpret"
        self._report("samples", 0, 1, self._op)
        session = Session(self._request, self._judges.pool, mode, self._judges.place, "")
        try:
            return self._on_samples(session)
        finally:
            session.close()

    def _on_samples(self, session: Session) -> OpInfoVerdict:
        policy = self._options.policy
        answer = self._described(session)
        samples = [_Sample.model_validate(item) for item in answer["samples"]]
        left_out: dict[str, dict[str, int]] = answer["left_out"]
        for dtype in answer["dtypes"]:
            if not any(sample.telling for sample in samples if sample.dtype == dtype):
                why = _nothing_tells(self._op, dtype, left_out[dtype])
                name = self._request.solution.name
                return self._summed(
                    refused(self._problem, name, self._judges.target, policy, why), (), left_out
                )
        compiled = self._compiled(samples, answer["dtypes"])
        if early := rejected_early(self._problem, self._request, compiled, policy):
            return self._summed(early, samples, left_out)
        judged = self._verified(session, samples)
        return self._counted(samples, judged, compiled, left_out)

    def _described(self, session: Session) -> dict[str, Any]:
        answer = session.samples()
        if "not_found" in answer:
            raise NotFound(answer["not_found"])
        if "failed" in answer:
            raise InvalidPackage(f"PyTorch's samples of {self._op}: {answer['log']}")
        return answer

    def _compiled(self, samples: list[_Sample], dtypes: Iterable[str]) -> Judgement:
        """Compile the largest sample of each dtype that the candidate takes."""
        judged: list[Judged] = []
        for position, dtype in enumerate(dtypes):
            self._report("compile", position, len(list(dtypes)), dtype)
            fitting = [sample for sample in samples if sample.dtype == dtype and sample.telling]
            fitting.sort(key=lambda sample: -sample.elements)
            for sample in fitting[:_COMPILE_TRIES]:
                task = Task(definition=sample.definition, sources=())
                request = self._request.model_copy(
                    update={"task": task, "workloads": (sample.workload,), "stages": ("compile",)}
                )
                (found,) = judge(request, self._judges.pool, self._judges.device).judged
                if not _refusal(found):
                    judged.append(found)
                    break
        return Judgement(judged=tuple(judged))

    def _verified(self, session: Session, samples: list[_Sample]) -> list[Judged]:
        judged: list[Judged] = []
        for start in range(0, len(samples), _CHUNK):
            part = tuple(sample.workload for sample in samples[start : start + _CHUNK])
            request = self._request.model_copy(update={"workloads": part, "stages": ("verify",)})
            found = judge(
                request, self._judges.pool, self._judges.device,
                self._from(start, len(samples)), session,
            )  # fmt: skip
            judged += found.judged
            if any(item.evaluation.status == "TIMEOUT" for item in found.judged):
                break
        return judged

    def _from(self, start: int, total: int) -> Report:
        """Return a report that counts all samples, not those of a part."""
        return lambda stage, at, _, what: self._report(stage, start + at, total, what)

    def _counted(
        self,
        samples: list[_Sample],
        judged: list[Judged],
        compiled: Judgement,
        left_out: Mapping[str, Mapping[str, int]],
    ) -> OpInfoVerdict:
        kept = tuple(item for item in judged if not _refusal(item))
        verdict = verdict_of(
            self._problem, self._request, Judgement(judged=kept), self._options.policy,
            prepared=compiled,
        )  # fmt: skip
        refusals = Counter(text for item in judged if (text := _refusal(item)))
        whole = self._summed(verdict, samples, left_out, judged).model_copy(
            update={"refusals": dict(refusals.most_common()), "workloads": tuple(judged)}
        )
        if not (whole.accepted or whole.outcome == "SKIPPED"):
            return whole
        empty = [one for one in whole.coverage if not one.telling and not one.skipped]
        if not empty:
            return whole
        why = next(iter(whole.refusals), "no sample that tells a kernel from nothing passes")
        return whole.model_copy(
            update={
                "verdict": "rejected", "outcome": "RUNTIME_ERROR", "level": None,
                "log": f"{empty[0].dtype}: no sample that proves anything passes; {why}",
            }
        )  # fmt: skip

    def _summed(
        self,
        verdict: Verdict,
        samples: Iterable[_Sample],
        left_out: Mapping[str, Mapping[str, int]],
        judged: Iterable[Judged] = (),
    ) -> OpInfoVerdict:
        outcomes = {item.workload.name: item for item in judged}
        coverage = tuple(
            _coverage(dtype, [s for s in samples if s.dtype == dtype], outcomes, counts)
            for dtype, counts in left_out.items()
        )
        return OpInfoVerdict.model_validate({**dict(verdict), "op": self._op, "coverage": coverage})


_EMPTY = Definition(
    name="opinfo", op_type="opinfo", axes={}, inputs={}, outputs={}, reference="op_db.py::op",
    standard_baselines=(),
)  # fmt: skip
_PLACEHOLDER = Workload(definition="opinfo", name="lint", purpose="smoke", axes={})


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # `load_solution` says what is wrong with it
        return ""


def _nothing_tells(op: str, dtype: str, left_out: Mapping[str, int]) -> str:
    reasons = "; ".join(f"{count}: {reason}" for reason, count in left_out.items())
    return f"no sample of {op} in {dtype} tells a kernel from nothing" + (
        f" ({reasons})" if reasons else ""
    )


def _refusal(item: Judged) -> str:
    """Return what the candidate said where it raised ValueError, or nothing."""
    evaluation = item.evaluation
    if not isinstance(evaluation, Failed) or evaluation.status != "RUNTIME_ERROR":
        return ""
    found = _REFUSAL.search(evaluation.log)
    return found[1] if found else ""


def _coverage(
    dtype: str,
    samples: list[_Sample],
    outcomes: Mapping[str, Judged],
    left_out: Mapping[str, int],
) -> DtypeCoverage:
    counts: Counter[str] = Counter()
    for sample in samples:
        judged = outcomes.get(sample.workload.name)
        if judged is None:
            counts["not_run"] += 1
        elif isinstance(judged.evaluation, Passed):
            counts["passed"] += 1
            counts["telling"] += sample.telling
        elif isinstance(judged.evaluation, Skipped):
            counts["skipped"] += 1
        else:
            counts["refused" if _refusal(judged) else "failed"] += 1
    return DtypeCoverage(dtype=dtype, samples=len(samples), left_out=left_out, **counts)
