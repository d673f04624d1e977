"""Properties and traps of GELU beyond agreement with the reference on the workloads."""

import math

import torch
import torch.nn.functional as functional

from kernel_skills.executor.validation import Kernel, check

INF, NAN = float("inf"), float("nan")
FORMS = ("none", "tanh")


@check("gelu")
def check_reference_is_the_operator_of_pytorch(kernel: Kernel) -> None:
    x = kernel.randn(3, 40, scale=3.0)
    for form in FORMS:
        theirs = functional.gelu(x.double(), approximate=form)
        torch.testing.assert_close(
            kernel.reference(x, approximate=form), theirs, rtol=1e-12, atol=1e-12
        )


@check("gelu")
def check_values_that_are_not_finite(kernel: Kernel) -> None:
    x = torch.tensor([[INF, -INF, NAN, 0.0, -0.0]], dtype=kernel.dtype, device=kernel.device)
    for form in FORMS:
        y = kernel(x, approximate=form)[0].tolist()
        assert y[0] == INF and y[1] == 0 and math.isnan(y[2]) and y[3] == y[4] == 0, y


@check("gelu")
def check_far_out(kernel: Kernel) -> None:
    # past about 11 the exponential of the tanh form overflows where it is written carelessly
    far = [11.0, 12.5, 20.0, 100.0, 1e4, min(torch.finfo(kernel.dtype).max, 3e38)]
    x = torch.tensor([far, [-value for value in far]], dtype=kernel.dtype, device=kernel.device)
    for form in FORMS:
        y = kernel(x, approximate=form).double()
        assert torch.equal(y[0], x[0].double()), "the identity"
        assert (y[1] <= 0).all() and (y[1] > -1e-25).all(), "nothing left, and never positive"


@check("gelu")
def check_negative_tail_keeps_its_digits(kernel: Kernel) -> None:
    if kernel.dtype is not torch.float32:
        return
    x = torch.linspace(-12.5, 0, 999, device=kernel.device)[None]
    y, exact = kernel(x, approximate="none").double(), kernel.reference(x, approximate="none")
    worst = ((y - exact) / exact.abs().clamp(min=1e-37)).abs().max().item()
    # the interpreter rounds a multiply-add twice, which loses what is kept of the square
    assert worst < (2e-5 if kernel.interpreted else 2e-6), f"{worst:.1e}"
    x = x[:, x[0] > -9]
    y, exact = kernel(x, approximate="tanh").double(), kernel.reference(x, approximate="tanh")
    worst = ((y - exact) / exact.abs().clamp(min=1e-37)).abs().max().item()
    assert worst < 2e-5, f"{worst:.1e}"


@check("gelu")
def check_halves_differ_by_x(kernel: Kernel) -> None:
    x = kernel.randn(3, 50, scale=2.0)
    for form in FORMS:
        difference = kernel(x, approximate=form) - kernel(-x, approximate=form)
        kernel.assert_close(difference, x)


@check("gelu-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    x = kernel.randn(3, 40, scale=3.0).double().requires_grad_()
    dy = kernel.randn(3, 40).double()
    for form in FORMS:
        (expected,) = torch.autograd.grad(functional.gelu(x, approximate=form), x, dy)
        ours = kernel.reference(dy, x.detach(), approximate=form)
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@check("gelu-backward")
def check_slope_at_the_ends(kernel: Kernel) -> None:
    top = torch.finfo(kernel.dtype).max
    x = torch.tensor(
        [[INF, -INF, NAN, top, -top, 15.0, -15.0]], dtype=kernel.dtype, device=kernel.device
    )
    for form in FORMS:
        dx = kernel(torch.full_like(x, 2.0), x, approximate=form)[0].tolist()
        assert (
            dx[0] == dx[3] == dx[5] == 2 and dx[1] == dx[4] == dx[6] == 0 and math.isnan(dx[2])
        ), dx


@check("gelu-backward")
def check_slopes_of_opposite_values_add_up_to_one(kernel: Kernel) -> None:
    x = kernel.randn(3, 50, scale=2.0)
    ones = torch.ones_like(x)
    for form in FORMS:
        both = kernel(ones, x, approximate=form) + kernel(ones, -x, approximate=form)
        kernel.assert_close(both, ones)


@check("gelu-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    x = kernel.randn(9, 40)
    for form in FORMS:
        kernel.assert_matches_reference(kernel.randn(1, 40).expand(9, 40), x, approximate=form)
        kernel.assert_matches_reference(kernel.randn(1, 1).expand(9, 40), x, approximate=form)
