"""How long a candidate waits for a warm worker: from asking for one until its kernel is loaded in the sandbox, in seconds.

Run as `.venv/bin/python benchmarks/worker_start.py`; exits 1 where the limit is missed. An idle machine;
torch's own import, once per run, is not counted.
"""

from __future__ import annotations

import statistics
import sys
import time

from kernel_skills.executor.bubblewrap import why_not_strong
from kernel_skills.executor.models import Solution, SolutionSpec, SourceFile
from kernel_skills.executor.pool import LocalPool
from kernel_skills.executor.sandbox import SandboxChoice
from kernel_skills.executor.worker_process import Mode

RUNS = 30
LIMIT_S = 0.3
SOLUTION = Solution(
    name="copy",
    definition="copy",
    spec=SolutionSpec(target_hardware=("any",), entry_point="kernel.py::copy"),
    sources=(
        SourceFile(
            path="kernel.py",
            content="import torch\nimport triton\n\n\ndef copy(x):\n    return torch.empty_like(x)\n",
        ),
    ),
)


def start_seconds(pool: LocalPool, mode: Mode) -> float:
    """Start a worker, load the kernel, end it; return the seconds until it was loaded."""
    start = time.perf_counter()
    worker = pool.start("candidate", mode)
    message = {"op": "load", "device": "cpu", "solution": SOLUTION.model_dump(mode="json")}
    answer = worker.request(message, timeout_s=60)
    seconds = time.perf_counter() - start
    assert answer == {"ok": True}, answer
    worker.end()
    return seconds


def main() -> int:
    missed = 0
    levels: list[SandboxChoice] = ["embedded"] if why_not_strong() else ["embedded", "strong"]
    for level in levels:
        with LocalPool(jobs=1, sandbox=level) as pool:
            modes: tuple[Mode, ...] = ("device", "interpret")
            for mode in modes:
                # the first waits for torch's import
                start_seconds(pool, mode)
                times = sorted(start_seconds(pool, mode) for _ in range(RUNS))
                worst = times[-1]
                missed += worst >= LIMIT_S
                verdict = "ok" if worst < LIMIT_S else "MISSED"
                print(
                    f"{level:8} {mode:9} median {statistics.median(times):.3f} s, worst {worst:.3f} s "
                    f"of {RUNS}  (limit {LIMIT_S} s)  {verdict}"
                )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
