"""`skills profile`, without a device and with one that is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kernel_skills.registry.profile_skill as profile_skill
from kernel_skills.cli.main import run_command
from kernel_skills.executor.environment import Device
from kernel_skills.executor.ncu import NoCounters, profile_of
from kernel_skills.executor.ncu_output import Launch
from kernel_skills.executor.profile import CounterProfile
from kernel_skills.executor.targets import find_target

Capture = pytest.CaptureFixture[str]
WORDS = ["profile", "one-skill", "--target", "h100", "--no-compile"]


@pytest.fixture(autouse=True)
def one_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capture) -> None:
    monkeypatch.setenv("KERNEL_SKILLS_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KERNEL_SKILLS_PATH", raising=False)
    monkeypatch.chdir(tmp_path)
    assert run_command(["new", "one-skill", "--dir", "skills"]) == 0
    capfd.readouterr()


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile_skill, "find_device", lambda *_: None)


@pytest.fixture
def made_up_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(
        index=0, hardware="Made-up GPU", arch="sm_90", cuda="13.0", target=find_target("h200")
    )
    monkeypatch.setattr(profile_skill, "find_device", lambda *_: device)
    monkeypatch.setattr(profile_skill, "find_ncu", lambda: "/x/ncu")


@pytest.mark.usefixtures("no_gpu")
def test_without_a_gpu_the_roofline_is_counted_and_says_so(capfd: Capture) -> None:
    assert run_command(WORDS) == 0
    out = capfd.readouterr().out
    assert "no counters: there is no GPU here; everything below is counted, not measured" in out
    assert "analytic: memory-bound" in out
    assert "none on this architecture" in out
    assert run_command([*WORDS, "--json"]) == 0
    (first, *_) = json.loads(capfd.readouterr().out)["profiles"]
    assert first["counters"] is None
    assert first["analytic"]["source"] == "analytic"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("words", "code"),
    [(["--workload", "nothing"], 5), (["--variant", "nothing"], 5), (["--device", "-1"], 2)],
)
def test_bad_words_have_their_exit_codes(words: list[str], code: int) -> None:
    assert run_command([*WORDS, *words]) == code


@pytest.mark.usefixtures("made_up_gpu")
def test_counters_are_shown_with_the_bottleneck_first(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    def collect(*_: object) -> CounterProfile:
        values = {
            "gpu__time_duration.sum": 5e-5,
            "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 88.0,
            "launch__registers_per_thread": 32,
        }
        return profile_of([Launch("_scale", values)], "Made-up GPU")

    monkeypatch.setattr(profile_skill, "collect", collect)
    assert run_command(WORDS) == 0
    out = capfd.readouterr().out
    assert "counters by ncu on Made-up GPU, clocks left alone" in out
    assert "memory-bound: DRAM 88.0 %" in out
    assert "not read: sm__pipe_tensor" in out


@pytest.mark.usefixtures("made_up_gpu")
def test_where_the_tool_fails_the_reason_stands_beside_the_roofline(
    monkeypatch: pytest.MonkeyPatch, capfd: Capture
) -> None:
    def collect(*_: object) -> CounterProfile:
        raise NoCounters("this user may not read GPU counters")

    monkeypatch.setattr(profile_skill, "collect", collect)
    assert run_command(WORDS) == 0
    out = capfd.readouterr().out
    assert "counters: this user may not read GPU counters" in out
    assert "analytic: memory-bound" in out
