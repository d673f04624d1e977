"""Properties and traps of the cross-entropy beyond agreement with the reference on the workloads."""

import torch
import torch.nn.functional as functional

from kernel_skills.executor.validation import Kernel, check

INF, NAN = float("inf"), float("nan")
PLAIN = {"ignore_index": -100, "label_smoothing": 0.0, "z_loss": 0.0}


@check("cross-entropy")
def check_reference_is_the_operator_of_pytorch(kernel: Kernel) -> None:
    x, target = kernel.randn(6, 50), _targets(kernel, 6, 50)
    target[2] = -100
    for smoothing in (0.0, 0.3):
        options = {**PLAIN, "label_smoothing": smoothing}
        loss, _ = kernel.reference(x, target, vocab=50, **options)
        theirs = functional.cross_entropy(
            x.double(), target, label_smoothing=smoothing, reduction="none"
        )
        torch.testing.assert_close(loss, theirs, rtol=1e-12, atol=1e-12)


@check("cross-entropy")
def check_shift_does_not_matter(kernel: Kernel) -> None:
    # a power of two that all three dtypes add exactly
    x = torch.round(kernel.randn(4, 90) * 16) / 16
    target = _targets(kernel, 4, 90)
    loss, lse = kernel(x, target, vocab=90, **PLAIN)
    moved, lse_moved = kernel(x + 4, target, vocab=90, **PLAIN)
    torch.testing.assert_close(moved, loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(lse_moved, lse + 4, rtol=1e-5, atol=1e-5)


@check("cross-entropy")
def check_logits_of_minus_infinity(kernel: Kernel) -> None:
    # a class that cannot be: no part of the sum, no NaN where it comes first, fills a block, or is the target
    x, target = kernel.randn(4, 40), torch.full((4,), 7, device=kernel.device)
    x[0, :5] = x[1, ::2] = x[2, 7] = -INF
    x[3, 8:] = -INF
    kernel.assert_matches_reference(x, target, vocab=40, **PLAIN)
    loss, _ = kernel(x, target, vocab=40, **PLAIN)
    assert loss[2] == INF and torch.isfinite(loss[[0, 1, 3]]).all()
    smooth = {**PLAIN, "label_smoothing": 0.1}
    kernel.assert_matches_reference(x, target, vocab=40, **smooth)


@check("cross-entropy")
def check_rows_without_a_distribution(kernel: Kernel) -> None:
    x, target = kernel.randn(4, 40), torch.zeros(4, dtype=torch.int64, device=kernel.device)
    x[0] = -INF
    x[1, 3] = INF
    x[2, 3] = NAN
    loss, lse = kernel(x, target, vocab=40, **PLAIN)
    assert loss[0].isnan() and loss[1] == INF and loss[2].isnan() and loss[3].isfinite()
    assert lse[0] == -INF and lse[1] == INF and lse[2].isnan()


@check("cross-entropy")
def check_ignored_rows_are_not_read(kernel: Kernel) -> None:
    x, target = kernel.randn(5, 40), _targets(kernel, 5, 40)
    target[1::2] = -100
    x[1::2] = NAN
    loss, lse = kernel(x, target, vocab=40, **PLAIN)
    assert not loss[1::2].any() and not lse[1::2].any() and loss.isfinite().all()


@check("cross-entropy")
def check_a_target_that_is_no_class_gives_nan(kernel: Kernel) -> None:
    x, target = kernel.randn(5, 40), _targets(kernel, 5, 30)
    target[0], target[1], target[2] = 30, -1, 1 << 40
    loss, lse = kernel(x, target, vocab=30, **PLAIN)
    assert loss[:3].isnan().all() and loss[3:].isfinite().all() and lse.isfinite().all()


@check("cross-entropy")
def check_padding_is_not_read(kernel: Kernel) -> None:
    x, target = kernel.randn(5, 48), _targets(kernel, 5, 41)
    expected = kernel(x, target, vocab=41, **PLAIN)
    for value in (NAN, INF, 60000.0):
        x[:, 41:] = value
        for actual, clean in zip(kernel(x, target, vocab=41, **PLAIN), expected, strict=True):
            assert torch.equal(actual, clean)


@check("cross-entropy-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    x, target = kernel.randn(5, 12).double().requires_grad_(), _targets(kernel, 5, 12)
    target[1] = -100
    dloss = kernel.randn(5).double()
    for smoothing, z in ((0.0, 0.0), (0.2, 0.05)):
        lse = torch.logsumexp(x, dim=1)
        loss = functional.cross_entropy(x, target, label_smoothing=smoothing, reduction="none")
        loss = loss + torch.where(target == -100, 0.0, z * lse.square())
        (expected,) = torch.autograd.grad(loss, x, dloss)
        options = {"ignore_index": -100, "label_smoothing": smoothing, "z_loss": z, "vocab": 12}
        ours = kernel.reference(dloss, x.detach(), target, lse.detach(), **options)
        torch.testing.assert_close(ours, expected, rtol=1e-10, atol=1e-10)


@check("cross-entropy-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    x, target = kernel.randn(9, 40), _targets(kernel, 9, 40)
    lse = torch.logsumexp(x.float(), dim=1)
    dloss = torch.full((1,), 0.5, device=kernel.device).expand(9)
    kernel.assert_matches_reference(dloss, x, target, lse, vocab=40, **PLAIN)


@check("cross-entropy-backward")
def check_ignored_rows_and_padding_are_zero(kernel: Kernel) -> None:
    x, target = kernel.randn(5, 48), _targets(kernel, 5, 41)
    lse = torch.logsumexp(x[:, :41].float(), dim=1)
    target[1], x[1], lse[1] = -100, NAN, 0.0
    x[:, 41:] = NAN
    dlogits = kernel(torch.ones_like(lse), x, target, lse, vocab=41, **PLAIN)
    assert not dlogits[1].any() and not dlogits[:, 41:].any() and dlogits.isfinite().all()


@check("cross-entropy-with-gradient")
def check_gradient_sums_to_zero(kernel: Kernel) -> None:
    # probabilities sum to 1, and 1 is taken off the target
    x, target = kernel.randn(4, 64), _targets(kernel, 4, 64)
    _, dlogits = kernel(x, target, reduction="sum", vocab=64, **PLAIN)
    assert (dlogits.double().sum(dim=1).abs() < 8 * torch.finfo(kernel.dtype).eps).all()


@check("cross-entropy-with-gradient")
def check_mean_is_over_rows_that_count(kernel: Kernel) -> None:
    x, target = kernel.randn(8, 33), _targets(kernel, 8, 33)
    target[3:] = -100
    x[3:] = NAN
    loss, dlogits = kernel(x, target, reduction="mean", vocab=33, **PLAIN)
    few, few_gradient = kernel(x[:3], target[:3], reduction="mean", vocab=33, **PLAIN)
    kernel.assert_close(loss, few)
    kernel.assert_close(dlogits[:3], few_gradient)
    assert not dlogits[3:].any()


@check("cross-entropy-with-gradient")
def check_mean_of_no_row_is_zero(kernel: Kernel) -> None:
    x, target = kernel.randn(3, 33), torch.full((3,), -100, device=kernel.device)
    loss, dlogits = kernel(x, target, reduction="mean", vocab=33, **PLAIN)
    assert loss == 0 and not dlogits.any()


@check("cross-entropy-with-gradient")
def check_impossible_classes_have_no_gradient(kernel: Kernel) -> None:
    x, target = kernel.randn(3, 40), torch.zeros(3, dtype=torch.int64, device=kernel.device)
    x[:, 5:9] = -INF
    loss, dlogits = kernel(x, target, reduction="sum", vocab=40, **PLAIN)
    assert loss.isfinite() and not dlogits[:, 5:9].any() and dlogits.isfinite().all()


def _targets(kernel: Kernel, rows: int, classes: int) -> torch.Tensor:
    """Return classes that follow from the seed."""
    return (kernel.randn(rows).double().abs() * 1000).long() % classes
