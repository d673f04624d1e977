"""The guards that every test relies on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_skills.registry.home import data_home

TESTS = Path(__file__).parent

SAMPLE = """\
import sys

import pytest


def test_without_a_device():
    assert "torch" not in sys.modules


@pytest.mark.gpu
def test_on_a_device():
    import torch

    assert torch.cuda.is_available()


def test_of_a_service(missing_service):
    missing_service("a database")
"""


def run_sample(folder: Path, **environment: str) -> str:
    (folder / "test_sample.py").write_text(SAMPLE)
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a CUDA device\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(folder)],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout


def test_the_data_home_is_the_tests_own(tmp_path: Path) -> None:
    assert data_home().is_relative_to(tmp_path)


def test_what_is_missing_is_skipped_and_seen(tmp_path: Path) -> None:
    out = run_sample(tmp_path, REQUIRE_SERVICES="")
    assert "1 passed, 2 skipped" in out
    assert "no CUDA device here" in out
    assert "a database is missing" in out


def test_a_required_service_that_is_missing_fails(tmp_path: Path) -> None:
    assert "1 failed, 1 passed, 1 skipped" in run_sample(tmp_path, REQUIRE_SERVICES="1")


def test_a_service_that_is_missing_skips_here(missing_service: object) -> None:
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception)):
        missing_service("nothing")  # type: ignore[operator]
