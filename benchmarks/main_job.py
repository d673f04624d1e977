"""What the main job costs without a GPU: wall time and peak memory of `skills run flash-attn --target h100`.

Triton's cache and the data home start empty. Memory is the sum of the proportional set sizes of the whole process tree,
so that pages that forked workers share count once; sampled every 0.2 s.

Run as `.venv/bin/python benchmarks/main_job.py [SKILL]`; exits 1 where a limit is missed.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time

import psutil

LIMIT_S = 60.0
LIMIT_BYTES = 3_000_000_000
INTERVAL_S = 0.2


def tree_bytes(process: psutil.Process) -> int:
    """Return the memory of a process and its descendants; those that end meanwhile count nothing."""
    total = 0
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    for member in family:
        try:
            total += member.memory_full_info().pss
        except (psutil.Error, OSError):
            continue
    return total


def main() -> int:
    skill = sys.argv[1] if len(sys.argv) > 1 else "flash-attn"
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "KERNEL_SKILLS_HOME": f"{folder}/home",
        }
        command = [sys.executable, "-m", "kernel_skills.cli.main", "run", skill, "--target", "h100"]
        start = time.perf_counter()
        process = psutil.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        peak = 0
        while process.poll() is None:
            peak = max(peak, tree_bytes(process))
            time.sleep(INTERVAL_S)
        seconds = time.perf_counter() - start
    print(f"skills run {skill} --target h100: exit {process.returncode}")
    print(
        f"wall time    {seconds:6.1f} s   (limit {LIMIT_S:.0f} s)   {_verdict(seconds < LIMIT_S)}"
    )
    # what an idle machine would need is between this and, on two cores, half of it
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"CPU time     {used.ru_utime + used.ru_stime:6.1f} s")
    print(
        f"peak memory  {peak / 1e9:6.2f} GB  (limit {LIMIT_BYTES / 1e9:.0f} GB)   {_verdict(peak < LIMIT_BYTES)}"
    )
    fine = process.returncode == 0 and seconds < LIMIT_S and peak < LIMIT_BYTES
    return 0 if fine else 1


def _verdict(fine: bool) -> str:
    return "ok" if fine else "MISSED"


if __name__ == "__main__":
    sys.exit(main())
