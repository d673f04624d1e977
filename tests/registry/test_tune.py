"""`skills tune`: the shape, the refusal without a GPU, and that what is kept is what `run` and `load_kernel` use."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import kernel_skills.registry.kernel_choice as kernel_choice
import kernel_skills.registry.tune as tune_module
from kernel_skills.cli.main import run_command
from kernel_skills.executor.environment import Device
from kernel_skills.executor.errors import NoDevice, NotFound, Unsatisfiable, UsageError
from kernel_skills.executor.targets import find_target
from kernel_skills.executor.toolchain import installed_toolchain
from kernel_skills.registry.digest import variant_digest
from kernel_skills.registry.kernel_binding import Signature
from kernel_skills.registry.run import RunOptions, run_skill
from kernel_skills.registry.shape import shape_of_workload
from kernel_skills.registry.tune import TuneOptions, Tuning, tune_skill
from kernel_skills.registry.tune_shape import workload_to_tune
from kernel_skills.registry.tuned import Tuned, TunedStore

H200 = find_target("h200")

# --- the shape ------------------------------------------------------------------------------------


def test_a_name_is_that_workload_with_its_dtypes_written_out(package: Any) -> None:
    package.edit("skill.toml", 'dtypes = { T = "bfloat16" }\ninputs', "inputs")
    workload = workload_to_tune(package.load(), "large")
    assert workload.name == "large"
    assert workload.dtypes == {"T": "float32"}


def test_axes_go_over_the_first_bench_workload_or_the_named_one(package: Any) -> None:
    skill = package.load()
    own = workload_to_tune(skill, "rows=7, T=float32")
    assert (own.axes, own.dtypes) == ({"rows": 7, "cols": 4096}, {"T": "float32"})
    assert own.purpose == "bench"
    assert own.name == "rows-7-t-float32"
    named = workload_to_tune(skill, "tiny,cols=9,factor=3")
    assert named.axes == {"rows": 2, "cols": 9}
    assert shape_of_workload(skill.manifest.definition[0], named).scalars == {"factor": 3.0}


@pytest.mark.parametrize(
    ("text", "error", "shown"),
    [
        ("larg", NotFound, "did you mean large?"),
        ("row=7", UsageError, "no 'row' to set; it has rows, cols, T, factor"),
        ("rows=many", UsageError, "a whole number"),
        ("T=float64", UsageError, "T may be float32, bfloat16"),
        ("factor=x", UsageError, "not a float32"),
        ("cols=0", UsageError, "breaks the constraint 'cols >= 1'"),
        ("large,tiny", UsageError, "one shape at a time"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(
    package: Any, text: str, error: type[Exception], shown: str
) -> None:
    with pytest.raises(error, match=shown):
        workload_to_tune(package.load(), text)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_command_ends_with_6(package: Any, capfd: Any) -> None:
    folder = str(package.folder.parent)
    command = [
        "--skills-dir",
        folder,
        "tune",
        "row-scale",
        "--target",
        "a100",
        "--workload",
        "large",
    ]
    assert run_command(command) == 6
    assert "needs a GPU of architecture sm_80, and there is no GPU here" in capfd.readouterr().err


def test_what_is_asked_is_checked_before_a_gpu_is_looked_for(package: Any) -> None:
    skill, options = package.load(), TuneOptions(workload="large")
    with pytest.raises(UsageError, match="variant hopper of row-scale declares no parameters"):
        tune_skill(skill, find_target("h100"), options.model_copy(update={"variant": "hopper"}))
    with pytest.raises(NotFound, match="did you mean portable"):
        tune_skill(skill, H200, options.model_copy(update={"variant": "portabel"}))
    with pytest.raises(Unsatisfiable):
        tune_skill(skill, find_target("a100"), options.model_copy(update={"variant": "hopper"}))


def test_a_gpu_of_another_architecture_does_not_fit(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(index=0, hardware="NVIDIA H200", arch="sm_90", cuda="13.0", target=H200)
    monkeypatch.setattr(tune_module, "find_device", lambda *_: device)
    with pytest.raises(NoDevice, match=r"the GPU here is NVIDIA H200 \(sm_90\)"):
        tune_skill(package.load(), find_target("a100"), TuneOptions(workload="large"))


# --- a whole search, on a device that is made up --------------------------------------------------


class FakeSession:
    """Times by BLOCK, in place of two worker processes on a GPU."""

    times: dict[Any, float] = {None: 1.0, 512: 0.8, 1024: 0.9}  # noqa: RUF012 - tests replace it
    verified: list[str] = []  # noqa: RUF012

    def __init__(self, request: Any, *_: Any) -> None:
        self._request = request

    def bench(self, _workload: Any, *, baselines: bool, config: Any) -> Any:
        assert not baselines
        time = self.times[config.get("BLOCK")]
        timing = {"median_ms": time, "p20_ms": time, "p80_ms": time, "samples": 40}
        return {
            "status": "PASSED", "log": "", "timing": timing, "method": "events", "baselines": {},
            "errors": {},
        }  # fmt: skip

    def verify(self, workload: Any) -> Any:
        FakeSession.verified.append(f"{workload.name} {self._request.config_for(workload)}")
        return {"status": "PASSED", "log": ""}

    def close(self) -> None:
        pass


class FakePool:
    def __init__(self, **_: object) -> None:
        pass

    def __enter__(self) -> FakePool:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextlib.contextmanager
    def gpu_lock(self, _: int) -> Iterator[None]:
        yield


@pytest.fixture
def made_up_device(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(index=0, hardware="Made-up GPU", arch="sm_90", cuda="13.0", target=H200)
    monkeypatch.setattr(tune_module, "find_device", lambda *_: device)
    monkeypatch.setattr(tune_module, "LocalPool", FakePool)
    monkeypatch.setattr(tune_module, "Session", FakeSession)
    monkeypatch.setattr(tune_module, "lint", lambda _, dtypes: ())
    monkeypatch.setattr(FakeSession, "verified", [])


def tuned(package: Any, workload: str = "large") -> Tuning:
    options = TuneOptions(workload=workload, variant="portable")
    return tune_skill(package.load(), find_target("h100"), options)


def stored(package: Any, workload: str = "large") -> Tuned | None:
    skill, variant = package.load(), package.variant("portable")
    definition = skill.manifest.definition[0]
    shape = shape_of_workload(definition, workload_to_tune(skill, workload))
    store = TunedStore()
    return store.get(
        variant_digest(skill, variant), "row-scale", shape, "sm_90", installed_toolchain()
    )


@pytest.mark.usefixtures("made_up_device")
def test_the_winner_is_verified_and_kept(package: Any) -> None:
    found = tuned(package)
    assert found.pick.winner is not None
    assert found.pick.winner.config == {"BLOCK": 512}
    assert [trial.median_ms for trial in found.trials] == [0.8, 0.9]
    assert FakeSession.verified == ["tiny {'BLOCK': 512}", "empty {'BLOCK': 512}"]
    assert found.stored
    kept = stored(package)
    assert kept is not None
    assert (kept.config, kept.latency_ms, kept.tried) == ({"BLOCK": 512}, 0.8, 2)


@pytest.mark.usefixtures("made_up_device")
def test_a_default_that_is_as_fast_is_kept_and_nothing_is_stored(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSession, "times", {None: 0.8, 512: 0.8, 1024: 0.9})
    found = tuned(package)
    assert found.pick.winner is None
    assert not found.stored
    assert stored(package) is None


@pytest.mark.usefixtures("made_up_device")
def test_a_default_that_beats_an_earlier_winner_takes_its_place(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(package)
    monkeypatch.setattr(FakeSession, "times", {None: 0.7, 512: 0.8, 1024: 0.9})
    found = tuned(package)
    assert found.earlier == {"BLOCK": 512}
    assert found.stored
    kept = stored(package)
    assert kept is not None and kept.config == {}


@pytest.mark.usefixtures("made_up_device")
def test_a_time_below_the_data_sheet_is_no_win(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSession, "times", {None: 1.0, 512: 1e-6, 1024: 0.9})
    found = tuned(package)
    assert found.pick.winner is not None
    assert found.pick.winner.config == {"BLOCK": 1024}
    assert found.trials[-1].reading.status == "CHEATING"


@pytest.mark.usefixtures("made_up_device")
def test_the_command_prints_trials_best_first_and_the_same_as_json(
    package: Any, capfd: Any
) -> None:
    base = ["--skills-dir", str(package.folder.parent), "tune", "row-scale", "--target", "h100"]
    words = [*base, "--workload", "rows=64,cols=100", "--variant", "portable"]
    assert run_command(words) == 0
    out, err = capfd.readouterr()
    assert out.index("BLOCK=512") < out.index("BLOCK=1024")
    assert "kept: BLOCK=512: 0.8 ms against the default's 1 ms" in out
    assert "trial 2/2" in err
    assert run_command([*words, "--json"]) == 0
    data = json.loads(capfd.readouterr().out)
    assert data["pick"]["winner"]["config"] == {"BLOCK": 512}


@pytest.mark.usefixtures("made_up_device")
def test_an_interrupted_command_keeps_the_best_so_far(
    package: Any, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    bench, calls = FakeSession.bench, [0]

    def interrupted(self: FakeSession, *args: Any, **keywords: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return bench(self, *args, **keywords)

    monkeypatch.setattr(FakeSession, "bench", interrupted)
    base = ["--skills-dir", str(package.folder.parent), "tune", "row-scale", "--target", "h100"]
    assert run_command([*base, "--workload", "large", "--variant", "portable"]) == 130
    assert "(interrupted)" in capfd.readouterr().out
    assert stored(package) is not None


# --- who uses it ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("made_up_device")
def test_load_kernel_takes_what_was_tuned_for_its_shape(
    package: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned(package, "rows=6,cols=100,T=float32,factor=2")
    skill = package.load()
    definition = skill.manifest.definition[0]
    monkeypatch.setattr(kernel_choice, "_architecture", lambda _: "sm_90")
    monkeypatch.setattr(kernel_choice, "_obstacles", lambda *_: [])
    device = SimpleNamespace(type="cuda", index=0)
    for rows, config in ((6, {"BLOCK": 512}), (7, {})):
        signature = Signature(definition)
        bound = signature.bind(signature.positional((torch.empty(rows, 100),), {}))
        chosen = kernel_choice.choose(skill, definition, bound, device, {}, ())  # type: ignore[arg-type]
        assert (chosen.variant, dict(chosen.config)) == ("portable", config)


def test_run_gives_the_tuned_configuration_to_the_kernel(package: Any) -> None:
    package.write(
        "kernels/portable.py",
        "def row_scale(x, *, factor=2.0, BLOCK=None):\n    raise ValueError(f'BLOCK is {BLOCK}')\n",
    )
    skill, variant = package.load(), package.variant("portable")
    definition, target = skill.manifest.definition[0], find_target("h100")
    workload = next(w for w in skill.manifest.workload if w.name == "tiny")
    result = Tuned(
        shape=shape_of_workload(definition, workload), arch=target.arch, toolchain=installed_toolchain(),
        config={"BLOCK": 1024},
    )  # fmt: skip
    TunedStore().put(variant_digest(skill, variant), "row-scale", result)
    options = RunOptions(stages=("verify",), workload="tiny", variant="portable")
    (run,) = run_skill(skill, target, options).runs
    assert "BLOCK is 1024" in run.judgement.judged[0].evaluation.log
