"""What is kept of an exception of foreign code."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_skills.executor.entry import SourceTree
from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.failure import headline, short_log
from kernel_skills.executor.models import SourceFile


def _log_of(tmp_path: Path, body: str) -> str:
    sources = (SourceFile(path="kernels/a.py", content=f"def f():\n    {body}\n"),)
    with pytest.raises(Exception) as caught:
        SourceTree(sources, tmp_path).function("kernels/a.py::f")()
    return short_log(caught.value)


def test_files_of_the_package_are_named_as_the_package_names_them(tmp_path: Path) -> None:
    log = _log_of(tmp_path, "raise ValueError('bad')")
    assert log.startswith('  File "kernels/a.py", line 2, in f\n')
    assert log.endswith("ValueError: bad")
    assert str(tmp_path) not in log


def test_frames_outside_the_package_are_left_out(tmp_path: Path) -> None:
    log = _log_of(tmp_path, "import json; json.loads('{')")
    assert log.count("File ") == 1


def test_the_stack_of_c_plus_plus_is_cut(tmp_path: Path) -> None:
    log = _log_of(
        tmp_path, r"raise TypeError('too large\nException raised from unpack at numbers.h')"
    )
    assert log.endswith("TypeError: too large")


def test_an_error_in_words_needs_no_frames() -> None:
    assert short_log(InvalidPackage("a.py: no function")) == "a.py: no function"


def test_a_headline_says_where_and_what(tmp_path: Path) -> None:
    log = _log_of(tmp_path, "raise ValueError('bad')")
    assert headline(log) == "kernels/a.py:2: ValueError: bad"
    assert headline(f"the reference fails: {log}") == "kernels/a.py:2: ValueError: bad"
    assert headline("no function") == "no function"
