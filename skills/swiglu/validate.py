"""Properties and traps of the gated activations beyond agreement with the reference on the workloads."""

import math

import torch
import torch.nn.functional as functional

from kernel_skills.executor.validation import Kernel, check

NAN = float("nan")
ACTIVATIONS = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
}


@check("swiglu")
def check_reference_is_the_operator_of_pytorch(kernel: Kernel) -> None:
    gate, up = kernel.randn(3, 40, scale=3.0), kernel.randn(3, 40)
    for name, function in ACTIVATIONS.items():
        theirs = function(gate.double()) * up.double()
        ours = kernel.reference(gate, up, activation=name)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


@check("swiglu")
def check_large_gates(kernel: Kernel) -> None:
    # exp overflows on one side and its square vanishes on the other; no NaN on either
    top = min(torch.finfo(kernel.dtype).max, 3e38)
    values = [12.0, 100.0, 5000.0, top]
    gate = torch.tensor([values, [-v for v in values]], dtype=kernel.dtype, device=kernel.device)
    for name in ACTIVATIONS:
        y = kernel(gate, torch.ones_like(gate), activation=name).double()
        kernel.assert_close(y[0].to(kernel.dtype), gate[0])
        assert (y[1] <= 0).all() and (y[1] > -1e-4).all(), (name, y[1])


@check("swiglu")
def check_nan_passes(kernel: Kernel) -> None:
    gate, up = kernel.randn(2, 20), kernel.randn(2, 20)
    gate[0, 3], up[1, 5] = NAN, NAN
    for name in ACTIVATIONS:
        y = kernel(gate, up, activation=name)
        assert math.isnan(y[0, 3].item()) and math.isnan(y[1, 5].item())
        assert int(y.isnan().sum()) == 2


@check("swiglu")
def check_gate_comes_first(kernel: Kernel) -> None:
    zero, up = torch.zeros(2, 20, dtype=kernel.dtype, device=kernel.device), kernel.randn(2, 20)
    for name in ACTIVATIONS:
        assert not kernel(zero, up, activation=name).any()


@check("swiglu")
def check_each_tensor_has_its_own_strides(kernel: Kernel) -> None:
    wide = kernel.randn(6, 64)
    for name in ACTIVATIONS:
        kernel.assert_matches_reference(wide[:, 5:29], kernel.randn(24, 6).t(), activation=name)


@check("swiglu-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    gate = kernel.randn(3, 40, scale=3.0).double().requires_grad_()
    up = kernel.randn(3, 40).double().requires_grad_()
    dy = kernel.randn(3, 40).double()
    for name, function in ACTIVATIONS.items():
        expected = torch.autograd.grad(function(gate) * up, (gate, up), dy)
        ours = kernel.reference(dy, gate.detach(), up.detach(), activation=name)
        for actual, wanted in zip(ours, expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)


@check("swiglu-backward")
def check_slopes_of_large_gates(kernel: Kernel) -> None:
    gate = torch.tensor(
        [[100.0, 5000.0, -100.0, -5000.0]], dtype=kernel.dtype, device=kernel.device
    )
    ones = torch.ones_like(gate)
    for name in ACTIVATIONS:
        dgate, dup = kernel(ones, gate, ones, activation=name)
        assert torch.equal(dgate[0, :2], ones[0, :2]) and torch.equal(dup[0, :2], gate[0, :2])
        assert (dgate[0, 2:].double().abs() < 1e-30).all() and (
            dup[0, 2:].double().abs() < 1e-30
        ).all()


@check("swiglu-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    gate, up = kernel.randn(9, 40), kernel.randn(9, 40)
    for name in ACTIVATIONS:
        kernel.assert_matches_reference(
            kernel.randn(1, 40).expand(9, 40), gate, up, activation=name
        )
        kernel.assert_matches_reference(kernel.randn(1, 1).expand(9, 40), gate, up, activation=name)


@check("swiglu-packed")
def check_packed_is_the_two_halves(kernel: Kernel) -> None:
    x = kernel.randn(5, 48)
    x[:, 24:] = 0
    for name in ACTIVATIONS:
        assert not kernel(x, activation=name).any(), "the right half is the factor"


@check("swiglu-packed-backward")
def check_halves_of_the_gradient(kernel: Kernel) -> None:
    x, dy = kernel.randn(5, 48), kernel.randn(5, 24)
    x[:, 24:] = 0
    for name in ACTIVATIONS:
        dx = kernel(dy, x, activation=name)
        assert not dx[:, :24].any() and dx[:, 24:].any()
