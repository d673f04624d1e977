"""Collect the counters that decide with Nsight Compute: a child process makes the call, `ncu` watches it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kernel_skills.executor.errors import KernelSkillsError
from kernel_skills.executor.ncu_output import Launch, parse_launches
from kernel_skills.executor.profile import (
    CounterProfile,
    Counters,
    KernelProfile,
    ProfileRequest,
    Stall,
)
from kernel_skills.executor.profile_bottleneck import find_bottleneck
from kernel_skills.executor.worker_environment import worker_environment

_ELSEWHERE = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
_ELAPSED, _ACTIVE = ".avg.pct_of_peak_sustained_elapsed", ".avg.pct_of_peak_sustained_active"
_CORE: Mapping[str, tuple[str, ...]] = {
    "duration": ("gpu__time_duration.sum",),
    "dram_percent": (f"gpu__dram_throughput{_ELAPSED}", f"dram__throughput{_ELAPSED}"),
    "tensor_percent": (
        # counts wgmma and mma alike; the `tensor_op` counters of sm_90 miss one or the other
        f"sm__pipe_tensor_cycles_active{_ELAPSED}", f"sm__pipe_tensor_cycles_active{_ACTIVE}",
        f"sm__inst_executed_pipe_tensor{_ACTIVE}",
    ),
    "occupancy_percent": (f"sm__warps_active{_ACTIVE}",),
    "l2_hit_percent": ("lts__t_sector_hit_rate.pct",),
    "registers": ("launch__registers_per_thread",),
}  # fmt: skip
_MORE: Mapping[str, tuple[str, ...]] = {
    "dram_bytes": ("dram__bytes.sum",),
    "issue_percent": (f"smsp__issue_active{_ACTIVE}", f"sm__issue_active{_ELAPSED}"),
    "l2_percent": (f"lts__throughput{_ELAPSED}", f"lts__t_sectors{_ELAPSED}"),
    "l1_percent": (f"l1tex__throughput{_ACTIVE}",),
    "l1_hit_percent": ("l1tex__t_sector_hit_rate.pct",),
    "mufu_percent": (f"sm__inst_executed_pipe_xu{_ACTIVE}",),
    "occupancy_limit_percent": ("sm__maximum_warps_per_active_cycle_pct",),
    "waves": ("launch__waves_per_multiprocessor",),
    "grid": ("launch__grid_size",),
    "block": ("launch__block_size",),
    "instructions": ("smsp__inst_executed.sum",),
    "local_loads": ("smsp__inst_executed_op_local_ld.sum",),
    "local_stores": ("smsp__inst_executed_op_local_st.sum",),
    "load_sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",),
    "coalesced_percent": ("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct",),
}
"""Field -> names of the metric, the first being asked for; names change with the chip and the tool's version."""
_SECTOR_BYTES = 32
_FEW_LOADS = 0.25
"""Of the bytes from device memory: below, bulk copies (TMA) do the loading, and how the few plain loads coalesce says nothing."""
_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_STALLS = (
    "long_scoreboard", "short_scoreboard", "wait", "math_pipe_throttle", "mio_throttle", "lg_throttle",
    "tex_throttle", "barrier", "membar", "branch_resolving", "dispatch_stall", "drain", "imc_miss",
    "no_instruction", "not_selected", "selected", "sleeping", "misc", "gmma",
)  # fmt: skip
_STALL_NAME = re.compile(r"issue_stalled_(\w+?)_per_issue_active\.ratio$")
_REASONS = (
    ("ERR_NVGPUCTRPERM", "this user may not read GPU counters; run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"),
    ("LibraryNotLoaded", "the profiler cannot start here (LibraryNotLoaded): counters are out of reach in this sandbox"),
    ("No kernels were profiled", "the entry launched no kernel"),
)  # fmt: skip


class NoCounters(KernelSkillsError):
    """Counters could not be read; the text says why."""


def find_ncu() -> str | None:
    """Return the path of Nsight Compute's command, or None."""
    found = shutil.which("ncu")
    return found or next((path for path in _ELSEWHERE if os.access(path, os.X_OK)), None)


def collect(request: ProfileRequest, ncu: str, hardware: str, timeout_s: float) -> CounterProfile:
    """Make the call of a request under `ncu` and return its counters. The caller holds the GPU's lock.

    Raises:
        NoCounters: the tool, the call or the device did not do it.
    """
    wanted = [_CORE, _MORE]
    with tempfile.TemporaryDirectory(
        prefix="kernel-skills-ncu-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        (folder / "request.json").write_text(request.model_dump_json(), encoding="utf-8")
        try:
            launches = _run(ncu, folder, metric_names(_CORE, _MORE, stalls=True), timeout_s)
        except NoCounters as error:
            if not _names_unknown(str(error)):
                raise
            # another version of the tool: these few have had the same name since sm_70
            wanted = [_CORE]
            launches = _run(ncu, folder, metric_names(_CORE, stalls=False), timeout_s)
    return profile_of(launches, hardware, ncu_version(ncu), wanted)


def metric_names(*groups: Mapping[str, tuple[str, ...]], stalls: bool) -> list[str]:
    names = [aliases[0] for group in groups for aliases in group.values()]
    return names + ([_STALL.format(reason) for reason in _STALLS] if stalls else [])


def command_line(ncu: str, folder: Path, metrics: Sequence[str]) -> list[str]:
    """Return the command; it never changes clocks, and flushes caches as the harness' fresh data does."""
    return [
        ncu, "--clock-control", "none", "--profile-from-start", "off",
        # else it also watches ptxas, which Triton starts
        "--target-processes", "application-only",
        "--csv", "--page", "raw", "--print-units", "base", "--log-file", str(folder / "ncu.csv"),
        "--metrics", ",".join(metrics),
        sys.executable, "-P", "-m", "kernel_skills.executor.profile_worker", str(folder / "request.json"),
    ]  # fmt: skip


def _run(ncu: str, folder: Path, metrics: Sequence[str], timeout_s: float) -> list[Launch]:
    log = folder / "ncu.csv"
    log.unlink(missing_ok=True)
    process = subprocess.Popen(
        command_line(ncu, folder, metrics), cwd=folder, env=_environment(folder), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        printed, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise NoCounters(f"ncu took more than {timeout_s:.0f} s; try --timeout") from None
    finally:
        # the whole tree: ncu's own child outlives it otherwise
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    launches = parse_launches(text) or parse_launches(printed)
    if any(launch.values for launch in launches):
        return launches
    raise NoCounters(explain_failure(f"{text}\n{printed}", process.returncode))


def _environment(folder: Path) -> dict[str, str]:
    return {
        **worker_environment(), "LC_ALL": "C", "TRITON_CACHE_DIR": str(folder / "triton"), "TMPDIR": str(folder),
    }  # fmt: skip


def explain_failure(text: str, returncode: int) -> str:
    """Return why `ncu` gave no table, in one line."""
    for mark, reason in _REASONS:
        if mark in text:
            return reason
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [
        line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")
    ]
    # the last line of a traceback names the exception, and stands before what the tool adds
    raised = [line for line in lines if re.match(r"[A-Za-z_.]+(Error|Exception)\b", line)]
    detail = "; ".join([*raised[-1:], *errors[:1]]) or (lines[-1] if lines else "no output")
    return f"ncu (exit status {returncode}) printed no counters: {detail[:400]}"


def _names_unknown(reason: str) -> bool:
    lowered = reason.lower()
    return "metric" in lowered and (
        "find" in lowered or "unknown" in lowered or "invalid" in lowered
    )


def ncu_version(ncu: str) -> str:
    """Return the version of Nsight Compute; empty where it does not say."""
    command = [ncu, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"Version\s+([\d.]+)", done.stdout)
    return found[1] if found else ""


# --- from launches to a profile ---------------------------------------------------------------


def profile_of(
    launches: Sequence[Launch],
    hardware: str,
    version: str = "",
    wanted: Sequence[Mapping[str, tuple[str, ...]]] = (_CORE, _MORE),
) -> CounterProfile:
    """Turn what `ncu` printed into a profile; the longest launch gives the bottleneck of the call."""
    kernels = tuple(_kernel(launch) for launch in launches)
    longest = max(kernels, key=lambda kernel: kernel.counters.duration_us or 0.0)
    read = {name for launch in launches for name in launch.values}
    missing = [
        aliases[0]
        for group in wanted
        for aliases in group.values()
        if not read.intersection(aliases)
    ]
    return CounterProfile(
        hardware=hardware, ncu_version=version, kernels=kernels, bottleneck=longest.bottleneck,
        missing=tuple(missing),
    )  # fmt: skip


def _kernel(launch: Launch) -> KernelProfile:
    counters, stalls = counters_of(launch), stalls_of(launch)
    return KernelProfile(
        kernel=launch.kernel, counters=counters, stalls=stalls,
        bottleneck=find_bottleneck(counters, stalls),
    )  # fmt: skip


def counters_of(launch: Launch) -> Counters:
    """Return the counters of a launch by their names here; those that the tool did not report are left out."""
    found: dict[str, float] = {}
    for name, aliases in {**_CORE, **_MORE}.items():
        value = next((launch.values[alias] for alias in aliases if alias in launch.values), None)
        if value is not None:
            found[name] = value
    fields = {name: value for name, value in found.items() if name in Counters.model_fields}
    for name in ("grid", "block", "registers"):
        if name in fields:
            fields[name] = int(fields[name])
    if "duration" in found:
        fields["duration_us"] = found["duration"] * 1e6
    local = [found[name] for name in ("local_loads", "local_stores") if name in found]
    if local and found.get("instructions"):
        fields["spill_percent"] = 100 * sum(local) / found["instructions"]
    loaded, moved = found.get("load_sectors"), found.get("dram_bytes")
    if loaded is not None and moved and loaded * _SECTOR_BYTES < _FEW_LOADS * moved:
        fields.pop("coalesced_percent", None)
    return Counters.model_validate(fields)


def stalls_of(launch: Launch) -> tuple[Stall, ...]:
    stalls = [
        Stall(reason=match[1], warps=value)
        for name, value in launch.values.items()
        if (match := _STALL_NAME.search(name)) and not match[1].endswith("_not_issued")
    ]
    return tuple(sorted(stalls, key=lambda stall: -stall.warps))
