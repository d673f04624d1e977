"""The environment variables of a process that runs a package's code."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def worker_environment() -> dict[str, str]:
    """Return this process's variables with those set that decide what a kernel computes, and an import path that holds.

    For a process started with `-P`, in whatever folder.
    """
    env = dict(os.environ)
    if "PYTHONPATH" in env:
        # absolute, since children change their folder; without the script's own folder, where a
        # stray torch.py would be taken for the real one
        paths = sys.path if sys.flags.safe_path else sys.path[1:]
        env["PYTHONPATH"] = os.pathsep.join(p for p in paths if Path(p).is_absolute())
    # the default changes in Triton 3.10; a record must say the same thing on both sides of it
    env["TRITON_DEFAULT_FP_FUSION"] = "1"
    env.pop("TRITON_INTERPRET", None)
    return env
