"""The process that finds out whether a device still computes. It runs no foreign code."""

from __future__ import annotations

from typing import Any

import torch

from kernel_skills.executor.channel import Channel
from kernel_skills.executor.failure import describe_failure

_SIZE = 1 << 20


def serve(channel: Channel) -> None:
    """Answer one `{"device": place}` with `{"ok": bool}`, or with the failure."""
    message, _, _ = channel.receive()
    try:
        answer: dict[str, Any] = {"ok": computes(str(message["device"]))}
    except Exception as error:  # noqa: BLE001 - whatever a broken driver raises is the answer
        answer = describe_failure(error)
    channel.send(answer)


def computes(place: str) -> bool:
    """Allocate, run a kernel, copy back and compare."""
    numbers = torch.arange(_SIZE, device=place, dtype=torch.float32)
    return torch.equal((2 * numbers + 1).cpu(), 2 * torch.arange(_SIZE, dtype=torch.float32) + 1)
