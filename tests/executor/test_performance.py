"""The roofline, and what a measurement may claim under it."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_skills.executor.performance import assess_performance
from kernel_skills.executor.roofline import (
    fewest_bytes,
    percent_of_ceiling,
    rate_dtype,
    roofline,
)
from kernel_skills.executor.targets import Rate, Target, find_target
from kernel_skills.executor.trace import Performance
from kernel_skills.executor.workload_values import workload_names

from .conftest import definition, workload

H200 = find_target("h200")
LARGE = workload("large", rows=16384, cols=16384, dtypes={"T": "bfloat16"}, purpose="bench")
BYTES = 2 * 16384 * 16384 * 2


def chip(**rates: Any) -> Target:
    """Return an H200 with round figures: 1000 TFLOP/s of bfloat16, 4000 GB/s, and measured ceilings below them."""

    def rate(value: float) -> Rate:
        return Rate(value=value, source="invented")

    return H200.model_copy(
        update={
            "peak_tflops": {"bfloat16": rate(1000), "vector-float32": rate(50)},
            "measured_tflops": {"bfloat16": rate(800)},
            "peak_gbps": rate(4000),
            "measured_gbps": rate(3200),
        }
    )


def timing(median_ms: float) -> dict[str, float]:
    return {"median_ms": median_ms, "p20_ms": median_ms, "p80_ms": median_ms, "samples": 40}


def assessed(median_ms: float, **baselines: float) -> Performance | str:
    answer = {
        "timing": timing(median_ms),
        "method": "events",
        "baselines": {name: timing(ms) for name, ms in baselines.items()},
        "errors": {"compile": "no compiler"},
    }
    return assess_performance(definition(), LARGE, chip(), answer, {"BLOCK": 64})


def performance(median_ms: float, **baselines: float) -> Performance:
    found = assessed(median_ms, **baselines)
    assert isinstance(found, Performance), found
    return found


# --- roofline ---------------------------------------------------------------------------------


def test_every_input_is_read_once_and_every_output_written_once() -> None:
    assert fewest_bytes(definition(), workload(rows=3, cols=5)) == 2 * 15 * 4
    assert fewest_bytes(definition(), workload(dtypes={"T": "bfloat16"})) == 2 * 15 * 2
    assert fewest_bytes(definition(bytes_moved="rows * 10"), workload(rows=3)) == 30


def test_expressions_see_axes_and_scalars() -> None:
    contract = definition(axes={"rows": {"type": "var"}, "cols": {"type": "const", "value": 9}})
    item = workload().model_copy(update={"axes": {"rows": 3}})
    assert workload_names(contract, item) == {"rows": 3, "cols": 9, "factor": 3.0}


def test_a_small_intensity_is_limited_by_memory() -> None:
    line = roofline(definition(), LARGE, chip())
    assert line.limited_by == "memory"
    assert line.bound_ms == pytest.approx(BYTES / 3200e6)
    assert line.data_sheet_ms == pytest.approx(BYTES / 4000e6)
    assert line.intensity == pytest.approx(0.25)
    assert percent_of_ceiling(line, 2 * line.bound_ms) == pytest.approx(50)


def test_a_matrix_product_is_limited_by_the_matrix_units() -> None:
    contract = definition(flops="2 * rows * cols * 16384", matrix=True)
    line = roofline(contract, LARGE, chip())
    flops = 2 * 16384**3
    assert line.limited_by == "compute"
    assert line.bound_ms == pytest.approx(flops / 800e9)
    assert line.data_sheet_ms == pytest.approx(flops / 1000e9)
    assert percent_of_ceiling(line, line.bound_ms) == pytest.approx(100)


@pytest.mark.parametrize(
    ("matrix", "dtype", "rate"),
    [
        (True, "bfloat16", "bfloat16"),
        (False, "bfloat16", "vector-float32"),
        (True, "float32", "vector-float32"),
    ],
)
def test_the_units_that_do_the_work_set_the_rate(matrix: bool, dtype: str, rate: str) -> None:
    assert rate_dtype(definition(matrix=matrix), workload(dtypes={"T": dtype})) == rate


@pytest.mark.parametrize("name", ["a100", "h100", "h200", "b200", "mi300x", "rtx4090"])
def test_no_measured_ceiling_lies_above_the_data_sheet(name: str) -> None:
    target = find_target(name)
    assert target.gbps.value <= target.peak_gbps.value
    for dtype, rate in target.measured_tflops.items():
        assert rate.value <= target.peak_tflops[dtype].value


# --- performance ------------------------------------------------------------------------------


def test_a_time_below_the_data_sheet_is_refused() -> None:
    bound = BYTES / 4000e6
    refused = assessed(0.9 * bound)
    assert isinstance(refused, str)
    assert "data sheet of h200" in refused
    assert isinstance(assessed(1.0 * bound), Performance)


def test_rates_and_shares_follow_from_the_median() -> None:
    found = performance(0.5, eager=1.0)
    assert found.gbps == pytest.approx(BYTES / 0.5e6)
    assert found.tflops == pytest.approx(16384**2 / 0.5e9)
    assert found.percent_of_ceiling == pytest.approx(100 * found.gbps / 3200)
    assert found.percent_of_bound == pytest.approx(100 * found.bound_ms / 0.5)
    assert found.config == {"BLOCK": 64}


def test_a_ratio_above_one_means_that_the_candidate_is_faster() -> None:
    found = performance(0.5, eager=1.0, library=0.4)
    ratios = {item.name: item.ratio for item in found.baselines}
    assert ratios == {"eager": 2.0, "library": 0.8, "compile": None}
    assert found.speedup_factor == 2.0
    assert found.reference_latency_ms == 1.0


def test_a_baseline_that_failed_says_why() -> None:
    (failed,) = [item for item in performance(0.5, eager=1.0).baselines if item.timing is None]
    assert (failed.name, failed.error) == ("compile", "no compiler")


@pytest.mark.parametrize(
    ("baselines", "speed"),
    [
        ({}, "unmeasured"),
        ({"copy": 0.1}, "unmeasured"),
        ({"eager": 1.0}, "faster"),
        ({"eager": 0.51}, "faster"),
        ({"eager": 0.505}, "equal"),
        ({"eager": 0.495}, "equal"),
        ({"eager": 1.0, "library": 0.4}, "slower"),
        ({"eager": 1.0, "copy": 0.4}, "faster"),
    ],
)
def test_speed_is_said_against_the_fastest_baseline(
    baselines: dict[str, float], speed: str
) -> None:
    assert performance(0.5, **baselines).speed == speed


def test_a_speedup_that_was_not_measured_is_not_invented() -> None:
    found = performance(0.5, library=1.0)
    assert (found.reference_latency_ms, found.speedup_factor) == (0.0, 0.0)
