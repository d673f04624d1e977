"""Properties and traps of the rotary embedding beyond agreement with the reference on the workloads."""

import torch

from kernel_skills.executor.validation import Kernel, check

PAIRINGS = ("half", "interleaved")


@check("rope")
def check_first_token_is_not_turned(kernel: Kernel) -> None:
    q, k, (cos, sin) = kernel.randn(2, 3, 4, 16), kernel.randn(2, 3, 2, 16), _tables(kernel, 5, 8)
    for pairing in PAIRINGS:
        q_out, k_out = kernel(q, k, cos, sin, pairing=pairing)
        assert torch.equal(q_out[:, 0], q[:, 0]) and torch.equal(k_out[:, 0], k[:, 0])


@check("rope")
def check_products_depend_on_distance_only(kernel: Kernel) -> None:
    # the point of the embedding: q at t and k at t + 2 have the same product for every t
    q = kernel.randn(1, 1, 1, 16).expand(1, 6, 1, 16)
    k = kernel.randn(1, 1, 1, 16).expand(1, 6, 1, 16)
    cos, sin = _tables(kernel, 6, 8)
    for pairing in PAIRINGS:
        q_out, k_out = (x.double() for x in kernel(q, k, cos, sin, pairing=pairing))
        products = (q_out[0, :4, 0] * k_out[0, 2:, 0]).sum(dim=1)
        spread = (products.max() - products.min()).item()
        scale = (q[0, 0, 0].double().norm() * k[0, 0, 0].double().norm()).item()
        assert spread < 4 * torch.finfo(kernel.dtype).eps * scale


@check("rope")
def check_pairings_differ_by_a_permutation(kernel: Kernel) -> None:
    q, k, (cos, sin) = kernel.randn(1, 5, 3, 12), kernel.randn(1, 5, 1, 12), _tables(kernel, 5, 6)
    spread = torch.arange(12, device=kernel.device).reshape(2, 6).t().flatten()
    halves = kernel(q, k, cos, sin, pairing="half")
    pairs = kernel(q[..., spread], k[..., spread], cos, sin, pairing="interleaved")
    for half, pair in zip(halves, pairs, strict=True):
        # not equal to the bit: compiled apart, one product of the two may be fused into the sum
        kernel.assert_close(half[..., spread], pair)


@check("rope")
def check_elements_beyond_the_rotated_pass(kernel: Kernel) -> None:
    # 6 of 20 elements turn; neither number is a power of two
    q, k, (cos, sin) = kernel.randn(1, 4, 3, 20), kernel.randn(1, 4, 1, 20), _tables(kernel, 4, 3)
    for pairing in PAIRINGS:
        q_out, k_out = kernel(q, k, cos, sin, pairing=pairing)
        assert torch.equal(q_out[..., 6:], q[..., 6:]) and torch.equal(k_out[..., 6:], k[..., 6:])
        kernel.assert_matches_reference(q, k, cos, sin, pairing=pairing)


@check("rope")
def check_heads_first_and_doubled_tables(kernel: Kernel) -> None:
    # (batch, heads, tokens, dim) in memory, and tables that hold each angle twice, as many models have them
    q, k = kernel.randn(2, 4, 3, 16).transpose(1, 2), kernel.randn(2, 2, 3, 16).transpose(1, 2)
    cos, sin = (torch.cat((table, table), dim=1)[:, :8] for table in _tables(kernel, 3, 8))
    for pairing in PAIRINGS:
        kernel.assert_matches_reference(q, k, cos, sin, pairing=pairing)


@check("rope")
def check_slices_of_a_packed_projection(kernel: Kernel) -> None:
    packed, (cos, sin) = kernel.randn(2, 5, 8, 16), _tables(kernel, 5, 8)
    for pairing in PAIRINGS:
        kernel.assert_matches_reference(
            packed[:, :, :4], packed[:, :, 4:6], cos, sin, pairing=pairing
        )


@check("rope-backward")
def check_reference_is_the_derivative(kernel: Kernel) -> None:
    q = kernel.randn(2, 3, 4, 10).double().requires_grad_()
    k = kernel.randn(2, 3, 1, 10).double().requires_grad_()
    # no rotation, so that the transposed and not the inverse is asked for
    cos, sin = kernel.randn(3, 4).double(), kernel.randn(3, 4).double()
    dq, dk = kernel.randn(2, 3, 4, 10).double(), kernel.randn(2, 3, 1, 10).double()
    for interleaved in (False, True):
        outputs = [_plain(x, cos, sin, interleaved) for x in (q, k)]
        expected = torch.autograd.grad(outputs, (q, k), (dq, dk))
        ours = kernel.reference(dq, dk, cos, sin, pairing=PAIRINGS[interleaved])
        for actual, wanted in zip(ours, expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-12)


@check("rope-backward")
def check_expanded_gradient(kernel: Kernel) -> None:
    dq, dk = (
        kernel.randn(1, 1, 1, 16).expand(2, 5, 4, 16),
        kernel.randn(1, 1, 1, 1).expand(2, 5, 2, 16),
    )
    cos, sin = _tables(kernel, 5, 8)
    for pairing in PAIRINGS:
        kernel.assert_matches_reference(dq, dk, cos, sin, pairing=pairing)


@check("rope-at-positions")
def check_positions_choose_rows(kernel: Kernel) -> None:
    q, k, (cos, sin) = kernel.randn(2, 3, 4, 16), kernel.randn(2, 3, 2, 16), _tables(kernel, 50, 8)
    position = torch.tensor([[49, 0, 7], [1, 1, 30]], device=kernel.device)
    for pairing in PAIRINGS:
        kernel.assert_matches_reference(q, k, cos, sin, position, pairing=pairing)
        one_row = position[:1].expand(2, 3)
        kernel.assert_matches_reference(q, k, cos, sin, one_row, pairing=pairing)


@check("rope-at-positions")
def check_positions_beyond_the_tables_show(kernel: Kernel) -> None:
    q, k, (cos, sin) = kernel.randn(1, 3, 4, 16), kernel.randn(1, 3, 2, 16), _tables(kernel, 5, 8)
    position = torch.tensor([[5, 4, -1]], device=kernel.device)
    for pairing in PAIRINGS:
        q_out, k_out = kernel(q, k, cos, sin, position, pairing=pairing)
        for out in (q_out, k_out):
            assert out[:, [0, 2]].isnan().all() and out[:, 1].isfinite().all()


@check("rope-at-positions-backward")
def check_turning_there_and_back(kernel: Kernel) -> None:
    q, k, (cos, sin) = kernel.randn(2, 3, 4, 16), kernel.randn(2, 3, 2, 16), _tables(kernel, 9, 8)
    position = torch.tensor([[8, 0, 7], [1, 1, 3]], device=kernel.device)
    for pairing in PAIRINGS:
        there = kernel.reference(q, k, cos, -sin, position, pairing=pairing)
        back = kernel(*(x.to(kernel.dtype) for x in there), cos, sin, position, pairing=pairing)
        for actual, wanted in zip(back, (q, k), strict=True):
            kernel.assert_close(actual, wanted)


def _tables(kernel: Kernel, positions: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin of the usual angles, in float32."""
    frequency = 100.0 ** (-torch.arange(half, device=kernel.device) / half)
    angle = torch.arange(positions, device=kernel.device)[:, None] * frequency
    return angle.cos(), angle.sin()


def _plain(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool
) -> torch.Tensor:
    cos, sin, width = cos[:, None], sin[:, None], 2 * cos.shape[1]
    a, b = (x[..., 0:width:2], x[..., 1:width:2]) if interleaved else x[..., :width].chunk(2, -1)
    c, d = a * cos - b * sin, b * cos + a * sin
    turned = torch.stack((c, d), -1).flatten(-2) if interleaved else torch.cat((c, d), -1)
    return torch.cat((turned, x[..., width:]), -1)
