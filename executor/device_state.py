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


_BUSY_PERCENT = 10.0


def load_before(device: str) -> dict[str, Any]:
    """Return what else goes on on a GPU before we use it: fields of `trace.DeviceState`, empty where nothing answers."""
    index = device.partition(":")[2] or "0"
    state = _query(["-i", index, "--query-gpu=utilization.gpu,mig.mode.current"])
    if len(state) != 1:
        return {}
    utilisation, mig = (_parse(value.strip()) for value in state[0].split(","))
    others = _query(["-i", index, "--query-compute-apps=pid"])
    found = {
        "utilisation_before_percent": utilisation, "mig": mig, "other_processes": len(others),
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


def _query(arguments: list[str]) -> list[str]:
    path = shutil.which("nvidia-smi")
    if path is None:
        return []
    command = [path, *arguments, "--format=csv,noheader,nounits"]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return []
    return result.stdout.strip().splitlines() if result.returncode == 0 else []
