"""Properties and traps of matrix products beyond the comparison on the declared workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

_MANTISSA_BITS = {torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}


@check("matmul")
def check_identity_returns_the_operand(kernel: Kernel) -> None:
    """Every product but one is 0, so the result is exact: a shifted row, column or slice shows."""
    a = kernel.randn(67, 96)
    eye = torch.eye(96, dtype=kernel.dtype, device=kernel.device)
    assert torch.equal(kernel(a, eye), a), "a @ 1 is not a"
    assert torch.equal(kernel(eye, a.T), a.T), "1 @ a.T is not a.T"


@check("matmul")
def check_last_mantissa_bit_survives(kernel: Kernel) -> None:
    """TF32 keeps 10 bits of float32's 23: the last bit of 1 + 2^-23 would be lost."""
    step = 2.0 ** -_MANTISSA_BITS[kernel.dtype]
    a = torch.full((32, 64), 1.0 + step, dtype=kernel.dtype, device=kernel.device)
    eye = torch.eye(64, dtype=kernel.dtype, device=kernel.device)
    assert torch.equal(kernel(a, eye), a), "the operand was rounded before the product"


@check("matmul")
def check_doubling_is_exact(kernel: Kernel) -> None:
    """A power of 2 changes no mantissa, so no sum is rounded differently."""
    a, b = kernel.randn(33, 130), kernel.randn(130, 40)
    assert torch.equal(kernel(a * 2, b), kernel(a, b) * 2), "doubling an operand changed more"


@check("matmul")
def check_not_a_number_stays_in_its_row_and_column(kernel: Kernel) -> None:
    """Padding that is multiplied by 0 instead of being left out would carry NaN across a tile."""
    a, b = kernel.randn(40, 65), kernel.randn(65, 48)
    a[3, 64], b[64, 5] = float("nan"), float("inf")
    out = kernel(a, b)
    outside = torch.ones_like(out, dtype=torch.bool)
    outside[3], outside[:, 5] = False, False
    assert out[3].isnan().all(), "the row with NaN has finite elements"
    assert out[outside].isfinite().all(), "NaN or inf left its row or column"


@check("matmul")
def check_sum_is_kept_in_float32(kernel: Kernel) -> None:
    """2048 products near 1: 16-bit partial sums would lose them against the total."""
    a, b = kernel.randn(3, 2048, scale=0.05) + 1, kernel.randn(2048, 4, scale=0.05) + 1
    kernel.assert_matches_reference(a, b)


@check("matmul-backward")
def check_gradients_agree_with_the_product(kernel: Kernel) -> None:
    """<dout, a @ b>, <da, a> and <db, b> are one number."""
    dout, a, b = kernel.randn(24, 40), kernel.randn(24, 56), kernel.randn(56, 40)
    da, db = kernel(dout, a, b)
    wide = [x.double() for x in (dout, a, b, da, db)]
    dout64, a64, b64, da64, db64 = wide
    expected = (dout64 * (a64 @ b64)).sum()
    # da and db are rounded to the dtype: at most eps / 2 of each term
    slack = torch.finfo(kernel.dtype).eps * ((da64 * a64).abs().sum() + (db64 * b64).abs().sum())
    assert ((da64 * a64).sum() - expected).abs() <= slack, "da is not the gradient of a @ b"
    assert ((db64 * b64).sum() - expected).abs() <= slack, "db is not the gradient of a @ b"


@check("linear")
def check_bias_alone_is_activated(kernel: Kernel) -> None:
    """With weights of 0 only the bias is left, far into the tails of the activations."""
    x = kernel.randn(17, 32)
    weight = torch.zeros(9, 32, dtype=kernel.dtype, device=kernel.device)
    bias = torch.tensor([-80, -12, -3, -0.5, 0, 0.5, 3, 12, 80], device=kernel.device)
    for activation in ("none", "relu", "gelu", "silu"):
        kernel.assert_matches_reference(x, weight, bias.to(kernel.dtype), activation=activation)


@check("linear")
def check_activations_keep_not_a_number(kernel: Kernel) -> None:
    """A maximum with 0 that takes the number of the two would hide a NaN from whoever looks for it."""
    x, weight, bias = kernel.randn(17, 32), kernel.randn(24, 32), kernel.randn(24)
    x[5, 7] = float("nan")
    for activation in ("none", "relu", "gelu", "silu"):
        out = kernel(x, weight, bias, activation=activation)
        assert out[5].isnan().all(), f"{activation}: the row with NaN has finite elements"
        assert out[:5].isfinite().all() and out[6:].isfinite().all(), f"{activation}: NaN spread"


@check("linear")
def check_activation_comes_after_the_whole_sum(kernel: Kernel) -> None:
    """A negative half of k that a later slice outweighs: activating each slice would keep it out."""
    x = torch.ones(16, 256, dtype=kernel.dtype, device=kernel.device)
    weight = torch.ones(8, 256, dtype=kernel.dtype, device=kernel.device)
    weight[:, :128] = -0.5
    bias = torch.full((8,), -32.0, dtype=kernel.dtype, device=kernel.device)
    out = kernel(x, weight, bias, activation="relu")
    assert torch.equal(out, torch.full_like(out, 32.0)), "relu was not applied to the whole sum"
