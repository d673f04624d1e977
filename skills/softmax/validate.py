"""Properties and traps of the softmax beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

NAN, INFINITY = float("nan"), float("inf")


@check("softmax")
def check_rows_sum_to_one(kernel: Kernel) -> None:
    y = kernel(kernel.randn(5, 700, scale=4.0)).double()
    # 700 roundings of elements that add up to 1, and those of the exponentials
    bound = 8 * torch.finfo(kernel.dtype).eps
    assert ((y.sum(dim=1) - 1).abs() <= bound).all() and (y >= 0).all()


@check("softmax")
def check_a_common_summand_does_not_matter(kernel: Kernel) -> None:
    # whole numbers, so that adding 64 rounds nothing away in any dtype
    x = kernel.randn(4, 96).round()
    assert torch.equal(kernel(x + 64), kernel(x))


@check("softmax")
def check_rows_are_independent(kernel: Kernel) -> None:
    x = kernel.randn(9, 40)
    whole = kernel(x)
    x[1::3] = NAN
    x[2::3] = INFINITY
    y = kernel(x)
    assert torch.equal(y[::3], whole[::3]) and y[1::3].isnan().all() and y[2::3].isnan().all()


@check("softmax")
def check_one_nan_spoils_its_row_only(kernel: Kernel) -> None:
    x = kernel.randn(3, 2600)
    x[1, 2400] = NAN
    y = kernel(x)
    assert y[1].isnan().all() and not y[0].isnan().any() and not y[2].isnan().any()


@check("softmax")
def check_padding_is_not_read(kernel: Kernel) -> None:
    kernel.assert_matches_reference(_between(kernel.randn(5, 27), INFINITY))
    kernel.assert_matches_reference(_between(kernel.randn(3, 2500), NAN))


@check("softmax")
def check_columns_in_any_order_of_memory(kernel: Kernel) -> None:
    kernel.assert_matches_reference(kernel.randn(24, 6).t())


@check("softmax")
def check_no_rows(kernel: Kernel) -> None:
    assert kernel(kernel.randn(0, 24)).shape == (0, 24)


@check("softmax")
def check_largest_numbers_of_the_dtype(kernel: Kernel) -> None:
    # their differences overflow the dtype, and in float32 any scaling before the subtraction does
    largest = torch.finfo(kernel.dtype).max
    x = kernel.randn(3, 2500)
    x[0, 7], x[1, ::2], x[2, 2400] = largest, -largest, largest
    kernel.assert_matches_reference(x)


@check("log-softmax")
def check_exponentials_sum_to_one(kernel: Kernel) -> None:
    total = kernel(kernel.randn(4, 300)).double().exp().sum(dim=1)
    assert ((total - 1).abs() <= 8 * torch.finfo(kernel.dtype).eps).all()


@check("log-softmax")
def check_far_from_the_maximum_stays_finite(kernel: Kernel) -> None:
    # the logarithm of a softmax would be -inf here
    x = torch.zeros(2, 2500, dtype=kernel.dtype, device=kernel.device)
    x[:, 3] = 1000.0
    y = kernel(x)
    assert (y[:, 4:] == -1000).all() and not y[:, 3].any()


@check("log-softmax")
def check_columns_in_any_order_of_memory_log(kernel: Kernel) -> None:
    kernel.assert_matches_reference(kernel.randn(24, 6).t())


@check("masked-softmax")
def check_what_is_left_out_has_no_influence(kernel: Kernel) -> None:
    x = kernel.randn(6, 2600)
    mask = x > 0.3
    clean = kernel(x, mask)
    for value in (NAN, INFINITY, -INFINITY):
        assert torch.equal(kernel(x.masked_fill(~mask, value), mask), clean)
    assert not clean[~mask].any()


@check("masked-softmax")
def check_a_row_without_anything_is_zero(kernel: Kernel) -> None:
    for cols in (40, 2600):
        x = kernel.randn(4, cols)
        mask = torch.ones(4, cols, dtype=torch.bool, device=kernel.device)
        mask[1] = False
        x[2] = -INFINITY
        y = kernel(x, mask)
        assert not y[1].any() and not y[2].any() and y[0].any() and y[3].any()


@check("masked-softmax")
def check_causal_mask(kernel: Kernel) -> None:
    mask = torch.ones(33, 33, dtype=torch.bool, device=kernel.device).tril()
    y = kernel(kernel.randn(33, 33), mask)
    assert not y.triu(1).any() and y[0, 0] == 1


@check("masked-softmax")
def check_strides_of_x_and_mask(kernel: Kernel) -> None:
    mask = torch.arange(30, device=kernel.device).view(6, 5).t() % 4 != 1
    kernel.assert_matches_reference(_between(kernel.randn(5, 6), NAN), mask)
    kernel.assert_matches_reference(kernel.randn(6, 5).t(), mask[:1].expand(5, 6))


@check("softmax-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    dy, x = kernel.randn(5, 12).double(), kernel.randn(5, 12).double().requires_grad_()
    y = torch.softmax(x, dim=1)
    (expected,) = torch.autograd.grad(y, x, dy)
    ours = kernel.reference(dy, y.detach())
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@check("softmax-backward")
def check_gradient_of_a_row_sums_to_zero(kernel: Kernel) -> None:
    # a common summand does not change the softmax
    y = torch.softmax(kernel.randn(4, 96).float(), dim=1).to(kernel.dtype)
    dx = kernel(kernel.randn(4, 96), y).double()
    eps = torch.finfo(kernel.dtype).eps
    assert (dx.sum(dim=1).abs() <= 4 * eps * dx.abs().sum(dim=1).clamp(min=1)).all()


@check("softmax-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    y = torch.softmax(kernel.randn(9, 40).float(), dim=1).to(kernel.dtype)
    kernel.assert_matches_reference(kernel.randn(1, 40).expand(9, 40), y)
    kernel.assert_matches_reference(kernel.randn(9, 1).expand(9, 40), y)
    kernel.assert_matches_reference(kernel.randn(40, 9).t(), _between(y, NAN))


@check("softmax-backward")
def check_masked_elements_get_no_gradient(kernel: Kernel) -> None:
    y = torch.softmax(kernel.randn(4, 50).float(), dim=1).to(kernel.dtype)
    y[:, ::3] = 0
    assert not kernel(kernel.randn(4, 50), y)[:, ::3].any()


@check("log-softmax-backward")
def check_reference_is_the_derivative_log(kernel: Kernel) -> None:
    dy, x = kernel.randn(5, 12).double(), kernel.randn(5, 12).double().requires_grad_()
    y = torch.log_softmax(x, dim=1)
    (expected,) = torch.autograd.grad(y, x, dy)
    ours = kernel.reference(dy, y.detach())
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@check("log-softmax-backward")
def check_probability_zero_passes_the_gradient_on(kernel: Kernel) -> None:
    dy, y = kernel.randn(3, 40), torch.log_softmax(kernel.randn(3, 40).float(), dim=1)
    y[:, 4] = -INFINITY
    dx = kernel(dy, y.to(kernel.dtype))
    assert torch.equal(dx[:, 4], dy[:, 4])


@check("log-softmax-backward")
def check_expanded_gradient_log(kernel: Kernel) -> None:
    y = torch.log_softmax(kernel.randn(9, 40).float(), dim=1).to(kernel.dtype)
    kernel.assert_matches_reference(kernel.randn(1, 40).expand(9, 40), y)
    kernel.assert_matches_reference(kernel.randn(40, 9).t(), _between(y, NAN))


def _between(rows: torch.Tensor, value: float) -> torch.Tensor:
    """Return the same values, each row in the middle of a longer one of `value`."""
    wide = torch.full(
        (rows.shape[0], rows.shape[1] + 32), value, dtype=rows.dtype, device=rows.device
    )
    wide[:, 16 : 16 + rows.shape[1]] = rows
    return wide[:, 16 : 16 + rows.shape[1]]
