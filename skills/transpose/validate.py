"""Properties and traps of permutations beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

NAN = float("nan")


@check("transpose")
def check_twice_is_the_identity(kernel: Kernel) -> None:
    x = kernel.randn(37, 90)
    assert torch.equal(kernel(kernel(x)), x)


@check("transpose")
def check_bits_pass_unchanged(kernel: Kernel) -> None:
    # copied, not computed with: NaN keeps its place, -0 its sign
    x = kernel.randn(5, 70)
    x[1, 3], x[2, 5], x[4, 69] = NAN, float("-inf"), -0.0
    y = kernel(x)
    torch.testing.assert_close(y, x.t(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(y.signbit(), x.t().signbit())


@check("transpose")
def check_any_strides(kernel: Kernel) -> None:
    x = kernel.randn(40, 64)
    for view in (x.t(), x[::3], x[:, 3:50], x[:, ::2], x[:1].expand(9, 64), x[:, :1].expand(40, 9)):
        assert torch.equal(kernel(view), view.t().contiguous())


@check("transpose")
def check_thin_matrices(kernel: Kernel) -> None:
    for shape in ((1, 1), (1, 300), (300, 1), (3, 500), (500, 2), (0, 5), (5, 0)):
        x = kernel.randn(*shape)
        assert torch.equal(kernel(x), x.t().contiguous())


@check("batched-transpose")
def check_matrices_stay_apart(kernel: Kernel) -> None:
    x = kernel.randn(3, 20, 33)
    clean = kernel(x)
    x[1] = NAN
    assert torch.equal(kernel(x)[::2], clean[::2])


@check("batched-transpose")
def check_any_strides_of_a_batch(kernel: Kernel) -> None:
    x = kernel.randn(6, 20, 30)
    for view in (x.transpose(0, 1), x.permute(2, 1, 0), x[:1].expand(4, 20, 30), x[::2, 1:, ::3]):
        assert torch.equal(kernel(view), view.transpose(1, 2).contiguous())


@check("swap-middle")
def check_swapping_twice_is_the_identity(kernel: Kernel) -> None:
    x = kernel.randn(2, 9, 5, 24)
    assert torch.equal(kernel(kernel(x)), x)


@check("swap-middle")
def check_dimensions_that_merge(kernel: Kernel) -> None:
    # each leaves another number of dimensions after merging
    for shape in (
        (1, 1, 1, 1),
        (1, 9, 5, 1),
        (2, 1, 5, 8),
        (2, 9, 1, 8),
        (1, 9, 5, 3),
        (4, 2, 2, 70),
    ):
        x = kernel.randn(*shape)
        assert torch.equal(kernel(x), x.permute(0, 2, 1, 3).contiguous())


@check("swap-middle")
def check_what_is_contiguous_already(kernel: Kernel) -> None:
    x = kernel.randn(2, 5, 9, 24).permute(0, 2, 1, 3)
    y = kernel(x)
    assert torch.equal(y, x.permute(0, 2, 1, 3))
    assert y.data_ptr() != x.data_ptr(), "a copy, never a view"


@check("reverse-axes")
def check_reversing_twice_is_the_identity(kernel: Kernel) -> None:
    x = kernel.randn(3, 4, 5, 17)
    assert torch.equal(kernel(kernel(x)), x)


@check("reverse-axes")
def check_any_strides_of_four_dimensions(kernel: Kernel) -> None:
    x = kernel.randn(6, 5, 8, 7)
    for view in (
        x.permute(3, 2, 1, 0),
        x.permute(1, 3, 0, 2),
        x[:, ::2, :, 1:],
        x[:1].expand(3, 5, 8, 7),
    ):
        assert torch.equal(kernel(view), view.permute(3, 2, 1, 0).contiguous())
