"""Library calls to measure the kernels against."""

import functools
from collections.abc import Callable
from typing import Any

import torch


def compiled_rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, pairing: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Run what torch.compile makes of the usual lines: rotate_half or pairs, in the dtype of q."""
    return _compiled(pairing)(q, k, cos, sin)


def liger_rope(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, pairing: str
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """Return a call of Liger's kernel, which rotates in place, on copies made outside the timed call; pairs of halves only."""
    from liger_kernel.ops.rope import LigerRopeFunction

    if pairing != "half" or 2 * cos.shape[1] != q.shape[3]:
        raise NotImplementedError("Liger pairs the halves of a whole head")
    tokens = q.shape[1]
    tables = [torch.cat((table, table), 1)[None, :tokens].to(q.dtype) for table in (cos, sin)]
    # (batch, heads, tokens, dim), as a view
    copies = [x.clone().transpose(1, 2) for x in (q, k)]
    return lambda: LigerRopeFunction.apply(*copies, *tables)


@functools.cache
def _compiled(pairing: str) -> Callable[..., Any]:
    """Compile once for all sets of inputs."""
    function = functools.partial(_both, pairing=pairing)
    return torch.compile(
        lambda *tensors: function(*tensors), mode="max-autotune-no-cudagraphs", dynamic=False
    )


def _both(
    q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *, pairing: str
) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, half = q.shape[1], cos.shape[1]
    cos, sin = cos[None, :tokens, None], sin[None, :tokens, None]

    def one(x: torch.Tensor) -> torch.Tensor:
        head = x[..., : 2 * half].float()
        a, b = head.chunk(2, -1) if pairing == "half" else (head[..., 0::2], head[..., 1::2])
        pair = (a * cos - b * sin, b * cos + a * sin)
        turned = torch.cat(pair, -1) if pairing == "half" else torch.stack(pair, -1).flatten(-2)
        return torch.cat((turned.to(x.dtype), x[..., 2 * half :]), -1)

    return one(q), one(k)
