"""The profile without a device: what `ncu` prints, the rule that names a bottleneck, the analytic roofline."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import kernel_skills.executor.ncu as ncu
from kernel_skills.executor.models import (
    Definition,
    Solution,
    SolutionSpec,
    SourceFile,
    Task,
    Workload,
)
from kernel_skills.executor.ncu_output import parse_launches, parse_number, scale_of
from kernel_skills.executor.profile import (
    Counters,
    ProfileRequest,
    Stall,
    analytic_profile,
)
from kernel_skills.executor.profile_bottleneck import find_bottleneck
from kernel_skills.executor.targets import find_target
from kernel_skills.executor.trace import KernelReport

STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
IDENTITY = {
    "ID": "0", "Process ID": "71", "Process Name": "python3.11", "Host Name": "127.0.0.1",
    "Kernel Name": "_kernel", "Context": "1", "Stream": "7", "Block Size": "(128, 1, 1)",
    "Grid Size": "(16384, 1, 1)", "Device": "0", "CC": "9.0",
}  # fmt: skip
METRICS = {
    "gpu__time_duration.sum": ("ns", "72,352"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("%", "86.20"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "71.4"),
    "lts__t_sector_hit_rate.pct": ("%", "33.3"),
    "l1tex__t_sector_hit_rate.pct": ("%", "(!) n/a"),
    "launch__registers_per_thread": ("register/thread", "64"),
    "launch__waves_per_multiprocessor": ("", "15.52"),
    "dram__bytes.sum": ("Mbyte", "268.4"),
    "smsp__inst_executed.sum": ("inst", "1,000,000"),
    "smsp__inst_executed_op_local_ld.sum": ("inst", "0"),
    "smsp__inst_executed_op_local_st.sum": ("inst", "0"),
    STALL.format("long_scoreboard"): ("inst", "9.5"),
    STALL.format("selected"): ("inst", "1.0"),
    STALL.format("barrier"): ("inst", "2.25"),
}


def line(cells: list[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def raw_page(kernels: list[dict[str, str]]) -> str:
    """Build what `--csv --page raw` prints: head, units, a row per launch."""
    head = [*IDENTITY, *METRICS]
    units = [*("" for _ in IDENTITY), *(unit for unit, _ in METRICS.values())]
    rows = []
    for change in kernels:
        values = {**IDENTITY, **{name: value for name, (_, value) in METRICS.items()}, **change}
        rows.append([values[name] for name in head])
    body = "\n".join(line(row) for row in (head, units, *rows))
    return (
        '==PROF== Connected to process 71 (/usr/bin/python3.11)\n==PROF== Profiling "_kernel": '
        f"0%....50%....100% - 9 passes\n{body}\n==PROF== Disconnected from process 71\n"
    )


def test_the_raw_page_is_read_with_its_units() -> None:
    (launch,) = parse_launches(raw_page([{}]))
    assert launch.kernel == "_kernel"
    assert launch.values["gpu__time_duration.sum"] == pytest.approx(72352e-9)
    assert launch.values["dram__bytes.sum"] == pytest.approx(268.4e6)
    assert launch.values["launch__registers_per_thread"] == 64
    assert "l1tex__t_sector_hit_rate.pct" not in launch.values


def test_the_details_page_is_read_too() -> None:
    columns = ["ID", "Kernel Name", "Section Name", "Metric Name", "Metric Unit", "Metric Value"]
    rows = [
        ["0", "_kernel", "", "gpu__time_duration.sum", "us", "72.35"],
        ["0", "_kernel", "", "launch__registers_per_thread", "register/thread", "64"],
        ["1", "_reduce", "", "gpu__time_duration.sum", "us", "4.1"],
    ]
    first, second = parse_launches("\n".join(line(row) for row in (columns, *rows)))
    assert (first.kernel, second.kernel) == ("_kernel", "_reduce")
    assert first.values["gpu__time_duration.sum"] == pytest.approx(72.35e-6)
    assert len(first.values) == 2


def test_a_group_before_a_metric_and_quotes_in_a_name_do_no_harm() -> None:
    text = raw_page([{"Kernel Name": 'void f<""a"", (int)2>(float *)'}])
    text = text.replace('"dram__bytes.sum"', '"TriageCompute.dram__bytes.sum"')
    (launch,) = parse_launches(text)
    assert launch.kernel.startswith("void f<")
    assert launch.values["dram__bytes.sum"] == pytest.approx(268.4e6)


@pytest.mark.parametrize(
    "text", ["", "==ERROR== no device\n", "a,b\n1,2\n", '"ID","Kernel Name"\n']
)
def test_text_without_a_table_holds_no_launch(text: str) -> None:
    assert parse_launches(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234.5", 1234.5),
        (" 7 ", 7.0),
        ("n/a", None),
        ("(!) nan", None),
        ("nan", None),
        ("", None),
    ],
)
def test_numbers(text: str, value: float | None) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("ns", 1e-9), ("usecond", 1e-6), ("ms", 1e-3), ("Kbyte/block", 1e3), ("Gbyte", 1e9), ("%", 1.0), ("", 1.0)],
)  # fmt: skip
def test_units(unit: str, scale: float) -> None:
    assert scale_of(unit) == scale


def test_launches_become_a_profile_and_the_longest_names_the_bottleneck() -> None:
    short = {"Kernel Name": "_reduce", "gpu__time_duration.sum": "4,000", "ID": "1"}
    short["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"] = "3.0"
    found = ncu.profile_of(parse_launches(raw_page([short, {}])), "NVIDIA H200", "2025.1")
    reduce, kernel = found.kernels
    assert kernel.counters.duration_us == pytest.approx(72.352)
    assert kernel.counters.registers == 64
    assert kernel.counters.spill_percent == 0
    assert [stall.reason for stall in kernel.stalls] == ["long_scoreboard", "barrier", "selected"]
    assert found.bottleneck.text.startswith("memory-bound: DRAM 86.2 %")
    assert reduce.bottleneck.kind == "latency-bound"
    assert "l1tex__t_sector_hit_rate.pct" in found.missing


def test_scattered_loads_count_only_where_plain_loads_do_the_loading() -> None:
    (launch,) = parse_launches(raw_page([{}]))
    launch.values["smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"] = 12.5
    assert ncu.counters_of(launch).coalesced_percent == 12.5
    launch.values["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] = 1000
    assert ncu.counters_of(launch).coalesced_percent is None


BUSY = {
    "dram_percent": 30.0,
    "tensor_percent": 20.0,
    "occupancy_percent": 50.0,
    "issue_percent": 40.0,
}


@pytest.mark.parametrize(
    ("change", "kind", "shown"),
    [
        ({"dram_percent": 88.0}, "memory-bound", "DRAM 88.0 %"),
        ({"dram_percent": 72.0, "tensor_percent": 90.0}, "tensor-bound", "tensor pipe 90.0 %"),
        ({"mufu_percent": 81.0}, "mufu-bound", "MUFU 81.0 %"),
        ({"issue_percent": 92.0}, "issue-bound", "issue slots 92.0 %"),
        ({"l2_percent": 85.0}, "l2-bound", "L2 85.0 %"),
        ({"spill_percent": 12.0, "registers": 255}, "spills", "12.0 % of the instructions"),
        ({"coalesced_percent": 12.5}, "uncoalesced", "12 % of the bytes"),
        ({"waves": 0.4}, "latency-bound", "0.40 waves"),
        (
            {"occupancy_percent": 6.0, "occupancy_limit_percent": 12.0},
            "latency-bound",
            "limit 12 %",
        ),
        ({}, "latency-bound", "3.0 warps wait for long_scoreboard"),
    ],
)
def test_the_rule_names_each_bottleneck(change: dict[str, float], kind: str, shown: str) -> None:
    stalls = (Stall(reason="not_selected", warps=5.0), Stall(reason="long_scoreboard", warps=3.0))
    found = find_bottleneck(Counters.model_validate({**BUSY, **change}), stalls)
    assert found.kind == kind
    assert shown in found.text
    assert "\n" not in found.text


def test_without_counters_nothing_is_claimed() -> None:
    assert find_bottleneck(Counters(), ()).kind == "unknown"


def test_the_command_leaves_the_clocks_alone(tmp_path: Path) -> None:
    command = ncu.command_line("/x/ncu", tmp_path, ["a.sum", "b.sum"])
    assert command[1:3] == ["--clock-control", "none"]
    assert command[command.index("--metrics") + 1] == "a.sum,b.sum"
    assert command[-1] == str(tmp_path / "request.json")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "run as root"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"),
        (
            "Traceback\n  x\nValueError: rows differ\n==ERROR== exit code 1",
            "ValueError: rows differ",
        ),
        ("", "no output"),
    ],
)
def test_a_failure_is_explained_in_one_line(text: str, shown: str) -> None:
    reason = ncu.explain_failure(text, 1)
    assert shown in reason
    assert "\n" not in reason


# --- a tool that acts like ncu --------------------------------------------------------------------


@pytest.fixture
def request_(tmp_path: Path) -> ProfileRequest:
    definition, workload = double(), tiny()
    kernel = SourceFile(
        path="k.py", content="def double(x, *, WARPS=None):\n    print(WARPS)\n    return x + x\n"
    )
    reference = SourceFile(path="reference.py", content="def double(x):\n    return 2 * x\n")
    return ProfileRequest(
        task=Task(definition=definition, sources=(reference,)),
        solution=Solution(
            name="d", definition="double", sources=(kernel,),
            spec=SolutionSpec(target_hardware=("any",), entry_point="k.py::double"),
        ),
        workload=workload, place="cpu", config={"WARPS": 4},
    )  # fmt: skip


def double() -> Definition:
    tensor = {"shape": ["n"], "dtype": "float32"}
    return Definition.model_validate(
        {
            "name": "double", "op_type": "elementwise", "axes": {"n": {"type": "var"}},
            "inputs": {"x": tensor}, "outputs": {"y": tensor}, "reference": "reference.py::double",
            "flops": "n",
        }
    )  # fmt: skip


def tiny() -> Workload:
    return Workload(definition="double", name="tiny", purpose="bench", axes={"n": 1 << 20})


def fake_ncu(folder: Path, script: str) -> str:
    """Write a command that takes ncu's arguments."""
    path = folder / "ncu"
    head = f"#!{sys.executable}\nimport json, pathlib, sys\nargs = sys.argv[1:]\n"
    log = (
        "log = pathlib.Path(args[args.index('--log-file') + 1]) if '--log-file' in args else None\n"
    )
    version = (
        "if args == ['--version']:\n    print('Version 2025.3.1.0 (build 1)')\n    sys.exit()\n"
    )
    path.write_text(head + version + log + script)
    path.chmod(0o755)
    return str(path)


def test_counters_come_from_the_tool_s_log(tmp_path: Path, request_: ProfileRequest) -> None:
    script = f"log.write_text({raw_page([{}])!r})\nprint('\"Kernel Name\" of the program itself')\n"
    found = ncu.collect(request_, fake_ncu(tmp_path, script), "NVIDIA H200", 20)
    assert found.ncu_version == "2025.3.1.0"
    assert found.bottleneck.kind == "memory-bound"


def test_a_metric_that_the_tool_lacks_costs_only_the_rarer_ones(
    tmp_path: Path, request_: ProfileRequest
) -> None:
    script = (
        "if 'dram__bytes.sum' in args[args.index('--metrics') + 1]:\n"
        "    print('==ERROR== Failed to find metric dram__bytes.sum')\n    sys.exit(1)\n"
        f"log.write_text({raw_page([{}])!r})\n"
    )
    found = ncu.collect(request_, fake_ncu(tmp_path, script), "NVIDIA H200", 20)
    assert found.kernels[0].counters.dram_percent == pytest.approx(86.2)


def test_a_tool_that_hangs_is_ended(tmp_path: Path, request_: ProfileRequest) -> None:
    script = "import time\ntime.sleep(60)\n"
    with pytest.raises(ncu.NoCounters, match="more than 1 s"):
        ncu.collect(request_, fake_ncu(tmp_path, script), "NVIDIA H200", 1)


def test_the_watched_process_makes_the_call(
    tmp_path: Path,
    request_: ProfileRequest,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from kernel_skills.executor.profile_worker import main

    file = tmp_path / "request.json"
    file.write_text(request_.model_dump_json())
    monkeypatch.chdir(tmp_path)
    main([str(file)])
    assert capfd.readouterr().out == "4\n"


# --- without a tool -------------------------------------------------------------------------------


def test_the_analytic_profile_says_what_it_is() -> None:
    report = KernelReport(
        kernel="_kernel", arch="sm_90", num_warps=4, registers=255, spill_bytes=64, shared_bytes=0
    )
    found = analytic_profile(double(), tiny(), find_target("h200"), (report,))
    assert found.source == "analytic"
    assert found.bytes_moved == 8 << 20
    assert found.intensity == pytest.approx(1 / 8)
    assert found.limited_by == "memory"
    assert found.quoted is None
    assert found.text.startswith("analytic: memory-bound")
    assert "_kernel spills 64 bytes" in found.text
    assert json.loads(found.model_dump_json())["source"] == "analytic"
