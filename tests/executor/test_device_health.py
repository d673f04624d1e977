"""A device is looked at in processes of their own, and shut out after two failures. No device is needed: one that is
not there fails every probe."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_skills.executor import device_health
from kernel_skills.executor.device_health import Mark, examine, mark_file, marks
from kernel_skills.executor.errors import DeviceQuarantined
from kernel_skills.executor.pool import LocalPool, base_folder
from kernel_skills.executor.sandbox_probe import sandbox_mechanisms

MISSING = "cuda:63"


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    """A pool whose marks are not the person's own."""
    before, tempfile.tempdir = tempfile.tempdir, str(tmp_path_factory.mktemp("temporary"))
    try:
        with LocalPool(jobs=1) as pool:
            yield pool
    finally:
        tempfile.tempdir = before


def test_a_device_that_computes_stays_in_use(pool: LocalPool) -> None:
    pool.examine("cpu", "GPU-fine")
    with pool.gpu_lock("GPU-fine"):
        pass
    assert not mark_file(base_folder(), "GPU-fine").exists()


def test_a_device_that_fails_two_probes_is_shut_out_for_every_process(pool: LocalPool) -> None:
    with pytest.raises(DeviceQuarantined, match="it failed 2 probes") as raised:
        pool.examine(MISSING, "GPU-broken")
    assert raised.value.exit_code == 6
    assert "nvidia-smi --gpu-reset -i GPU-broken" in str(raised.value)
    assert str(mark_file(base_folder(), "GPU-broken")) in str(raised.value)
    with LocalPool(jobs=1) as other, pytest.raises(DeviceQuarantined), other.gpu_lock("GPU-broken"):
        pass
    # the others are not concerned
    with pool.gpu_lock("GPU-fine"):
        pass
    words = [mend for name, _, mend in sandbox_mechanisms() if name == "device GPU-broken"]
    assert len(words) == 1
    assert "gpu-reset" in words[0]
    mark_file(base_folder(), "GPU-broken").unlink()
    with pool.gpu_lock("GPU-broken"):
        pass


def test_one_failure_is_not_enough(tmp_path: Path) -> None:
    answers = iter(["it hangs", ""])
    examine(tmp_path, "GPU-0", lambda: next(answers))
    assert marks(tmp_path) == []


def test_a_probe_that_hangs_is_a_failure(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> None:
    # the real child is asked, and has no time to answer
    monkeypatch.setattr(device_health, "PROBE_SECONDS", 0.0)
    with pytest.raises(DeviceQuarantined, match="the probe did not answer"):
        pool.examine("cpu", "GPU-slow")
    mark_file(base_folder(), "GPU-slow").unlink()


def test_a_mark_ends_with_the_boot_that_it_was_made_in(tmp_path: Path) -> None:
    old = Mark(device="GPU-0", reason="it failed", since="2026-01-01", boot="another")
    mark_file(tmp_path, "GPU-0").write_text(old.model_dump_json())
    mark_file(tmp_path, "GPU-1").write_text("torn{")
    assert marks(tmp_path) == []
