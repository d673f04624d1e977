"""What is drawn for a workload: values, layouts and shapes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernel_skills.executor.errors import InvalidPackage
from kernel_skills.executor.inputs import draw_inputs
from kernel_skills.executor.models import Definition, RandomInput, Workload
from kernel_skills.executor.reference import Reference
from kernel_skills.executor.seeds import derive_seed, secret_seed
from kernel_skills.executor.verify import Verdict, _cases, too_large_for_interpreter
from kernel_skills.executor.workload_values import scalar_values

from .conftest import definition, task, workload


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A worker's folder: references write their sources to the current one."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drawn(
    layout: str = "contiguous", shape: tuple[int, int] = (6, 10), seed: int = 0, **fields: Any
) -> torch.Tensor:
    given = {"type": "random", "layout": layout, **fields}
    item = workload(rows=shape[0], cols=shape[1], inputs={"x": given})
    return draw_inputs(definition(), item, seed, "cpu")["x"]


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["normal", "uniform", "lognormal", "laplace", "spiked"])
def test_the_same_seed_draws_the_same_values(distribution: str) -> None:
    first, again, other = (
        drawn(shape=(50, 60), seed=seed, distribution=distribution) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.isfinite(first).all()


def test_values_do_not_depend_on_their_layout() -> None:
    plain = drawn()
    for layout in ("padded", "offset", "transposed"):
        assert sorted(drawn(layout).flatten().tolist()) == sorted(plain.flatten().tolist())


def test_scale_and_shift_apply() -> None:
    values = drawn(shape=(100, 100), scale=3.0, shift=100.0)
    assert abs(float(values.mean()) - 100) < 0.2
    assert abs(float(values.std()) - 3) < 0.1


def test_spikes_are_rare_and_large() -> None:
    values = drawn(shape=(256, 256), distribution="spiked").abs()
    share = float((values > 6).float().mean())
    assert 1 / 512 < share < 1 / 128
    assert float(values.max()) > 100


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "float8_e4m3fn", "int32", "uint8", "bool"]
)
def test_every_dtype_can_be_drawn(dtype: str) -> None:
    contract = definition(dtypes={"T": [dtype]})
    x = draw_inputs(contract, workload(dtypes={"T": dtype}), 0, "cpu")["x"]
    assert x.dtype is getattr(torch, dtype)


def test_integers_lie_below_an_expression_over_axes() -> None:
    contract = definition(
        inputs={"x": {"shape": ["rows", "cols"], "dtype": "int64"}}, dtypes={"T": ["float32"]}
    )
    item = workload(rows=40, cols=50, inputs={"x": {"type": "integers", "low": 2, "high": "cols"}})
    x = draw_inputs(contract, item, 0, "cpu")["x"]
    assert (int(x.min()), int(x.max())) == (2, 49)


def test_a_filled_input_may_be_nan() -> None:
    item = workload(inputs={"x": {"type": "filled", "value": "nan"}})
    assert draw_inputs(definition(), item, 0, "cpu")["x"].isnan().all()


def test_scalars_are_given_or_default_or_computed() -> None:
    inputs = {
        "x": {"shape": ["rows", "cols"], "dtype": "T"},
        "factor": {"dtype": "float32", "default": "cols ** -0.5"},
        "twice": {"dtype": "float32", "default": "factor * 2"},
    }
    contract = definition(inputs=inputs)
    assert scalar_values(contract, workload(cols=4)) == {"factor": 0.5, "twice": 1.0}
    item = workload(inputs={"factor": {"type": "scalar", "value": 7.0}})
    assert scalar_values(contract, item)["factor"] == 7.0


# --- layouts ----------------------------------------------------------------------------------


def test_layouts_have_the_strides_that_they_claim() -> None:
    assert drawn().stride() == (10, 1)
    assert drawn("padded").stride() == (26, 1)
    assert drawn("transposed").stride() == (1, 6)
    assert drawn("expanded").stride() == (0, 1)
    assert drawn("offset").is_contiguous()
    assert all(drawn(layout).shape == (6, 10) for layout in ("padded", "transposed", "expanded"))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float8_e5m2"])
def test_an_offset_is_sixteen_bytes(dtype: str) -> None:
    contract = definition(dtypes={"T": [dtype]})
    item = workload(dtypes={"T": dtype}, inputs={"x": {"type": "random", "layout": "offset"}})
    x = draw_inputs(contract, item, 0, "cpu")["x"]
    assert x.storage_offset() * x.element_size() == 16


def test_a_layout_asked_for_spares_those_that_the_workload_set() -> None:
    item = workload(rows=6, cols=10, inputs={"x": {"type": "random", "layout": "transposed"}})
    asked = draw_inputs(definition(), item, 0, "cpu", "padded")["x"]
    assert asked.stride() == (1, 6)
    plain = draw_inputs(definition(), workload(rows=6, cols=10), 0, "cpu", "padded")["x"]
    assert plain.stride() == (26, 1)


@given(rows=st.integers(0, 9), cols=st.integers(0, 9), layout=st.sampled_from(["contiguous", "padded", "offset", "transposed", "expanded"]))  # fmt: skip
def test_every_layout_has_its_shape_at_every_size(rows: int, cols: int, layout: str) -> None:
    assert drawn(layout, (rows, cols)).shape == (rows, cols)


# --- cases ------------------------------------------------------------------------------------


def cases(contract: Definition, item: Workload, seed: int = 0, constraints: tuple[str, ...] = ()) -> tuple[list[Any], Verdict]:  # fmt: skip
    verdict = Verdict()
    return list(_cases(Reference(task(contract)), item, seed, constraints, verdict)), verdict


def test_a_smoke_workload_also_runs_strided_spiked_and_at_other_shapes(in_tmp: Path) -> None:
    found, verdict = cases(definition(), workload(rows=8, cols=8))
    assert [case.title for case in found[:3]] == [
        "as declared",
        "strided and offset inputs",
        "spiked values",
    ]
    assert len(found) == 5
    assert all("fuzzed shape" in case.title for case in found[3:])
    assert found[3].workload.axes != found[4].workload.axes
    assert len({case.seed for case in found}) == 5
    assert verdict.checks_not_run == []
    assert found[2].workload.inputs["x"] == RandomInput(distribution="spiked")


def test_an_edge_workload_runs_as_declared_only(in_tmp: Path) -> None:
    found, _ = cases(definition(), workload(purpose="edge"))
    assert [case.title for case in found] == ["as declared"]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30)
@given(seed=st.integers(0, 2**62), rows=st.integers(1, 40), cols=st.integers(2, 40))
def test_fuzzed_shapes_obey_every_constraint(in_tmp: Path, seed: int, rows: int, cols: int) -> None:
    contract = definition(constraints=["cols % 2 == 0", "rows <= 48"])
    found, _ = cases(contract, workload(rows=rows, cols=cols), seed, ("factor * cols < 100",))
    for case in found[3:]:
        axes = case.workload.axes
        assert axes["cols"] % 2 == 0
        assert axes["rows"] <= 48
        assert 3.0 * axes["cols"] < 100
        assert all(size >= 1 for size in axes.values())


def test_fuzzed_shapes_come_from_the_seed(in_tmp: Path) -> None:
    shapes = [
        [case.workload.axes for case in cases(definition(), workload(rows=30, cols=30), seed)[0]]
        for seed in (5, 5, 6)
    ]
    assert shapes[0] == shapes[1] != shapes[2]


def test_shapes_that_could_not_vary_are_said(in_tmp: Path) -> None:
    contract = definition(constraints=["rows == 3", "cols == 5"])
    found, verdict = cases(contract, workload())
    assert len(found) == 3
    assert "fuzzed shapes" in verdict.checks_not_run[0]


def test_size_is_bounded_in_elements_and_in_operations(in_tmp: Path) -> None:
    small, wide = workload(rows=8), workload(rows=1 << 12, cols=1 << 10)
    reference = Reference(task(definition()))
    assert too_large_for_interpreter(reference, small) == ""
    assert "too large" in too_large_for_interpreter(reference, wide)
    heavy = Reference(task(definition(flops="rows * 1e9")))
    assert "8e+09 FLOP" in too_large_for_interpreter(heavy, small)


# --- reference --------------------------------------------------------------------------------


def test_the_exact_result_is_computed_in_float64(in_tmp: Path) -> None:
    reference = Reference(task())
    item = workload(dtypes={"T": "bfloat16"})
    tensors, scalars = reference.draw(item, 1, "cpu")
    assert reference.exact(tensors, scalars)[0].dtype is torch.float64
    assert reference.honest(tensors, scalars, item)[0].dtype is torch.bfloat16
    assert reference.expected(item) == [((3, 5), torch.bfloat16)]


def test_a_reference_that_returns_too_much_is_the_packages_fault(in_tmp: Path) -> None:
    twice = task(reference="def scale(x, *, factor):\n    return x, x\n")
    with pytest.raises(InvalidPackage, match="returns 2 values"):
        Reference(twice).run({"x": torch.ones(1, 1)}, {"factor": 1.0})


def test_a_generator_of_the_package_draws_all_inputs(in_tmp: Path) -> None:
    source = (
        "import torch\n\ndef scale(x, *, factor):\n    return x * factor\n\n"
        "def make_inputs_ones(axes, dtypes, seed, device):\n"
        "    return {'x': torch.ones(axes['rows'], axes['cols']) * seed, 'factor': 9.0}\n"
    )
    item = workload(generator="reference.py::make_inputs_ones")
    tensors, scalars = Reference(task(reference=source)).draw(item, 1, "cpu")
    assert tensors["x"].shape == (3, 5)
    assert scalars == {"factor": 9.0}


# --- seeds ------------------------------------------------------------------------------------


def test_a_seed_depends_on_every_part_and_their_order() -> None:
    seeds = {derive_seed(*parts) for parts in [(1, "a"), (1, "b"), (2, "a"), ("a", 1), (1, "a", 0)]}
    assert len(seeds) == 5
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_secret_never_appears_beside_its_hash() -> None:
    (first, kept), (second, other) = secret_seed(7), secret_seed(7)
    assert first != second
    assert kept.secret_sha256 != other.secret_sha256
    assert kept.public == 7
