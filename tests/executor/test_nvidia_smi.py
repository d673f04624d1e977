"""A stand-in for `nvidia-smi` on the PATH answers, and writes down what it was asked."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernel_skills.executor.device_state import DeviceStateReader, load_before, warnings_of
from kernel_skills.executor.environment import Device
from kernel_skills.executor.nvidia_smi import ask, device_uuid
from kernel_skills.executor.targets import find_target

UUID = "GPU-5a1b"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of questions; two of four fields are of a kind that this chip does not report."""
    questions = tmp_path / "questions"
    script = tmp_path / "nvidia-smi"
    script.write_text(
        f'#!/bin/sh\necho "$@" >> {questions}\n'
        'case "$*" in\n'
        '*utilization*) echo "37, Enabled" ;;\n'
        "*compute-apps*) echo 4711; echo 4712 ;;\n"
        '*clocks*) echo "1980, [N/A], 120.5, [Not Supported]" ;;\n'
        "*) echo broken; exit 9 ;;\nesac\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return questions


def test_a_device_is_asked_for_by_uuid_never_by_index(asked: Path) -> None:
    assert load_before(UUID) == {
        "utilisation_before_percent": 37.0, "mig": True, "other_processes": 2,
    }  # fmt: skip
    assert all(line.startswith(f"-i {UUID} ") for line in asked.read_text().splitlines())


def test_what_else_runs_is_a_warning_each(asked: Path) -> None:
    assert len(warnings_of(load_before(UUID))) == 3


def test_fields_that_the_driver_lacks_are_left_out(asked: Path) -> None:
    reader = DeviceStateReader(UUID)
    while not reader.done():
        time.sleep(0.01)
    assert reader.result() == {"sm_clock_mhz": 1980.0, "power_watts": 120.5}


def test_a_device_without_a_uuid_is_not_mixed_up_with_another(asked: Path) -> None:
    assert load_before("") == {}
    assert DeviceStateReader("").result() is None
    assert not asked.exists()


def test_a_failure_is_no_answer(asked: Path) -> None:
    assert ask("query-gpu=driver_version") == []


def test_a_missing_command_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask("query-gpu=driver_version") == []


def test_the_lock_follows_the_chip_and_not_its_index() -> None:
    h200 = find_target("h200")
    uuid = device_uuid(SimpleNamespace(uuid="5a1b"))
    first, second = (
        Device(index=index, uuid=uuid, hardware="NVIDIA H200", arch="sm_90", cuda="13", target=h200)
        for index in (0, 3)
    )
    assert first.identity == second.identity == UUID
    assert device_uuid(SimpleNamespace()) == ""
    assert first.model_copy(update={"uuid": ""}).identity == "index-0"
