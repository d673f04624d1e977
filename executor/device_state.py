"""Clocks, power and load of a GPU as `nvidia-smi` reports them. They are read, never changed."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

_FIELDS = {
    "sm_clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_watts": "power.draw",
    "temperature_celsius": "temperature.gpu",
    "utilisation_before_percent": "utilization.gpu",
    "mig": "mig.mode.current",
}
_TIMEOUT_S = 10.0


class DeviceStateReader:
    """One `nvidia-smi` query in the background, so that the device can be kept busy while it reads."""

    def __init__(self, device: str) -> None:
        index = device.partition(":")[2] or "0"
        self._process: subprocess.Popen[str] | None = None
        if path := shutil.which("nvidia-smi"):
            command = [
                path, "-i", index, f"--query-gpu={','.join(_FIELDS.values())}",
                "--format=csv,noheader,nounits",
            ]  # fmt: skip
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )

    def done(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def result(self) -> dict[str, Any] | None:
        """Return the fields of `trace.DeviceState`, those that the driver reports."""
        if self._process is None:
            return None
        try:
            text, _ = self._process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return None
        values = [value.strip() for value in text.strip().split(",")]
        if len(values) != len(_FIELDS):
            return None
        parsed = {name: _parse(value) for name, value in zip(_FIELDS, values, strict=True)}
        return {name: value for name, value in parsed.items() if value is not None}


def _parse(value: str) -> float | bool | None:
    if value in ("Enabled", "Disabled"):
        return value == "Enabled"
    try:
        return float(value)
    except ValueError:
        return None  # "[N/A]", "[Not Supported]"
