from __future__ import annotations

import fcntl
import json
import math
import os
import signal
import warnings
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernel_skills.executor.errors import InvalidPackage, KernelSkillsError
from kernel_skills.executor.models import FilledInput
from kernel_skills.registry.evidence import (
    EvidenceStore,
    MalformedEvidence,
    current_evidence,
    evidence_of,
    home_evidence,
    newest_match,
    own_evidence,
    stale_evidence,
)

if TYPE_CHECKING:
    from tests.registry.conftest import MakeTrace, Package, StartPython

# appends copies of a Trace, numbered in `requested_target`, and says each number once it is on disk
WRITER = """
import sys
from pathlib import Path
from kernel_skills.executor.trace import Trace
from kernel_skills.registry.evidence import EvidenceStore

folder, trace_file, label, count = sys.argv[1:]
trace = Trace.model_validate_json(Path(trace_file).read_text())
store = EvidenceStore(Path(folder))
print("ready", flush=True)
for number in range(int(count)):
    store.append(trace.model_copy(update={"requested_target": f"{label}-{number}"}))
    print(f"{label}-{number}", flush=True)
"""


@pytest.fixture
def store(tmp_path: Path) -> EvidenceStore:
    return EvidenceStore(tmp_path / "evidence")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "evidence" / "row-scale.jsonl"


@pytest.fixture
def trace_file(tmp_path: Path, make_trace: MakeTrace) -> Path:
    # 40 kB, so that a write covers several pages and a kill can fall between them
    path = tmp_path / "trace.json"
    path.write_text(make_trace(log="x" * 40_000).model_dump_json())
    return path


def test_what_is_appended_is_read_back_one_trace_a_line(
    store: EvidenceStore, file: Path, make_trace: MakeTrace
) -> None:
    traces = [make_trace(day=1), make_trace("hopper", day=2), make_trace(status="TIMEOUT", day=3)]
    for trace in traces:
        store.append(trace)
    assert list(store.traces()) == traces
    assert [json.loads(line)["definition"] for line in file.read_text().splitlines()] == [
        "row-scale"
    ] * 3


def test_values_that_json_lacks_survive(store: EvidenceStore, make_trace: MakeTrace) -> None:
    trace = make_trace()
    workload = trace.workload.model_copy(update={"inputs": {"x": FilledInput(value=math.inf)}})
    store.append(trace.model_copy(update={"workload": workload}))
    back = next(store.traces())
    assert back.workload.inputs["x"] == FilledInput(value=math.inf)
    assert back.workload.uuid == workload.uuid


def test_a_definition_that_is_no_name_writes_nothing(
    store: EvidenceStore, tmp_path: Path, make_trace: MakeTrace
) -> None:
    with pytest.raises(InvalidPackage):
        store.append(make_trace().model_copy(update={"definition": "../outside"}))
    assert not list(tmp_path.rglob("outside*"))


def test_a_malformed_line_is_passed_over_with_its_file_and_line(
    store: EvidenceStore, file: Path, make_trace: MakeTrace
) -> None:
    store.append(make_trace(day=1))
    with file.open("a") as stream:
        stream.write('{"definition": "row-scale"}\nnot json\n\n\xff\n')
    store.append(make_trace(day=2))
    with pytest.warns(MalformedEvidence) as caught:
        assert len(list(store.traces())) == 2
    places = [str(warning.message).removeprefix(str(file))[:4] for warning in caught]
    assert places == [":2: ", ":3: ", ":5: "]
    assert [problem.line for problem in store.problems()] == [2, 3, 5]


def test_a_torn_last_line_is_skipped_and_the_next_append_starts_a_fresh_one(
    store: EvidenceStore, file: Path, make_trace: MakeTrace
) -> None:
    first, second, third = (make_trace(day=day) for day in (1, 2, 3))
    store.append(first)
    store.append(second)
    os.truncate(file, file.stat().st_size - 40)
    with pytest.warns(MalformedEvidence, match=":2: "):
        assert list(store.traces()) == [first]
    store.append(third)
    with pytest.warns(MalformedEvidence, match=":2: "):
        assert list(store.traces()) == [first, third]
    assert file.read_bytes().count(b"\n") == 3


def test_a_line_that_lost_only_its_end_counts(
    store: EvidenceStore, file: Path, make_trace: MakeTrace
) -> None:
    store.append(make_trace(day=1))
    os.truncate(file, file.stat().st_size - 1)
    store.append(make_trace(day=2))
    assert len(list(store.traces())) == 2


def test_two_writers_lose_and_mix_nothing(
    store: EvidenceStore, file: Path, trace_file: Path, start_python: StartPython
) -> None:
    writers = [
        start_python(WRITER, str(file.parent), str(trace_file), label, "60") for label in "ab"
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors
    found = [trace.requested_target for trace in store.traces()]
    assert sorted(found) == sorted(f"{label}-{number}" for label in "ab" for number in range(60))
    for label in "ab":
        own = [int(name.split("-")[1]) for name in found if name.startswith(label)]
        assert own == sorted(own)


def test_a_writer_killed_in_its_tracks_loses_nothing_that_it_had_finished(
    store: EvidenceStore,
    file: Path,
    trace_file: Path,
    start_python: StartPython,
    make_trace: MakeTrace,
) -> None:
    finished = []
    for number in range(4):
        writer = start_python(WRITER, str(file.parent), str(trace_file), f"w{number}", "100000")
        assert writer.stdout is not None
        lines = [writer.stdout.readline().strip() for _ in range(8 + 5 * number)]
        os.kill(writer.pid, signal.SIGKILL)
        rest, _ = writer.communicate(timeout=30)
        whole = rest.split("\n")[:-1]
        finished += [line for line in (*lines, *whole) if line and line != "ready"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MalformedEvidence)
        found = [trace.requested_target for trace in store.traces()]
        assert set(finished) <= set(found)
        assert len(found) == len(set(found))
        store.append(make_trace(day=9))
        assert len(list(store.traces())) == len(found) + 1
    # at most one half line per killed writer
    assert len(list(store.problems())) <= 4


def test_a_writer_and_a_reader_wait_for_the_one_that_holds_the_file(
    store: EvidenceStore, file: Path, make_trace: MakeTrace
) -> None:
    store.append(make_trace(day=1))
    with file.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with ThreadPoolExecutor(2) as threads:
            writing = threads.submit(store.append, make_trace(day=2))
            reading = threads.submit(lambda: list(store.traces()))
            pending: list[Future[Any]] = [writing, reading]
            done, waiting = wait(pending, timeout=0.3)
            assert (len(done), len(waiting)) == (0, 2)
            fcntl.flock(holder, fcntl.LOCK_UN)
            writing.result(timeout=10)
            reading.result(timeout=10)
    assert len(list(store.traces())) == 2


FULL_DISK = """
import resource, sys
from pathlib import Path
from kernel_skills.executor.errors import KernelSkillsError
from kernel_skills.executor.trace import Trace
from kernel_skills.registry.evidence import EvidenceStore

folder, trace_file, limit = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    EvidenceStore(Path(folder)).append(Trace.model_validate_json(Path(trace_file).read_text()))
except KernelSkillsError as error:
    print(error)
"""


@pytest.mark.parametrize("room", [0, 1, 20_000])
def test_a_full_disk_is_an_error_and_leaves_the_file_as_it_was(
    store: EvidenceStore,
    file: Path,
    trace_file: Path,
    start_python: StartPython,
    make_trace: MakeTrace,
    room: int,
) -> None:
    store.append(make_trace(day=1))
    before = file.read_bytes()
    writer = start_python(FULL_DISK, str(file.parent), str(trace_file), str(len(before) + room))
    said, errors = writer.communicate(timeout=30)
    assert f"{file}: evidence not written: " in said, errors
    assert file.read_bytes() == before
    store.append(make_trace(day=2))
    assert len(list(store.traces())) == 2


def test_a_full_disk_heals_no_torn_line_by_halves(
    store: EvidenceStore,
    file: Path,
    trace_file: Path,
    start_python: StartPython,
    make_trace: MakeTrace,
) -> None:
    store.append(make_trace(day=1))
    with file.open("a") as stream:
        stream.write('{"definition": "row')
    before = file.read_bytes()
    writer = start_python(FULL_DISK, str(file.parent), str(trace_file), str(len(before) + 5000))
    writer.communicate(timeout=30)
    assert file.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path, make_trace: MakeTrace) -> None:
    (tmp_path / "evidence").write_text("a file")
    with pytest.raises(KernelSkillsError, match="evidence not written"):
        EvidenceStore(tmp_path / "evidence").append(make_trace())


def test_no_folder_is_no_evidence(tmp_path: Path) -> None:
    assert list(EvidenceStore(tmp_path / "gone").traces()) == []


# --- of a skill -------------------------------------------------------------------------------


def test_the_skills_own_evidence_and_the_data_home_are_joined_without_doubles(
    package: Package, make_trace: MakeTrace, private_home: Path
) -> None:
    skill = package.load()
    both, own, home = make_trace(day=1), make_trace(day=2), make_trace(day=3)
    for trace in (both, own):
        own_evidence(skill).append(trace)
    for trace in (both, home):
        home_evidence(skill.name).append(trace)
    assert list(evidence_of(skill)) == [both, own, home]
    assert (private_home / "evidence" / "row-scale" / "row-scale.jsonl").is_file()
    assert (package.folder / "evidence" / "row-scale.jsonl").is_file()


def test_a_changed_kernel_makes_its_evidence_stale_and_no_other(
    package: Package, make_trace: MakeTrace
) -> None:
    portable, hopper = make_trace("portable"), make_trace("hopper")
    for trace in (portable, hopper):
        own_evidence(package.load()).append(trace)
    assert list(stale_evidence(package.load())) == []
    package.edit("kernels/hopper.py", "empty_like(x)", "empty_like(x.contiguous())")
    assert list(current_evidence(package.load())) == [portable]
    assert list(stale_evidence(package.load())) == [hopper]


def test_new_evidence_leaves_the_identity_of_the_package(
    package: Package, make_trace: MakeTrace
) -> None:
    before = make_trace()
    own_evidence(package.load()).append(before)
    assert make_trace().skill == before.skill


def test_the_newest_measurement_of_the_same_variant_workload_and_architecture_is_found(
    package: Package, make_trace: MakeTrace
) -> None:
    skill = package.load()
    right = make_trace(day=5)
    for trace in (
        make_trace(day=4),
        right,
        make_trace(day=3),
        make_trace(day=9, arch="sm_80"),
        make_trace(day=9, workload="tiny"),
        make_trace("hopper", day=9),
        make_trace(day=9, latency_ms=None),
        make_trace(day=8, status="TIMEOUT"),
    ):
        home_evidence(skill.name).append(trace)
    workload = next(w for w in skill.manifest.workload if w.name == "large")
    variant = package.variant("portable")
    assert newest_match(skill, variant, workload, "sm_90") == right
    newest = newest_match(skill, variant, workload, "sm_90", measured=False)
    assert newest is not None and newest.evaluation is not None
    assert newest.evaluation.timestamp.day == 10
    assert newest_match(skill, variant, workload, "sm_100") is None
