"""How fast the command starts: best of ten runs of `skills --help` and `skills list`, in seconds.

Run as `.venv/bin/python benchmarks/cli_speed.py`; exits 1 where a limit is missed. Warm file cache; an idle machine.
"""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 10
LIMITS_S = {("--help",): 0.25, ("list",): 0.5}


def best_seconds(arguments: tuple[str, ...]) -> float:
    """Return the shortest wall time of a process that runs the command."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "kernel_skills.cli.main", *arguments],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    missed = 0
    for arguments, limit_s in LIMITS_S.items():
        seconds = best_seconds(arguments)
        missed += seconds >= limit_s
        words = " ".join(arguments)
        verdict = "ok" if seconds < limit_s else "MISSED"
        print(f"skills {words:8} {seconds:.3f} s  (limit {limit_s} s)  {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
