from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kernel_skills.executor.models import Definition, Workload, content_digest
from kernel_skills.executor.trace import (
    Correctness,
    DeviceState,
    Environment,
    Failed,
    IncorrectNumerical,
    Outcome,
    Passed,
    Performance,
    Seed,
    Timing,
    Trace,
)

from .conftest import definition, workload

ENVIRONMENT = Environment(
    hardware="a chip", libs={"torch": "2.11.0"}, target="h200", arch="sm_90",
    device_state=DeviceState(sm_clock_mhz=1980.0),
)  # fmt: skip
CORRECTNESS = Correctness(max_relative_error=1e-3, max_absolute_error=2e-3, extra={"cases": 3})
PERFORMANCE = Performance(
    latency_ms=1.0, reference_latency_ms=3.0, speedup_factor=3.0,
    timing=Timing(median_ms=1.0, p20_ms=0.9, p80_ms=1.1, samples=40), method="events", gbps=4000.0,
    bound_ms=0.9, percent_of_bound=90.0, percent_of_ceiling=90.0, limited_by="memory", speed="faster",
)  # fmt: skip
PASSED = Passed(
    environment=ENVIRONMENT, level="verified-gpu", correctness=CORRECTNESS, performance=PERFORMANCE
)


def trace(evaluation: Any = PASSED) -> Trace:
    return Trace(
        definition="scale-rows", workload=workload(), solution="scale-rows.portable",
        evaluation=evaluation, seed=Seed(public=1, secret_sha256="0" * 64),
    )  # fmt: skip


# --- identity ---------------------------------------------------------------------------------


def test_a_workloads_uuid_is_the_same_forever() -> None:
    assert workload().uuid == "e6d24794-6cab-521f-b8a6-60aa556d759d"


def test_a_description_does_not_change_the_uuid() -> None:
    assert workload(description="a trap").uuid == workload().uuid


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "other"},
        {"rows": 4},
        {"dtypes": {"T": "bfloat16"}},
        {"purpose": "edge"},
        {"inputs": {"x": {"type": "random", "scale": 2.0}}},
        {"inputs": {"x": {"type": "filled", "value": "nan"}}},
        {"generator": "reference.py::make_inputs"},
    ],
)
def test_any_content_changes_the_uuid(changed: dict[str, Any]) -> None:
    assert workload(**changed).uuid != workload().uuid


@given(st.permutations(["rows", "cols", "heads"]))
def test_the_order_of_axes_does_not_change_the_uuid(order: list[str]) -> None:
    sizes = {"rows": 1, "cols": 2, "heads": 3}
    items = [
        Workload(definition="d", name="n", purpose="edge", axes=axes)
        for axes in (sizes, {name: sizes[name] for name in order})
    ]
    assert items[0].uuid == items[1].uuid
    assert content_digest(items[0]) == content_digest(items[1])


def test_a_stored_uuid_is_not_believed() -> None:
    stored = {**workload().model_dump(mode="json"), "uuid": "forged"}
    assert Workload.model_validate(stored).uuid == workload().uuid


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_values_that_are_not_finite_survive_json(value: float) -> None:
    item = workload(inputs={"x": {"type": "filled", "value": value}})
    again = Workload.model_validate_json(item.model_dump_json())
    assert again.uuid == item.uuid
    assert str(again.inputs["x"].value) == str(value)  # type: ignore[union-attr]


# --- contract ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outputs": {"x": {"shape": ["rows"], "dtype": "T"}}}, "share the name 'x'"),
        ({"outputs": {"y": {"shape": ["depth"], "dtype": "T"}}}, "axis 'depth' is not defined"),
        ({"outputs": {"y": {"shape": ["rows"], "dtype": "half"}}}, "neither a dtype"),
        ({"outputs": {"y": {"shape": ["rows"], "dtype": "string"}}}, "neither a dtype"),
        ({"reference": "scale"}, "reference"),
        ({"name": "Scale_Rows"}, "name"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_contract_that_does_not_hold_together_is_refused(
    fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        definition(**fields)


def test_a_record_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        workload().name = "other"


def test_a_definition_survives_json() -> None:
    contract = definition()
    assert Definition.model_validate_json(contract.model_dump_json()) == contract


# --- FlashInfer-Bench's Trace -----------------------------------------------------------------

# the fields of its pydantic models, flashinfer-bench 0.1.2, `flashinfer_bench/data/trace.py`
TRACE_FIELDS = {"definition", "workload", "solution", "evaluation"}
WORKLOAD_FIELDS = {"axes", "inputs", "uuid"}
EVALUATION_FIELDS = {"status", "environment", "timestamp", "log", "correctness", "performance"}
STATUSES = {
    "PASSED", "INCORRECT_SHAPE", "INCORRECT_NUMERICAL", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR",
    "TIMEOUT",
}  # fmt: skip


def as_json(record: Trace) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(record.model_dump_json())
    return loaded


def test_a_passed_trace_has_every_field_that_flashinfer_bench_reads() -> None:
    record = as_json(trace())
    evaluation = record["evaluation"]
    assert set(record) >= TRACE_FIELDS
    assert set(record["workload"]) >= WORKLOAD_FIELDS
    assert set(evaluation) >= EVALUATION_FIELDS
    assert evaluation["status"] in STATUSES
    assert set(evaluation["environment"]) >= {"hardware", "libs"}
    assert set(evaluation["correctness"]) >= {
        "max_relative_error",
        "max_absolute_error",
        "extra",
    }
    assert set(evaluation["performance"]) >= {
        "latency_ms",
        "reference_latency_ms",
        "speedup_factor",
    }
    assert isinstance(evaluation["timestamp"], str)


def test_a_wrong_result_keeps_its_errors_and_has_no_performance() -> None:
    wrong = IncorrectNumerical(environment=ENVIRONMENT, correctness=CORRECTNESS)
    evaluation = as_json(trace(wrong))["evaluation"]
    assert evaluation["status"] in STATUSES
    assert evaluation["correctness"]["max_absolute_error"] == 2e-3
    assert evaluation.get("performance") is None


@pytest.mark.parametrize(
    "status",
    ["COMPILE_ERROR", "RUNTIME_ERROR", "INCORRECT_SHAPE", "INCORRECT_DTYPE", "TIMEOUT"],
)
def test_a_failure_has_neither_errors_nor_performance(status: Any) -> None:
    evaluation = as_json(trace(Failed(status=status, environment=ENVIRONMENT)))["evaluation"]
    assert evaluation["status"] == status
    assert status in STATUSES
    assert evaluation.get("correctness") is None
    assert evaluation.get("performance") is None


@pytest.mark.parametrize(
    "outcome",
    [
        PASSED,
        IncorrectNumerical(environment=ENVIRONMENT, correctness=CORRECTNESS),
        Failed(status="CHEATING", environment=ENVIRONMENT, log="looked"),
    ],
    ids=lambda outcome: outcome.status,
)
def test_a_trace_survives_json(outcome: Outcome) -> None:
    record = trace(outcome)
    assert Trace.model_validate_json(record.model_dump_json()) == record


def test_an_unknown_status_is_refused() -> None:
    with pytest.raises(ValidationError):
        Failed(status="PASSED", environment=ENVIRONMENT)  # type: ignore[arg-type]
