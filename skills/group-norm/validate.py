"""Properties and traps of the group norm beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

NAN = float("nan")


@check("group-norm")
def check_one_group_a_channel_is_an_instance_norm(kernel: Kernel) -> None:
    x, weight, bias = kernel.randn(2, 5, 60), kernel.randn(5), kernel.randn(5)
    y, *_ = kernel(x, weight, bias, groups=5, eps=1e-5)
    expected = torch.nn.functional.instance_norm(
        x.double(), weight=weight.double(), bias=bias.double(), eps=1e-5
    )
    kernel.assert_close(y, expected)


@check("group-norm")
def check_layouts_agree(kernel: Kernel) -> None:
    x, weight, bias = kernel.randn(2, 12, 300), kernel.randn(12), kernel.randn(12)
    y, mean, rstd = kernel(x, weight, bias, groups=3, eps=1e-5)
    last, its_mean, its_rstd = kernel(_channels_last(x), weight, bias, groups=3, eps=1e-5)
    kernel.assert_close(last, y)
    torch.testing.assert_close((its_mean, its_rstd), (mean, rstd), rtol=1e-5, atol=1e-6)


@check("group-norm")
def check_groups_are_independent(kernel: Kernel) -> None:
    for layout in (torch.Tensor.contiguous, _channels_last):
        x, weight, bias = kernel.randn(3, 8, 40), kernel.randn(8), kernel.randn(8)
        whole, *_ = kernel(layout(x), weight, bias, groups=4, eps=1e-5)
        x[1] = NAN
        x[0, 2:4] = NAN
        y, *_ = kernel(layout(x), weight, bias, groups=4, eps=1e-5)
        assert torch.equal(y[2], whole[2]) and torch.equal(y[0, 4:], whole[0, 4:])
        assert torch.equal(y[0, :2], whole[0, :2]) and y[1].isnan().all()


@check("group-norm")
def check_a_constant_sample_gives_the_bias(kernel: Kernel) -> None:
    bias = kernel.randn(6)
    for layout in (torch.Tensor.contiguous, _channels_last):
        x = layout(torch.full_like(kernel.randn(2, 6, 50), 7.0))
        y, *_ = kernel(x, kernel.randn(6), bias, groups=2, eps=1e-5)
        assert torch.equal(y, bias[:, None].expand(2, 6, 50)), "no deviation: nothing but the bias"


@check("group-norm")
def check_image_of_four_dimensions(kernel: Kernel) -> None:
    # flattening the pixels copies in neither layout
    image, weight, bias = kernel.randn(2, 8, 5, 7), kernel.randn(8), kernel.randn(8)
    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = image.contiguous(memory_format=memory_format).flatten(2)
        _assert_right(kernel, x, weight, bias, groups=2, eps=1e-5)


@check("group-norm")
def check_gaps_between_samples(kernel: Kernel) -> None:
    rest = (kernel.randn(6), kernel.randn(6))
    wide = torch.full_like(kernel.randn(3, 8, 30), NAN)
    wide[:, 1:7] = kernel.randn(3, 6, 30)
    _assert_right(kernel, wide[:, 1:7], *rest, groups=3, eps=1e-5)
    tall = torch.full_like(kernel.randn(3, 32, 6), NAN)
    tall[:, 1:31] = kernel.randn(3, 30, 6)
    _assert_right(kernel, tall[:, 1:31].transpose(1, 2), *rest, groups=3, eps=1e-5)
    _assert_right(kernel, kernel.randn(1, 6, 30).expand(3, 6, 30), *rest, groups=3, eps=1e-5)


@check("group-norm-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    dy, x, weight = kernel.randn(2, 6, 10), kernel.randn(2, 6, 10), kernel.randn(6)
    leaves = [t.double().requires_grad_() for t in (x, weight, kernel.randn(6))]
    y = torch.nn.functional.group_norm(leaves[0], 3, leaves[1], leaves[2], 1e-3)
    expected = torch.autograd.grad(y, leaves, dy.double())
    ours = kernel.reference(dy, x, weight, *_exact_statistics(x, 3, 1e-3), groups=3)
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@check("group-norm-backward")
def check_gradient_of_a_group_sums_to_zero(kernel: Kernel) -> None:
    # a common summand does not change the norm
    for layout in (torch.Tensor.contiguous, _channels_last):
        x = kernel.randn(2, 6, 40)
        dy, weight = layout(kernel.randn(2, 6, 40)), kernel.randn(6)
        dx, *_ = kernel(dy, layout(x), weight, *_statistics(x, 3, 0.0), groups=3)
        grouped = dx.double().reshape(2, 3, -1)
        bound = 4 * torch.finfo(kernel.dtype).eps * grouped.norm(dim=2) * 80**0.5
        assert (grouped.sum(dim=2).abs() <= bound).all()


@check("group-norm-backward")
def check_expanded_gradients(kernel: Kernel) -> None:
    x, weight = kernel.randn(3, 6, 40), kernel.randn(6)
    rest = (weight, *_statistics(x, 3, 1e-5))
    for dy in (kernel.randn(1, 6, 40), kernel.randn(3, 6, 1), kernel.randn(1, 1, 1)):
        kernel.assert_matches_reference(dy.expand(3, 6, 40), x, *rest, groups=3)
        kernel.assert_matches_reference(dy.expand(3, 6, 40), _channels_last(x), *rest, groups=3)


@check("group-norm-backward")
def check_every_pixel_counts_once(kernel: Kernel) -> None:
    # with ones, both gradients are the number of samples times pixels
    for layout in (torch.Tensor.contiguous, _channels_last):
        ones = layout(torch.ones(5, 4, 207, dtype=kernel.dtype, device=kernel.device))
        zeros = torch.zeros(5, 4, device=kernel.device)
        weight = torch.ones(4, dtype=kernel.dtype, device=kernel.device)
        _, *grads = kernel(ones, ones, weight, zeros, zeros + 1, groups=2)
        for grad in grads:
            kernel.assert_close(grad, torch.full_like(grad, 1035.0), factor=1.0)


@check("group-norm-backward")
def check_no_samples_no_gradient(kernel: Kernel) -> None:
    empty, none = kernel.randn(0, 4, 10), torch.zeros(0, 4, device=kernel.device)
    dx, dweight, dbias = kernel(empty, empty, kernel.randn(4), none, none, groups=2)
    assert dx.shape == (0, 4, 10) and not dweight.any() and not dbias.any()


def _assert_right(kernel: Kernel, *tensors: torch.Tensor, groups: int, eps: float) -> None:
    """Compare y alone: few means have no spread from which a tolerance could be earned."""
    y, *_ = kernel(*tensors, groups=groups, eps=eps)
    expected, *_ = kernel.reference(*tensors, groups=groups, eps=eps)
    kernel.assert_close(y, expected)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def _statistics(x: torch.Tensor, groups: int, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    mean, rstd = _exact_statistics(x, groups, eps)
    return mean.float(), rstd.float()


def _exact_statistics(
    x: torch.Tensor, groups: int, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    size = x.shape[1] // groups
    grouped = x.double().reshape(x.shape[0], groups, -1)
    rstd = (grouped.var(dim=2, correction=0) + eps).rsqrt()
    return (
        grouped.mean(dim=2).repeat_interleave(size, dim=1),
        rstd.repeat_interleave(size, dim=1),
    )
