"""The earned tolerance: honest computations pass, fewer bits or less work do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kernel_skills.executor.compare import _PIECE, Comparison, HonestError, compare, factor
from kernel_skills.executor.models import Tolerance

Function = Callable[..., torch.Tensor]
GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=GENERATOR).to(dtype)


def judged(
    reference: Function, candidate: Function, *inputs: torch.Tensor, tolerance: Tolerance | None = None
) -> Comparison:  # fmt: skip
    """Compare a candidate with a reference, both on the same inputs."""
    tolerance = tolerance or Tolerance()
    exact = reference(*(tensor.double() for tensor in inputs))
    honest = reference(*inputs)
    out = candidate(*inputs).to(honest.dtype)
    k = factor([tensor.dtype for tensor in (*inputs, out)], tolerance)
    return compare(out, exact, honest, tolerance, k)


# --- softmax ----------------------------------------------------------------------------------

SOFTMAX_INPUT = randn(256, 1024, dtype=torch.bfloat16)


def softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, dim=-1)


def test_softmax_in_float32_inside_passes() -> None:
    assert judged(softmax, lambda x: softmax(x.float()), SOFTMAX_INPUT).passed


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(torch.zeros_like, id="zeros"),
        pytest.param(lambda x: torch.full_like(x, 1 / x.shape[1]), id="mean"),
        pytest.param(lambda x: x, id="its input"),
        pytest.param(lambda x: softmax(x.float()).roll(1, 0), id="another row"),
    ],
)
def test_a_null_softmax_fails(wrong: Function) -> None:
    assert not judged(softmax, wrong, SOFTMAX_INPUT).passed


# --- matmul -----------------------------------------------------------------------------------


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def split(pieces: int, dtype: torch.dtype) -> Function:
    """Return a product summed in pieces, the running sum kept in `dtype`."""

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
        for left, right in zip(a.chunk(pieces, 1), b.chunk(pieces, 0), strict=True):
            total = (total.float() + left.float() @ right.float()).to(dtype)
        return total

    return multiply


MATRICES = randn(128, 1024), randn(1024, 128)
NARROW = tuple(tensor.bfloat16() for tensor in MATRICES)


def test_a_reordered_float32_sum_passes() -> None:
    assert judged(product, split(64, torch.float32), *MATRICES).passed


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_float32_product_of_narrowed_inputs_fails(dtype: torch.dtype) -> None:
    def narrowed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.to(dtype).float() @ b.to(dtype).float()

    assert not judged(product, narrowed, *MATRICES).passed


def test_a_bfloat16_product_accumulated_in_float32_passes() -> None:
    assert judged(product, split(8, torch.float32), *NARROW).passed


def test_a_bfloat16_product_accumulated_in_bfloat16_fails() -> None:
    assert not judged(product, split(32, torch.bfloat16), *NARROW).passed


def test_a_product_with_its_last_column_missing_fails() -> None:
    def short(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        out = product(a, b)
        out[:, -1] = 0
        return out

    result = judged(product, short, *NARROW)
    assert not result.passed
    assert "first at (0, 127)" in result.reason


# --- elementwise and reductions ---------------------------------------------------------------


def test_the_tanh_form_of_a_float32_gelu_fails() -> None:
    gelu = torch.nn.functional.gelu
    x = randn(4096)
    assert judged(gelu, gelu, x).passed
    assert not judged(gelu, lambda x: gelu(x, approximate="tanh"), x).passed


def test_a_mean_that_reads_half_of_its_input_fails() -> None:
    x = randn(64, 4096)

    def mean(x: torch.Tensor) -> torch.Tensor:
        return x.mean(-1)

    assert judged(mean, lambda x: x.flip(-1).mean(-1), x).passed
    assert not judged(mean, lambda x: x[:, :2048].mean(-1), x).passed
    assert not judged(mean, lambda x: torch.zeros(64), x).passed


# --- special values ---------------------------------------------------------------------------


def identity(x: torch.Tensor) -> torch.Tensor:
    return x * 1


@pytest.mark.parametrize("special", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2], ids=str)
def test_a_value_that_is_not_finite_matches_itself_only(special: float, dtype: torch.dtype) -> None:
    x = torch.tensor([1.0, special, 2.0]).to(dtype)
    honest = x.clone()
    assert compare(x, x.double(), honest, Tolerance(), 3.0).passed
    finite = torch.tensor([1.0, 3.0, 2.0]).to(dtype)
    assert not compare(finite, x.double(), honest, Tolerance(), 3.0).passed
    assert not compare(x, finite.double(), finite, Tolerance(), 3.0).passed


def test_what_the_dtype_cannot_hold_may_be_infinite() -> None:
    exact = torch.tensor([1.0, 1e6], dtype=torch.float64)
    assert compare(exact.half(), exact, exact.half(), Tolerance(), 3.0).passed


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_eight_bit_floats_are_compared(dtype: torch.dtype) -> None:
    exact = randn(256).double()
    tolerance = Tolerance()
    k = factor([dtype], tolerance)
    assert k == 2
    assert compare(exact.to(dtype), exact, exact.to(dtype), tolerance, k).passed
    wrong = (exact * 1.5).to(dtype)
    assert not compare(wrong, exact, exact.to(dtype), tolerance, k).passed


def test_an_empty_output_passes() -> None:
    empty = torch.empty(0)
    assert compare(empty, empty.double(), empty, Tolerance(), 20.0).passed


def test_an_exact_result_allows_rounding_only() -> None:
    exact = randn(100).double()
    rounded = exact.float().double()
    near = torch.nextafter(rounded.float(), torch.tensor(9.0))
    assert compare(near, rounded, rounded.float(), Tolerance(), 20.0).passed
    assert not compare(near + 1e-5, rounded, rounded.float(), Tolerance(), 20.0).passed


# --- integers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool], ids=str)
def test_integers_match_exactly(dtype: torch.dtype) -> None:
    exact = torch.arange(1000).remainder(2).to(dtype)
    off = exact.clone()
    off[7] = 1 - off[7].int()
    assert compare(exact, exact, exact, Tolerance(), 1.0).passed
    assert not compare(off, exact, exact, Tolerance(), 1.0).passed


def test_a_quantiser_may_be_one_code_apart_in_its_share() -> None:
    exact = torch.arange(1000).remainder(50).to(torch.int8)
    loose = Tolerance(mismatch_fraction=0.001, reason="ties round either way")
    one, two, far = exact.clone(), exact.clone(), exact.clone()
    one[3] += 1
    two[3:5] += 1
    far[3] += 2
    passed = [compare(out, exact, exact, loose, 1.0).passed for out in (one, two, far)]
    assert passed == [True, False, False]


def test_a_looser_tolerance_needs_a_reason() -> None:
    with pytest.raises(ValueError, match="written reason"):
        Tolerance(k=50)
    assert factor([torch.float32], Tolerance(k=50, reason="a series cut short")) == 50


@pytest.mark.parametrize(
    ("dtypes", "k"),
    [
        ((torch.float32, torch.int64), 20),
        ((torch.float32, torch.bfloat16), 3),
        ((torch.float8_e4m3fn, torch.float32, torch.bfloat16), 2),
        ((torch.int32,), 20),
    ],
)
def test_the_coarsest_dtype_decides_the_factor(dtypes: tuple[torch.dtype, ...], k: float) -> None:
    assert factor(list(dtypes), Tolerance()) == k


# --- large tensors ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> torch.Tensor:
    """One piece, and a little of the next."""
    return torch.ones(_PIECE + 1000, dtype=torch.float64)


@pytest.mark.parametrize(
    ("value", "words"),
    [(1.1, "1 of 33555432 elements miss the tolerance, first at (33554437,)"),
     (float("nan"), "1 of 33555432 elements are nan where the reference is 1.0; first at (33554437,)")],
)  # fmt: skip
def test_a_fault_in_the_last_piece_is_found_at_its_place(
    large: torch.Tensor, value: float, words: str
) -> None:
    out = large.float()
    assert compare(out, large, HonestError(1e-7, 1e-7), Tolerance(), 20.0).passed
    out[_PIECE + 5] = value
    result = compare(out, large, HonestError(1e-7, 1e-7), Tolerance(), 20.0)
    assert words in result.reason
