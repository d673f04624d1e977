"""What the tests on a GPU share: warm workers and the device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernel_skills.executor.environment import Device, find_device
from kernel_skills.executor.pool import LocalPool


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool() as started:
        yield started


@pytest.fixture(scope="module")
def device(pool: LocalPool) -> Device:
    found = find_device(pool, 0)
    assert found is not None
    return found
