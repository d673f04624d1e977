"""Properties and traps of the layer norm beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

NAN = float("nan")


@check("layer-norm")
def check_a_common_summand_does_not_matter(kernel: Kernel) -> None:
    # whole numbers, so that adding 64 rounds nothing away in any dtype
    x, weight, bias = kernel.randn(4, 96).round(), kernel.randn(96), kernel.randn(96)
    y, mean, rstd = kernel(x, weight, bias, eps=1e-5)
    shifted, its_mean, its_rstd = kernel(x + 64, weight, bias, eps=1e-5)
    # the mean is rounded at 64
    kernel.assert_close(shifted, y, factor=16.0)
    torch.testing.assert_close(its_mean - 64, mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(its_rstd, rstd, rtol=1e-5, atol=0)


@check("layer-norm")
def check_rows_are_independent(kernel: Kernel) -> None:
    x, weight, bias = kernel.randn(7, 40), kernel.randn(40), kernel.randn(40)
    whole, *_ = kernel(x, weight, bias, eps=1e-5)
    x[1::2] = NAN
    y, *_ = kernel(x, weight, bias, eps=1e-5)
    assert torch.equal(y[::2], whole[::2]) and y[1::2].isnan().all()


@check("layer-norm")
def check_eps_lies_inside_the_root(kernel: Kernel) -> None:
    x, weight, bias = kernel.randn(3, 33, scale=0.01), kernel.randn(33), kernel.randn(33)
    _assert_right(kernel, x, weight, bias, eps=0.25)


@check("layer-norm")
def check_a_constant_row_gives_the_bias(kernel: Kernel) -> None:
    for cols in (20, 2500):
        x, bias = torch.full_like(kernel.randn(3, cols), 7.0), kernel.randn(cols)
        y, *_ = kernel(x, kernel.randn(cols), bias, eps=1e-5)
        assert torch.equal(y, bias.expand(3, cols)), "no deviation, so nothing but the bias"


@check("layer-norm")
def check_padding_is_not_read(kernel: Kernel) -> None:
    for cols in (27, 2500):
        x = _between_nans(kernel.randn(5, cols))
        _assert_right(kernel, x, kernel.randn(cols), kernel.randn(cols), eps=1e-5)


@check("layer-norm")
def check_columns_in_any_order_of_memory(kernel: Kernel) -> None:
    x = kernel.randn(24, 6).t()
    _assert_right(kernel, x, kernel.randn(24), kernel.randn(24), eps=1e-5)


@check("layer-norm")
def check_no_rows(kernel: Kernel) -> None:
    y, mean, rstd = kernel(kernel.randn(0, 24), kernel.randn(24), kernel.randn(24), eps=1e-5)
    assert y.shape == (0, 24) and mean.shape == rstd.shape == (0,)


@check("layer-norm")
def check_squares_need_not_fit_the_dtype(kernel: Kernel) -> None:
    # 16-bit squares of these overflow at one end and vanish at the other
    weight, bias = kernel.randn(48), kernel.randn(48)
    for scale in (1e4, 1e-6):
        _assert_right(kernel, kernel.randn(3, 48, scale=scale), weight, bias, eps=0.0)


@check("layer-norm-plain")
def check_mean_and_deviation_of_the_result(kernel: Kernel) -> None:
    for cols in (1000, 3000):
        y, *_ = kernel(kernel.randn(3, cols, scale=3.0) + 10, eps=0.0)
        eps = torch.finfo(kernel.dtype).eps
        assert (y.double().mean(dim=1).abs() <= 4 * eps).all()
        assert ((y.double().square().mean(dim=1) - 1).abs() <= 4 * eps).all()


@check("layer-norm-plain")
def check_scale_does_not_matter_without_eps(kernel: Kernel) -> None:
    x = kernel.randn(4, 96)
    kernel.assert_close(kernel(x * 8, eps=0.0)[0], kernel(x, eps=0.0)[0])


@check("layer-norm-plain")
def check_strides_of_plain_rows(kernel: Kernel) -> None:
    _assert_right(kernel, kernel.randn(24, 6).t(), eps=1e-5)
    _assert_right(kernel, _between_nans(kernel.randn(3, 2500)), eps=1e-5)


@check("layer-norm-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    dy, x, weight = kernel.randn(5, 12), kernel.randn(5, 12), kernel.randn(12)
    leaves = [t.double().requires_grad_() for t in (x, weight, kernel.randn(12))]
    y, mean, rstd = torch.native_layer_norm(*leaves[:1], [12], *leaves[1:], 1e-3)
    expected = torch.autograd.grad(y, leaves, dy.double())
    statistics = mean.detach()[:, 0], rstd.detach()[:, 0]
    ours = kernel.reference(dy, x, weight, *statistics)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@check("layer-norm-backward")
def check_gradient_has_no_part_along_ones_or_the_row(kernel: Kernel) -> None:
    # without eps the norm ignores a row's mean and length
    x = kernel.randn(4, 128)
    dx, *_ = kernel(kernel.randn(4, 128), x, kernel.randn(128), *_statistics(x, 0.0))
    dx, centred = dx.double(), x.double() - x.double().mean(dim=1, keepdim=True)
    bound = 4 * torch.finfo(kernel.dtype).eps * dx.norm(dim=1)
    assert (dx.sum(dim=1).abs() <= bound * 128**0.5).all()
    assert ((dx * centred).sum(dim=1).abs() <= bound * centred.norm(dim=1)).all()


@check("layer-norm-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    x, weight = kernel.randn(9, 40), kernel.randn(40)
    rest = (x, weight, *_statistics(x, 1e-5))
    for dy in (kernel.randn(1, 40), kernel.randn(9, 1), kernel.randn(1, 1)):
        kernel.assert_matches_reference(dy.expand(9, 40), *rest)


@check("layer-norm-backward")
def check_strides_of_every_row(kernel: Kernel) -> None:
    dy, weight = kernel.randn(24, 6).t(), kernel.randn(24)
    for x in (_between_nans(kernel.randn(6, 24)), kernel.randn(24, 6).t()):
        kernel.assert_matches_reference(dy, x, weight, *_statistics(x, 1e-5))


@check("layer-norm-backward")
def check_every_row_counts_once(kernel: Kernel) -> None:
    # with ones, dbias is the number of rows; more rows than any number of programs divides
    ones = torch.ones(1031, 3, dtype=kernel.dtype, device=kernel.device)
    zeros = torch.zeros(1031, device=kernel.device)
    _, dweight, dbias = kernel(ones, ones, ones[0].clone(), zeros, zeros + 1)
    for grad in (dweight, dbias):
        kernel.assert_close(grad, torch.full_like(grad, 1031.0), factor=1.0)


@check("layer-norm-backward")
def check_no_rows_no_gradient(kernel: Kernel) -> None:
    empty = kernel.randn(0, 24)
    none = torch.zeros(0, device=kernel.device)
    dx, dweight, dbias = kernel(empty, empty, kernel.randn(24), none, none)
    assert dx.shape == (0, 24) and not dweight.any() and not dbias.any()


@check("layer-norm-plain-backward")
def check_reference_is_the_plain_derivative(kernel: Kernel) -> None:
    dy, x = kernel.randn(5, 12), kernel.randn(5, 12).double().requires_grad_()
    y = torch.nn.functional.layer_norm(x, (12,), eps=1e-3)
    (expected,) = torch.autograd.grad(y, x, dy.double())
    values = x.detach()
    ours = kernel.reference(dy, values, *_exact_statistics(values, 1e-3))
    torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@check("layer-norm-plain-backward")
def check_strides_of_plain_gradients(kernel: Kernel) -> None:
    x = _between_nans(kernel.randn(6, 24))
    for dy in (kernel.randn(24, 6).t(), kernel.randn(1, 24).expand(6, 24)):
        kernel.assert_matches_reference(dy, x, *_statistics(x, 1e-5))


def _assert_right(kernel: Kernel, *tensors: torch.Tensor, eps: float) -> None:
    """Compare y alone: few means have no spread from which a tolerance could be earned."""
    y, *_ = kernel(*tensors, eps=eps)
    expected, *_ = kernel.reference(*tensors, eps=eps)
    kernel.assert_close(y, expected)


def _statistics(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    mean, rstd = _exact_statistics(x, eps)
    return mean.float(), rstd.float()


def _exact_statistics(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    wide = x.double()
    return wide.mean(dim=1), (wide.var(dim=1, correction=0) + eps).rsqrt()


def _between_nans(rows: torch.Tensor) -> torch.Tensor:
    """Return the same values, each row in the middle of a longer one of NaN."""
    wide = torch.full(
        (rows.shape[0], rows.shape[1] + 32), NAN, dtype=rows.dtype, device=rows.device
    )
    wide[:, 16 : 16 + rows.shape[1]] = rows
    return wide[:, 16 : 16 + rows.shape[1]]
