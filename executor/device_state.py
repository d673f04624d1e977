"""Clocks, power and load of a GPU as `nvidia-smi` reports them. They are read, never changed."""

from __future__ import annotations

import subprocess
from typing import Any

from kernel_skills.executor.nvidia_smi import TIMEOUT_S, ask, command, rows_of

_FIELDS = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_watts": "power.draw",
    "temperature_celsius": "temperature.gpu",
}
_BUSY_PERCENT = 10.0


class DeviceStateReader:
    """One `nvidia-smi` query in the background, so that the device can be kept busy while it reads."""

    def __init__(self, uuid: str) -> None:
        self._process: subprocess.Popen[str] | None = None
        # without a name it would answer for all, or for another
        line = command(f"query-gpu={','.join(_FIELDS.values())}", uuid) if uuid else None
        if line is not None:
            self._process = subprocess.Popen(
                line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )

    def done(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def result(self) -> dict[str, Any] | None:
        """Return the fields of `trace.DeviceState`, those that the driver reports."""
        if self._process is None:
            return None
        try:
            text, _ = self._process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return None
        rows = rows_of(text)
        if len(rows) != 1 or len(rows[0]) != len(_FIELDS):
            return None
        parsed = {name: _parse(value) for name, value in zip(_FIELDS, rows[0], strict=True)}
        return {name: value for name, value in parsed.items() if value is not None}


def load_before(uuid: str) -> dict[str, Any]:
    """Return what else goes on on a GPU before we use it: fields of `trace.DeviceState`, empty where nothing answers."""
    rows = ask("query-gpu=utilization.gpu,mig.mode.current", uuid) if uuid else []
    if len(rows) != 1 or len(rows[0]) != 2:
        return {}
    utilisation, mig = map(_parse, rows[0])
    found = {
        "utilisation_before_percent": utilisation, "mig": mig,
        "other_processes": len(ask("query-compute-apps=pid", uuid)),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def warnings_of(load: dict[str, Any]) -> tuple[str, ...]:
    """Return what a reader of the figures must know of the device."""
    found = []
    if load.get("mig"):
        found.append(
            "the GPU is partitioned (MIG): figures are of a part of it, percentages of the whole"
        )
    if load.get("utilisation_before_percent", 0) > _BUSY_PERCENT:
        found.append(f"the GPU was {load['utilisation_before_percent']:.0f} % busy before the run")
    if load.get("other_processes"):
        found.append(f"{load['other_processes']} other processes hold the GPU")
    return tuple(found)


def _parse(value: str) -> float | bool | None:
    if value in ("Enabled", "Disabled"):
        return value == "Enabled"
    try:
        return float(value)
    except ValueError:
        return None  # "[N/A]", "[Not Supported]"
