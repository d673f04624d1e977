"""Properties and traps of the RMS norm beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

NAN = float("nan")


@check("rms-norm")
def check_scale_does_not_matter_without_eps(kernel: Kernel) -> None:
    x, weight = kernel.randn(4, 96), kernel.randn(96)
    kernel.assert_close(kernel(x * 8, weight, eps=0.0), kernel(x, weight, eps=0.0))


@check("rms-norm")
def check_rows_are_independent(kernel: Kernel) -> None:
    x, weight = kernel.randn(7, 40), kernel.randn(40)
    whole = kernel(x, weight, eps=1e-6)
    x[1::2] = 300.0
    assert torch.equal(kernel(x, weight, eps=1e-6)[::2], whole[::2])


@check("rms-norm")
def check_eps_lies_inside_the_root(kernel: Kernel) -> None:
    x, weight = kernel.randn(3, 33, scale=0.01), kernel.randn(33)
    kernel.assert_matches_reference(x, weight, eps=0.25)


@check("rms-norm")
def check_zero_row_gives_zeros(kernel: Kernel) -> None:
    x = kernel.randn(3, 20)
    x[1] = 0
    y = kernel(x, kernel.randn(20), eps=1e-6)
    assert not y[1].any(), "eps keeps the root of a zero row from 0"


@check("rms-norm")
def check_padding_is_not_read(kernel: Kernel) -> None:
    kernel.assert_matches_reference(_between_nans(kernel.randn(5, 27)), kernel.randn(27), eps=1e-6)


@check("rms-norm")
def check_columns_in_any_order_of_memory(kernel: Kernel) -> None:
    kernel.assert_matches_reference(kernel.randn(24, 6).t(), kernel.randn(24), eps=1e-6)


@check("rms-norm")
def check_no_rows(kernel: Kernel) -> None:
    assert kernel(kernel.randn(0, 24), kernel.randn(24), eps=1e-6).shape == (0, 24)


@check("rms-norm")
def check_squares_need_not_fit_the_dtype(kernel: Kernel) -> None:
    # 16-bit squares of these overflow at one end and vanish at the other
    weight = kernel.randn(48)
    for scale in (1e4, 1e-6):
        kernel.assert_matches_reference(kernel.randn(3, 48, scale=scale), weight, eps=0.0)


@check("add-rms-norm")
def check_norm_is_of_the_rounded_sum(kernel: Kernel) -> None:
    # the terms cancel in part, so that the rounding of the sum shows in the norm
    x = kernel.randn(6, 64, scale=30.0)
    residual, weight = kernel.randn(6, 64) - x, kernel.randn(64)
    y, summed = kernel(x, residual, weight, eps=1e-6)
    assert torch.equal(summed, x + residual), "the sum is rounded once, to the dtype"
    again, _ = kernel(summed, torch.zeros_like(x), weight, eps=1e-6)
    kernel.assert_close(y, again, factor=0.0)


@check("add-rms-norm")
def check_strides_of_both_terms(kernel: Kernel) -> None:
    x, residual = _between_nans(kernel.randn(5, 40)), kernel.randn(40, 5).t()
    kernel.assert_matches_reference(x, residual, kernel.randn(40), eps=1e-6)


@check("add-rms-norm")
def check_no_rows_to_add(kernel: Kernel) -> None:
    empty = kernel.randn(0, 24)
    assert all(t.shape == (0, 24) for t in kernel(empty, empty, kernel.randn(24), eps=1e-6))


@check("rms-norm-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    dy, x, weight = kernel.randn(5, 12), kernel.randn(5, 12), kernel.randn(12)
    wide = [tensor.double().requires_grad_() for tensor in (x, weight)]
    y = torch.nn.functional.rms_norm(wide[0], (12,), wide[1], 1e-3)
    expected = torch.autograd.grad(y, wide, dy.double())
    for ours, theirs in zip(kernel.reference(dy, x, weight, eps=1e-3), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@check("rms-norm-backward")
def check_gradient_is_orthogonal_to_the_row(kernel: Kernel) -> None:
    # without eps the norm ignores the row's length, so nothing of dx points along the row
    dy, x, weight = kernel.randn(4, 128), kernel.randn(4, 128), kernel.randn(128)
    dx, _ = kernel(dy, x, weight, eps=0.0)
    along = (dx.double() * x.double()).sum(dim=1).abs()
    largest = dx.double().norm(dim=1) * x.double().norm(dim=1)
    assert (along <= 4 * torch.finfo(kernel.dtype).eps * largest).all()


@check("rms-norm-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    x, weight = kernel.randn(9, 40), kernel.randn(40)
    kernel.assert_matches_reference(kernel.randn(1, 40).expand(9, 40), x, weight, eps=1e-6)
    kernel.assert_matches_reference(kernel.randn(9, 1).expand(9, 40), x, weight, eps=1e-6)
    kernel.assert_matches_reference(kernel.randn(1, 1).expand(9, 40), x, weight, eps=1e-6)


@check("rms-norm-backward")
def check_strides_of_every_row(kernel: Kernel) -> None:
    dy, x = kernel.randn(24, 6).t(), _between_nans(kernel.randn(6, 24))
    kernel.assert_matches_reference(dy, x, kernel.randn(24), eps=1e-6)
    kernel.assert_matches_reference(dy, kernel.randn(24, 6).t(), kernel.randn(24), eps=1e-6)


@check("rms-norm-backward")
def check_every_row_counts_once(kernel: Kernel) -> None:
    # with ones, dweight is the number of rows; more rows than any number of programs divides
    ones = torch.ones(1031, 3, dtype=kernel.dtype, device=kernel.device)
    _, dweight = kernel(ones, ones, ones[0].clone(), eps=0.0)
    kernel.assert_close(dweight, torch.full_like(dweight, 1031.0), factor=1.0)


@check("rms-norm-backward")
def check_no_rows_no_gradient(kernel: Kernel) -> None:
    empty = kernel.randn(0, 24)
    dx, dweight = kernel(empty, empty, kernel.randn(24), eps=1e-6)
    assert dx.shape == (0, 24) and not dweight.any()


@check("add-rms-norm-backward")
def check_sum_passes_its_gradient_on(kernel: Kernel) -> None:
    summed, dsummed, weight = kernel.randn(5, 40), kernel.randn(5, 40), kernel.randn(40)
    dx, dweight = kernel(torch.zeros_like(summed), dsummed, summed, weight, eps=1e-6)
    assert torch.equal(dx, dsummed) and not dweight.any()


@check("add-rms-norm-backward")
def check_expanded_gradients(kernel: Kernel) -> None:
    summed, weight = kernel.randn(9, 40), kernel.randn(40)
    dy, dsummed = kernel.randn(1, 40).expand(9, 40), kernel.randn(9, 1).expand(9, 40)
    kernel.assert_matches_reference(dy, dsummed, summed, weight, eps=1e-6)


def _between_nans(rows: torch.Tensor) -> torch.Tensor:
    """Return the same values, each row in the middle of a longer one of NaN."""
    wide = torch.full(
        (rows.shape[0], rows.shape[1] + 32), NAN, dtype=rows.dtype, device=rows.device
    )
    wide[:, 16 : 16 + rows.shape[1]] = rows
    return wide[:, 16 : 16 + rows.shape[1]]
