"""Whether a device may be used: looked at in a new process after a worker died on it, shut out after two failures.

The mark lies in the user's temporary folder, so that every process of the user heeds it, and holds until the machine
is started again or somebody removes it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from kernel_skills.executor.channel import ChannelError
from kernel_skills.executor.errors import DeviceQuarantined
from kernel_skills.executor.models import Record
from kernel_skills.executor.trace import now

PROBE_TRIES = 2
PROBE_SECONDS = 30.0
"""A CUDA context takes 0.3 to 2 s; a hung driver never answers."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mark(Record):
    """Why a device is shut out."""

    device: str
    reason: str
    since: str
    boot: str


def mark_file(folder: Path, device: str) -> Path:
    return folder / f"gpu-{device}.quarantined"


def marks(folder: Path) -> list[tuple[Path, Mark]]:
    """Return what is shut out since the machine started, with the files that say so."""
    found = []
    for path in sorted(folder.glob("gpu-*.quarantined")):
        try:
            mark = Mark.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            continue
        if mark.boot == _boot():
            found.append((path, mark))
    return found


def require_healthy(folder: Path, device: str) -> None:
    """Raise if the device is shut out.

    Args:
        folder: where marks lie.
        device: `Device.identity`.

    Raises:
        DeviceQuarantined: with the reason and the mend.
    """
    for path, mark in marks(folder):
        if mark.device == device:
            raise DeviceQuarantined(in_words(path, mark))


def in_words(path: Path, mark: Mark) -> str:
    return (
        f"GPU {mark.device} is in quarantine since {mark.since}: {mark.reason}; reset it "
        f"(nvidia-smi --gpu-reset -i {mark.device}) or restart the machine, then remove {path}"
    )


def examine(folder: Path, device: str, probe: Callable[[], str]) -> None:
    """Probe a device on which a worker died; shut it out if it fails twice.

    Args:
        probe: looks at the device in a new process; returns what is wrong, or nothing.

    Raises:
        DeviceQuarantined: it failed.
    """
    for _ in range(PROBE_TRIES):
        wrong = probe()
        if not wrong:
            return
    mark = Mark(
        device=device, reason=f"it failed {PROBE_TRIES} probes: {wrong}",
        since=now().isoformat(timespec="seconds"), boot=_boot(),
    )  # fmt: skip
    path = mark_file(folder, device)
    path.write_text(mark.model_dump_json())
    raise DeviceQuarantined(in_words(path, mark))


def words_of_failure(error: ChannelError) -> str:
    return f"the probe did not answer: {error}"


def _boot() -> str:
    return _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
