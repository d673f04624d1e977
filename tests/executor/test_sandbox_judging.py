"""Attacks seen from the verdict: each is a typed outcome, blames the right side, and costs the next candidate nothing."""

from __future__ import annotations

import json
import struct

import pytest

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.trace import Environment, Passed

from .conftest import KERNEL, REFERENCE, JudgeKernel
from .test_judge import at_import, failure, first_line, only

FORKS = (
    "import os, time\nfor _ in range(100):\n    if os.fork() == 0:\n        time.sleep(30)\n        os._exit(0)\n"
    "time.sleep(30)"
)


@pytest.mark.parametrize(
    ("content", "status", "words"),
    [
        pytest.param(at_import(FORKS), "RUNTIME_ERROR", "ended by the sandbox: ", id="fork bomb"),
        pytest.param(
            first_line("torch.empty(25 << 30).fill_(1.0)"), "RUNTIME_ERROR", "can't allocate memory", id="100 GB",
        ),
        pytest.param(at_import("import os; os._exit(0)"), "RUNTIME_ERROR", "exit status 0", id="exit 0"),
        pytest.param(
            at_import("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass"),
            "TIMEOUT", "no answer within 1 s (SIGKILL)", id="SIGTERM ignored",
        ),
        pytest.param(
            first_line("open('/tmp/out', 'w')"), "RUNTIME_ERROR", "PermissionError", id="a file outside"
        ),
    ],
)  # fmt: skip
def test_an_attack_is_a_typed_outcome_and_the_next_result_is_right(
    judge_kernel: JudgeKernel, content: str, status: str, words: str
) -> None:
    found, log = failure(judge_kernel(content, timeout_s=1 if status == "TIMEOUT" else 20))
    assert found == status
    assert words in log
    assert judge_kernel().accepted


def test_an_outcome_says_what_held_the_workers(judge_kernel: JudgeKernel) -> None:
    outcome = only(judge_kernel())
    assert isinstance(outcome, Passed)
    assert outcome.environment.sandbox is not None
    assert outcome.environment.sandbox.level == "embedded"


def test_a_record_older_than_the_sandbox_loads() -> None:
    old = {"hardware": "H200", "sandbox": "none"}
    assert Environment.model_validate(old).sandbox is None
    assert Environment.model_validate({"hardware": "H200"}).sandbox is None


# --- the package's own code -------------------------------------------------------------------


def test_a_reference_sees_no_other_worker_and_no_home(judge_kernel: JudgeKernel) -> None:
    reference = (
        "import os, socket\n"
        "def denied(attempt):\n"
        "    try:\n        attempt()\n    except (PermissionError, FileNotFoundError):\n        return True\n"
        "assert denied(lambda: os.listdir('..'))\n"
        "assert denied(lambda: os.listdir('/root'))\n"
        "assert denied(lambda: open('/tmp/out', 'w'))\n"
        "assert denied(lambda: socket.socket())\n"
    )
    judgement = judge_kernel(KERNEL, files={"reference": reference + REFERENCE})
    assert judgement.accepted, only(judgement)


FORGER = """
import os, socket
for fd in map(int, os.listdir("/proc/self/fd")):
    try:
        link = os.readlink(f"/proc/self/fd/{{fd}}")
    except OSError:
        continue
    if link.startswith("socket:"):
        os.write(fd, bytes.fromhex("{data}"))
"""


def frame(answer: object) -> bytes:
    header = json.dumps(answer).encode()
    return struct.pack("<4sIQ", b"KSF1", len(header), 0) + header


CORRECT = {"max_relative_error": 0.0, "max_absolute_error": 0.0}


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([{}, {}], id="checks missing"),
        pytest.param([{}, {"checks": 5}], id="checks that are no list"),
        pytest.param([{}, {"checks": []}, {}, {"status": "GREAT"}], id="an unknown outcome"),
        pytest.param([{}, {"checks": []}, {}, {"status": "PASSED"}], id="no errors"),
        pytest.param(
            [{}, {"checks": []}, {}, {"status": "PASSED", "correctness": {**CORRECT, "max_relative_error": "x"}}],
            id="errors that are no numbers",
        ),
        pytest.param(
            [{}, {"checks": []}, {}, {"status": "PASSED", "correctness": CORRECT, "log": ["x"]}],
            id="a log that is no text",
        ),
        pytest.param([{}, {"checks": []}, {}, {}], id="nothing at all"),
    ],
)  # fmt: skip
def test_a_package_that_forges_its_task_workers_answers_is_invalid(
    judge_kernel: JudgeKernel, answers: list[object]
) -> None:
    data = b"".join(map(frame, answers)).hex()
    with pytest.raises(InvalidPackage):
        judge_kernel(KERNEL, files={"reference": FORGER.format(data=data) + REFERENCE})
    assert judge_kernel().accepted
