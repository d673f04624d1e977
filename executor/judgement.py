"""What one run of the judge found: an outcome for each Workload, and for each check of the package."""

from __future__ import annotations

from typing import Literal

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.models import Record, Workload
from kernel_skills.executor.trace import CheckOutcome, Evaluation, Finding


class CheckResult(Record):
    """One `check_*` of the package's validate.py."""

    name: str
    outcome: CheckOutcome
    log: str = ""


class Judged(Record):
    workload: Workload
    evaluation: Evaluation


class Judgement(Record):
    findings: tuple[Finding, ...] = ()
    judged: tuple[Judged, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    warnings: tuple[str, ...] = ()
    """About the device: busy, shared or partitioned while it was measured on."""

    @property
    def accepted(self) -> bool:
        """Something passed, and everything that ran."""
        return self.verdict == "accepted"

    @property
    def verdict(self) -> Literal["accepted", "not accepted", "not verified"]:
        """`not verified`: nothing failed, but nothing ran that could have; compiled at most."""
        statuses = {item.evaluation.status for item in self.judged}
        failed = any(check.outcome == "failed" for check in self.checks)
        if self.findings or failed or not statuses <= {"PASSED", "SKIPPED"}:
            return "not accepted"
        return "accepted" if "PASSED" in statuses else "not verified"


class JudgementCut(InvalidPackage):
    """The Task's own code failed in the middle.

    Attributes:
        judgement: what was found until then.
    """

    def __init__(self, text: str, judgement: Judgement) -> None:
        super().__init__(text)
        self.judgement = judgement
