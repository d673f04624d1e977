from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import kernel_skills.executor.interpreter as interpreter
from kernel_skills.executor.interpreter import narrow, widen

IMPORT_ROOT = Path(interpreter.__file__).resolve().parents[1] / ".importroot"
SCRIPT = Path(__file__).parent / "kernels" / "bfloat16_arithmetic.py"


def test_bfloat16_arithmetic_agrees_with_pytorch() -> None:
    environment = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["wrong"] == []


def bits(values: torch.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.uint16]]:
    return values.view(torch.int16).numpy().view(np.uint16)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=64))
def test_narrowing_rounds_to_nearest_even_as_pytorch_does(values: list[float]) -> None:
    single = torch.tensor(values, dtype=torch.float32)
    assert (narrow(single.numpy()) == bits(single.bfloat16())).all()


@pytest.mark.parametrize("pattern", [0x7FC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF])
def test_a_nan_stays_a_nan(pattern: int) -> None:
    value = np.array([pattern], dtype=np.uint32).view(np.float32)
    assert np.isnan(widen(narrow(value))).all()


def test_widening_is_exact_and_narrowing_undoes_it() -> None:
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    wide = widen(every)
    known = torch.from_numpy(every.view(np.int16)).view(torch.bfloat16).float().numpy()
    assert np.array_equal(wide, known, equal_nan=True)
    finite = ~np.isnan(wide)
    assert (narrow(wide)[finite] == every[finite]).all()
