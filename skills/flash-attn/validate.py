"""Properties of attention, and traps that single workloads do not show."""

import torch

from kernel_skills.executor.validation import Kernel, check

# eps of the largest element: merging or reordering sums rounds a few times more than one call does
_ROUNDINGS = 16.0
# an lse sums rounded exponentials; a wrong base or a lost key is off by thousands of eps
_LSE_ROUNDINGS = 64.0


@check("flash-attn")
def check_constant_values_come_back(kernel: Kernel) -> None:
    """Weights add up to 1: padded keys, padded dims and stale accumulators would show here."""
    q, k = kernel.randn(1, 2, 67, 24), kernel.randn(1, 1, 131, 24)
    v = torch.full_like(k, 0.75)
    for causal in (False, True):
        out, _ = kernel(q, k, v, causal=causal, scale=0.2)
        # float32 adds 131 weights one after another: 4 roundings were seen to miss the bound on an H200
        kernel.assert_close(out, torch.full_like(out, 0.75), factor=16.0)


@check("flash-attn")
def check_rows_without_keys_are_zero(kernel: Kernel) -> None:
    """More queries than keys, causal: the first rows see nothing, and give 0 and -inf exactly."""
    q, k, v = kernel.randn(1, 1, 150, 16), kernel.randn(1, 1, 70, 16), kernel.randn(1, 1, 70, 16)
    out, lse = kernel(q, k, v, causal=True, scale=0.25)
    assert not out[:, :, :80].any(), "a row that sees no key is not 0"
    assert (lse[:, :, :80] == float("-inf")).all(), "a row that sees no key has a finite lse"
    assert torch.isfinite(lse[:, :, 80:]).all(), "a row that sees keys has no finite lse"


@check("flash-attn")
def check_causal_aligns_to_the_bottom_right(kernel: Kernel) -> None:
    """The last queries of a long sequence, alone, give what they give within it."""
    q, k, v = (kernel.randn(1, 2, 140, 32) for _ in range(3))
    whole, whole_lse = kernel(q, k, v, causal=True, scale=0.2)
    for rows in (1, 75):
        tail = q[:, :, -rows:].contiguous()
        out, lse = kernel(tail, k, v, causal=True, scale=0.2)
        kernel.assert_close(out, whole[:, :, -rows:])
        kernel.assert_close(lse, whole_lse[:, :, -rows:], factor=_LSE_ROUNDINGS)


@check("flash-attn")
def check_parts_merge_by_lse(kernel: Kernel) -> None:
    """Two halves of the keys, merged by their lse, give the whole: lse is the natural logarithm."""
    q, k, v = kernel.randn(1, 1, 65, 32), kernel.randn(1, 1, 200, 32), kernel.randn(1, 1, 200, 32)
    whole, whole_lse = kernel(q, k, v, causal=False, scale=0.2)
    halves = [
        kernel(q, k[:, :, part].contiguous(), v[:, :, part].contiguous(), causal=False, scale=0.2)
        for part in (slice(0, 90), slice(90, 200))
    ]
    lse = torch.logaddexp(halves[0][1], halves[1][1])
    merged = sum(out.double() * torch.exp(part - lse)[..., None] for out, part in halves)
    kernel.assert_close(merged.to(whole.dtype), whole, factor=_ROUNDINGS)
    kernel.assert_close(lse, whole_lse, factor=_LSE_ROUNDINGS)


@check("flash-attn")
def check_order_of_keys_does_not_matter(kernel: Kernel) -> None:
    """Full attention is the same for permuted keys: no tile is left out or taken twice."""
    q, k, v = kernel.randn(1, 1, 66, 16), kernel.randn(1, 1, 193, 16), kernel.randn(1, 1, 193, 16)
    order = torch.arange(193, device=q.device).flip(0)
    out, lse = kernel(q, k, v, causal=False, scale=0.25)
    turned, turned_lse = kernel(q, k[:, :, order], v[:, :, order], causal=False, scale=0.25)
    kernel.assert_close(turned, out, factor=_ROUNDINGS)
    kernel.assert_close(turned_lse, lse, factor=_LSE_ROUNDINGS)


@check("flash-attn")
def check_large_scores_pick_one_key(kernel: Kernel) -> None:
    """Scores of thousands: exp of an unshifted one overflows, and a late maximum rescales to 0."""
    k, v = kernel.randn(1, 1, 130, 16), kernel.randn(1, 1, 130, 16)
    kernel.assert_matches_reference(k * 8, k * 8, v, causal=True, scale=4.0)


@check("flash-attn")
def check_groups_share_their_key_head(kernel: Kernel) -> None:
    """Query head h reads key head h // group, also where the group is no power of two."""
    q, k, v = (kernel.randn(2, heads, 40, 16) for heads in (6, 2, 2))
    out, lse = kernel(q, k, v, causal=False, scale=0.25)
    apart = kernel(
        q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1), causal=False, scale=0.25
    )
    kernel.assert_close(apart[0], out)
    kernel.assert_close(apart[1], lse, factor=_LSE_ROUNDINGS)
