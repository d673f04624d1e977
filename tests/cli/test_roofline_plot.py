"""The roofline as a picture."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kernel_skills.executor.errors import UsageError
from kernel_skills.executor.roofline_plot import RooflinePoint, draw_roofline
from kernel_skills.executor.targets import find_target

POINTS = (
    RooflinePoint("causal", "hopper", 1024.0, 560.0),
    RooflinePoint("full", "hopper", 2048.0, 620.0),
    RooflinePoint("causal", "cudnn", 1024.0, 600.0, baseline=True),
)


@pytest.mark.parametrize(("name", "head"), [("roof.png", b"\x89PNG"), ("roof.svg", b"<?xml")])
def test_suffix_decides_the_format(tmp_path: Path, name: str, head: bytes) -> None:
    pytest.importorskip("matplotlib")
    draw_roofline(POINTS, find_target("h200"), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(head)


def test_picture_holds_labels_units_and_both_roofs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_roofline(POINTS, find_target("h200"), tmp_path / "roof.svg")
    words = " ".join(
        re.findall(r"<!-- (.*?) -->", (tmp_path / "roof.svg").read_text(encoding="utf-8"))
    )
    for text in (
        "causal: 560 TFLOP/s", "full: 620 TFLOP/s", "cudnn (baseline)", "FLOP per byte", "speed (TFLOP/s)",
        "data sheet, bfloat16: 990 TFLOP/s, 4800 GB/s", "measured, bfloat16: 830 TFLOP/s, 4273 GB/s",
    ):  # fmt: skip
        assert text in words


@pytest.mark.parametrize(
    ("points", "name", "words"),
    [
        (POINTS, "roof.gif", "end the name in .png or .svg"),
        ((), "roof.png", "no measured workload"),
        ((RooflinePoint("w", "s", 0.0, 1.0),), "roof.png", "`flops`"),
        ((RooflinePoint("w", "s", 1.0, 1.0, dtype="int4"),), "roof.png", "no rate for int4"),
    ],
    ids=["suffix", "empty", "no-flops", "no-rate"],
)
def test_what_cannot_be_drawn_is_a_usage_error(
    tmp_path: Path, points: tuple[RooflinePoint, ...], name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        draw_roofline(points, find_target("h200"), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in sys.modules is how Python itself marks a module that cannot be imported
    for module in [name for name in sys.modules if name.split(".")[0] == "matplotlib"] or [
        "matplotlib"
    ]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=re.escape("pip install 'kernel-skills[plot]'")):
        draw_roofline(POINTS, find_target("h200"), tmp_path / "roof.png")
