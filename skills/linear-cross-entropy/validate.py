"""Properties and traps of the fused linear cross-entropy beyond agreement with the reference on the workloads."""

import torch
import torch.nn.functional as functional

from kernel_skills.executor.validation import Kernel, check

INF, NAN = float("inf"), float("nan")


@check("linear-cross-entropy")
def check_reference_is_the_operators_of_pytorch(kernel: Kernel) -> None:
    x, weight, target = kernel.randn(6, 20), kernel.randn(50, 20), _targets(kernel, 6, 50)
    target[2] = -100
    loss, _ = kernel.reference(x, weight, target, ignore_index=-100)
    theirs = functional.cross_entropy(x.double() @ weight.double().t(), target, reduction="none")
    torch.testing.assert_close(loss, theirs, rtol=1e-12, atol=1e-12)


@check("linear-cross-entropy")
def check_rows_are_independent(kernel: Kernel) -> None:
    x, weight, target = kernel.randn(9, 20), kernel.randn(50, 20), _targets(kernel, 9, 50)
    clean, _ = kernel(x, weight, target, ignore_index=-100)
    x[1::2] = NAN
    loss, _ = kernel(x, weight, target, ignore_index=-100)
    assert torch.equal(loss[::2], clean[::2]) and loss[1::2].isnan().all()


@check("linear-cross-entropy")
def check_classes_past_the_last_do_not_count(kernel: Kernel) -> None:
    # equal logits: the loss is log(vocab), whatever a tile holds beyond
    x = torch.zeros(3, 16, dtype=kernel.dtype, device=kernel.device)
    for vocab in (1, 17, 65):
        weight, target = kernel.randn(vocab, 16), _targets(kernel, 3, vocab)
        loss, _ = kernel(x, weight, target, ignore_index=-100)
        expected = torch.full_like(loss, vocab).log()
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)


@check("linear-cross-entropy")
def check_a_target_that_is_no_class_gives_nan(kernel: Kernel) -> None:
    x, weight, target = kernel.randn(5, 20), kernel.randn(30, 20), _targets(kernel, 5, 30)
    target[0], target[1], target[2] = 30, -1, 1 << 32
    loss, _ = kernel(x, weight, target, ignore_index=-100)
    assert loss[:3].isnan().all() and loss[3:].isfinite().all()


@check("linear-cross-entropy")
def check_strides(kernel: Kernel) -> None:
    x, weight = kernel.randn(20, 6).t(), kernel.randn(50, 40)[:, 8:28]
    kernel.assert_matches_reference(x, weight, _targets(kernel, 6, 50), ignore_index=-100)


@check("linear-cross-entropy-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    x = kernel.randn(5, 12).double().requires_grad_()
    weight = kernel.randn(9, 12).double().requires_grad_()
    target, dloss = _targets(kernel, 5, 9), kernel.randn(5).double()
    target[1] = -100
    logits = x @ weight.t()
    loss = functional.cross_entropy(logits, target, reduction="none")
    expected = torch.autograd.grad(loss, (x, weight), dloss, retain_graph=True)
    lse = torch.logsumexp(logits, dim=1).detach()
    ours = kernel.reference(dloss, x.detach(), weight.detach(), target, lse, ignore_index=-100)
    for actual, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)


@check("linear-cross-entropy-backward")
def check_ignored_rows_give_nothing(kernel: Kernel) -> None:
    x, weight = kernel.randn(4, 16), kernel.randn(40, 16)
    target, lse = torch.full((4,), -100, device=kernel.device), torch.zeros(4, device=kernel.device)
    dx, dweight = kernel(torch.ones_like(lse), x, weight, target, lse, ignore_index=-100)
    assert not dx.any() and not dweight.any()


@check("linear-cross-entropy-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    x, weight, target = kernel.randn(7, 16), kernel.randn(40, 16), _targets(kernel, 7, 40)
    lse = torch.logsumexp(x.float() @ weight.float().t(), dim=1)
    dloss = torch.full((1,), 0.5, device=kernel.device).expand(7)
    kernel.assert_matches_reference(dloss, x, weight, target, lse, ignore_index=-100)


@check("linear-cross-entropy-backward")
def check_no_rows_no_gradient(kernel: Kernel) -> None:
    x, weight = kernel.randn(0, 16), kernel.randn(40, 16)
    empty = torch.zeros(0, device=kernel.device)
    dx, dweight = kernel(empty, x, weight, empty.long(), empty, ignore_index=-100)
    assert dx.shape == (0, 16) and not dweight.any()


def _targets(kernel: Kernel, rows: int, classes: int) -> torch.Tensor:
    """Return classes that follow from the seed."""
    return (kernel.randn(rows).double().abs() * 1000).long() % classes
