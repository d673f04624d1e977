"""Ask `nvidia-smi`. It reads; nothing here changes a device."""

from __future__ import annotations

import shutil
import subprocess
from functools import lru_cache
from typing import Any

TIMEOUT_S = 20.0
"""It answers in 0.05 s; after the driver was unloaded, in seconds."""


def device_uuid(properties: Any) -> str:
    """Return a device's name for `nvidia-smi -i`, from torch's properties of it; empty where they lack it.

    An index would not do: torch counts what CUDA_VISIBLE_DEVICES leaves over, `nvidia-smi` what is in the machine.
    """
    uuid = getattr(properties, "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else ""


def command(question: str, device: str = "") -> list[str] | None:
    """Return the command line of a question, None where there is no `nvidia-smi`.

    Args:
        question: one of its options with the fields asked for, e.g. `query-gpu=clocks.sm,power.draw`.
        device: UUID; empty asks about all.
    """
    path = shutil.which("nvidia-smi")
    if path is None:
        return None
    chosen = ["-i", device] if device else []
    return [path, *chosen, f"--{question}", "--format=csv,noheader,nounits"]


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of every line that was printed."""
    return [[cell.strip() for cell in line.split(",")] for line in text.strip().splitlines()]


def ask(question: str, device: str = "") -> list[list[str]]:
    """Return the cells of every line of the answer; none where it is missing, fails or takes 20 s."""
    line = command(question, device)
    if line is None:
        return []
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return rows_of(done.stdout) if done.returncode == 0 else []


@lru_cache(maxsize=1)
def driver_version() -> str:
    """Return the version of the NVIDIA driver; empty where nothing answers."""
    rows = ask("query-gpu=driver_version")
    return rows[0][0] if rows else ""
