"""What the five operators mean, in plain PyTorch.

Each computes in float32 at least, as `torch.softmax` does, and in float64 for float64 inputs.
"""

import torch


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Return exp(x) divided by its sum over a row.

    A row of which every element is -inf is 0/0, and so is one that holds +inf: NaN throughout, as
    in `torch.softmax`.

    Args:
        x: (rows, cols).
    """
    return torch.softmax(_wide(x), dim=1).to(x.dtype)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of `softmax`: x minus the log-sum-exp of its row.

    Args:
        x: (rows, cols).
    """
    return torch.log_softmax(_wide(x), dim=1).to(x.dtype)


def masked_softmax(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the softmax over the elements that `mask` keeps; the others are exactly 0.

    A row with nothing to keep, or with nothing but -inf, is 0 throughout: the convention of
    attention, where `torch.softmax` of a row of -inf is NaN.

    Args:
        x: (rows, cols).
        mask: (rows, cols) of bool, true where an element takes part.
    """
    kept = _wide(x).masked_fill(~mask, float("-inf"))
    y = torch.softmax(kept, dim=1)
    nothing = (kept == float("-inf")).all(dim=1, keepdim=True)
    return y.masked_fill(nothing | ~mask, 0.0).to(x.dtype)


def softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `softmax`, or of `masked_softmax`, with respect to x.

    Args:
        dy: (rows, cols), gradient of the output.
        y: (rows, cols), that output.
    """
    g, p = _wide(dy), _wide(y)
    return (p * (g - (g * p).sum(dim=1, keepdim=True))).to(y.dtype)


def log_softmax_backward(dy: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the gradient of `log_softmax` with respect to x.

    Args:
        dy: (rows, cols), gradient of the output.
        y: (rows, cols), that output.
    """
    g, logs = _wide(dy), _wide(y)
    return (g - logs.exp() * g.sum(dim=1, keepdim=True)).to(y.dtype)


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def make_inputs_infinite(
    axes: dict[str, int], dtypes: dict[str, str], seed: int, device: str
) -> dict[str, torch.Tensor]:
    """Draw x with -inf: scattered, in a long stretch at the start, in all of a row but one, in all."""
    x = _normal(axes, dtypes, seed, device)
    infinity = float("-inf")
    x[0::6, ::3] = infinity
    x[1::6, : axes["cols"] * 3 // 4] = infinity
    x[2::6, 1:] = infinity
    x[3::6] = infinity
    return {"x": x}


def make_inputs_masked_infinite(
    axes: dict[str, int], dtypes: dict[str, str], seed: int, device: str
) -> dict[str, torch.Tensor]:
    """Draw x as `make_inputs_infinite` does, with NaN and +inf where the mask leaves them out."""
    x = make_inputs_infinite(axes, dtypes, seed, device)["x"]
    mask = torch.ones(x.shape, dtype=torch.bool, device=device)
    mask[:, 5::7] = False
    x[:, 5::14] = float("nan")
    x[:, 12::14] = float("inf")
    return {"x": x, "mask": mask}


def _normal(axes: dict[str, int], dtypes: dict[str, str], seed: int, device: str) -> torch.Tensor:
    generator = torch.Generator(device=device).manual_seed(seed)
    values = torch.randn((axes["rows"], axes["cols"]), generator=generator, device=device)
    return values.to(getattr(torch, dtypes["T"]))
