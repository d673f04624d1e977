"""Properties and traps of the filled templates beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

NAN = float("nan")


@check("l2-normalise")
def check_rows_have_length_one(kernel: Kernel) -> None:
    for cols in (200, 2600):
        y = kernel(kernel.randn(4, cols, scale=30.0), eps=1e-12)
        assert ((y.double().norm(dim=1) - 1).abs() <= 4 * torch.finfo(kernel.dtype).eps).all()


@check("l2-normalise")
def check_rows_are_independent(kernel: Kernel) -> None:
    x = kernel.randn(7, 40)
    whole = kernel(x, eps=1e-12)
    x[1::2] = NAN
    assert torch.equal(kernel(x, eps=1e-12)[::2], whole[::2])


@check("l2-normalise")
def check_padding_is_not_read(kernel: Kernel) -> None:
    for cols in (27, 2500):
        kernel.assert_matches_reference(_between_nans(kernel.randn(5, cols)), eps=1e-12)


@check("l2-normalise")
def check_a_row_of_zeros_stays_zero(kernel: Kernel) -> None:
    x = kernel.randn(3, 20)
    x[1] = 0
    y = kernel(x, eps=1e-12)
    assert not y[1].any() and y[0].any()


@check("l2-normalise")
def check_no_rows(kernel: Kernel) -> None:
    assert kernel(kernel.randn(0, 24), eps=1e-12).shape == (0, 24)


@check("l2-normalise-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    dy, x = kernel.randn(5, 12), kernel.randn(5, 12).double().requires_grad_()
    # with 4 some rows are longer than eps and some are not
    for eps in (1e-12, 4.0):
        y = torch.nn.functional.normalize(x, dim=1, eps=eps)
        (expected,) = torch.autograd.grad(y, x, dy.double())
        ours = kernel.reference(dy, x.detach(), eps=eps)
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@check("l2-normalise-backward")
def check_gradient_is_orthogonal_to_the_row(kernel: Kernel) -> None:
    x = kernel.randn(4, 128)
    dx = kernel(kernel.randn(4, 128), x, eps=1e-12).double()
    bound = 4 * torch.finfo(kernel.dtype).eps * dx.norm(dim=1) * x.double().norm(dim=1)
    assert ((dx * x.double()).sum(dim=1).abs() <= bound).all()


@check("l2-normalise-backward")
def check_strides_of_both(kernel: Kernel) -> None:
    dy, x = kernel.randn(24, 6).t(), _between_nans(kernel.randn(6, 24))
    kernel.assert_matches_reference(dy, x, eps=1e-12)
    kernel.assert_matches_reference(kernel.randn(1, 24).expand(6, 24), x, eps=1e-12)


@check("absmax-scale")
def check_largest_magnitude_becomes_one(kernel: Kernel) -> None:
    for cols in (40, 2600):
        x = kernel.randn(5, cols)
        y, absmax = kernel(x, eps=1e-12)
        assert torch.equal(absmax, x.float().abs().amax(dim=1))
        # a division may be two units in the last place off
        assert ((y.abs().amax(dim=1) - 1).abs() <= 2 * torch.finfo(kernel.dtype).eps).all()


@check("absmax-scale")
def check_padding_is_no_magnitude(kernel: Kernel) -> None:
    kernel.assert_matches_reference(_between_nans(kernel.randn(5, 27)), eps=1e-12)


def _between_nans(rows: torch.Tensor) -> torch.Tensor:
    """Return the same values, each row in the middle of a longer one of NaN."""
    wide = torch.full(
        (rows.shape[0], rows.shape[1] + 32), NAN, dtype=rows.dtype, device=rows.device
    )
    wide[:, 16 : 16 + rows.shape[1]] = rows
    return wide[:, 16 : 16 + rows.shape[1]]
