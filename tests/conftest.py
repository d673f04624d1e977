"""What holds for every test: a data home of its own, and skips that are seen."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

MissingService = Callable[[str], None]


@pytest.fixture(autouse=True)
def own_data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test away from the person's own data home."""
    home = tmp_path / "home"
    monkeypatch.setenv("KERNEL_SKILLS_HOME", str(home))
    return home


@pytest.fixture
def missing_service() -> MissingService:
    """Skip a test whose service does not answer; fail it where REQUIRE_SERVICES=1 says that it must."""

    def missing(what: str) -> None:
        if os.environ.get("REQUIRE_SERVICES") == "1":
            pytest.fail(f"{what} is missing, and REQUIRE_SERVICES=1", pytrace=False)
        pytest.skip(f"{what} is missing")

    return missing


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and "slow" not in str(item.config.option.markexpr):
        pytest.skip("takes minutes: run with -m slow")
    if item.get_closest_marker("gpu") is None:
        return
    # torch takes seconds to import, so only a test that needs a GPU pays for the question
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
