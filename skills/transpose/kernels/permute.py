"""Any permutation of up to five dimensions, at the speed of a copy where both sides have 16 bytes next to each other.

Dimensions that stay neighbours are merged first, so that most permutations become one of two plans. Where the last
dimension of the output is adjacent in the input, too, rows are copied. Else a tile is read along the dimension that is adjacent in
the input, turned in shared memory, and written along the one that is adjacent in the output. What is left over, three
dimensions at most, is spread over programs. Device memory: every element read once and written once.
"""

import torch
import triton
import triton.language as tl

Tuning = tuple[int | None, int | None, int | None, int | None]
Dimension = tuple[int, int, int]
"""Length, stride in the input, stride in the output."""

MOST_OUTER = 3


def transpose(
    x: torch.Tensor,
    *,
    ROWS: int | None = None,
    COLS: int | None = None,
    WARPS: int | None = None,
    GROUP: int | None = None,
) -> torch.Tensor:
    """Return y with y[c, r] = x[r, c].

    Args:
        x: (rows, cols) of any floating dtype, at any strides.
        ROWS: tile along the last dimension of the output, a power of two.
        COLS: tile along the dimension that is adjacent in x, a power of two.
        WARPS: warps in one program.
        GROUP: rows of tiles that are walked together.

    Returns:
        (cols, rows), contiguous.

    Raises:
        ValueError: x is not two-dimensional.
    """
    return _permute(x, (1, 0), (ROWS, COLS, WARPS, GROUP))


def batched_transpose(
    x: torch.Tensor,
    *,
    ROWS: int | None = None,
    COLS: int | None = None,
    WARPS: int | None = None,
    GROUP: int | None = None,
) -> torch.Tensor:
    """Return y with y[b, c, r] = x[b, r, c].

    Args:
        x: (batch, rows, cols) at any strides.
        ROWS, COLS, WARPS, GROUP: as in `transpose`.

    Returns:
        (batch, cols, rows), contiguous.

    Raises:
        ValueError: x is not three-dimensional.
    """
    return _permute(x, (0, 2, 1), (ROWS, COLS, WARPS, GROUP))


def swap_middle(
    x: torch.Tensor,
    *,
    ROWS: int | None = None,
    COLS: int | None = None,
    WARPS: int | None = None,
    GROUP: int | None = None,
) -> torch.Tensor:
    """Return y with y[a, c, b, d] = x[a, b, c, d]: (batch, tokens, heads, dim) to (batch, heads, tokens, dim).

    Args:
        x: four-dimensional, at any strides.
        ROWS, COLS, WARPS, GROUP: as in `transpose`.

    Returns:
        Contiguous.

    Raises:
        ValueError: x is not four-dimensional.
    """
    return _permute(x, (0, 2, 1, 3), (ROWS, COLS, WARPS, GROUP))


def reverse_axes(
    x: torch.Tensor,
    *,
    ROWS: int | None = None,
    COLS: int | None = None,
    WARPS: int | None = None,
    GROUP: int | None = None,
) -> torch.Tensor:
    """Return y with y[d, c, b, a] = x[a, b, c, d].

    Args:
        x: four-dimensional, at any strides.
        ROWS, COLS, WARPS, GROUP: as in `transpose`.

    Returns:
        Contiguous.

    Raises:
        ValueError: x is not four-dimensional.
    """
    return _permute(x, (3, 2, 1, 0), (ROWS, COLS, WARPS, GROUP))


def _permute(x: torch.Tensor, order: tuple[int, ...], tuning: Tuning) -> torch.Tensor:
    """Return x with dimension order[i] at place i, contiguous."""
    if x.ndim != len(order):
        raise ValueError(f"x is {tuple(x.shape)}, not of {len(order)} dimensions")
    y = torch.empty([x.shape[i] for i in order], dtype=x.dtype, device=x.device)
    if not y.numel():
        return y
    given = [(x.shape[i], x.stride(i), y.stride(place)) for place, i in enumerate(order)]
    merged = _merged(given)
    last = merged.pop()
    # the dimension that a tile is read along: the last of the output, or the one that is adjacent in x
    along = last
    if last[1] != 1 and merged:
        nearest = min(merged, key=lambda dimension: dimension[1] or x.numel())
        along = nearest if 0 < nearest[1] < last[1] else last
    turned = along is not last
    if turned:
        merged.remove(along)
        rows = last
    else:
        rows = merged.pop() if merged else (1, 0, 0)
    if len(merged) > MOST_OUTER:
        raise ValueError(f"{len(merged) + 2} dimensions are left after merging; at most 5 are done")
    outer = [(1, 0, 0)] * (MOST_OUTER - len(merged)) + merged
    _launch(x, y, rows, along, outer, turned, tuning)
    return y


def _merged(dimensions: list[Dimension]) -> list[Dimension]:
    """Return the output's dimensions without those of length 1, and with those joined that are neighbours in x, too."""
    merged: list[Dimension] = []
    for length, x_stride, y_stride in dimensions:
        if length == 1:
            continue
        if merged and merged[-1][1] == x_stride * length:
            merged[-1] = (merged[-1][0] * length, x_stride, y_stride)
        else:
            merged.append((length, x_stride, y_stride))
    return merged or [(1, 1, 1)]


def _launch(
    x: torch.Tensor,
    y: torch.Tensor,
    rows: Dimension,
    along: Dimension,
    outer: list[Dimension],
    turned: bool,
    tuning: Tuning,
) -> None:
    tile_rows, tile_cols, warps, group = tuning
    # 256 bytes next to each other on both sides, two lines of the cache: 64 x 64 in 32 bits, 128 x 128 in 16
    side = 256 // x.element_size()
    # a narrow dimension leaves its share of the tile to the other
    most_rows, most_cols = triton.next_power_of_2(rows[0]), triton.next_power_of_2(along[0])
    if tile_rows is None:
        wide = side if turned else max(1, 4096 // min(most_cols, 4096))
        tile_rows = max(1, min(most_rows, max(wide, side * side // max(most_cols, 16))))
    if tile_cols is None:
        wide = side if turned else 4096
        tile_cols = max(1, min(most_cols, max(wide, side * side // max(most_rows, 16))))
    tiles = triton.cdiv(rows[0], tile_rows), triton.cdiv(along[0], tile_cols)
    count = outer[0][0] * outer[1][0] * outer[2][0]
    _tile_kernel[(tiles[0] * tiles[1] * count,)](
        x, y, rows[0], along[0], tiles[0], tiles[1], outer[1][0], outer[2][0],
        rows[1], along[1], outer[0][1], outer[1][1], outer[2][1],
        rows[2], along[2], outer[0][2], outer[1][2], outer[2][2],
        ROWS=tile_rows, COLS=tile_cols, TURNED=turned, GROUP=group or 1,
        num_warps=warps or max(1, min(8, tile_rows * tile_cols // 512)),
    )  # fmt: skip


@triton.jit
def _tile_kernel(
    x_ptr, y_ptr, rows, cols, row_tiles, col_tiles, outer_1, outer_2,
    x_row_stride, x_col_stride, x_stride_0, x_stride_1, x_stride_2,
    y_row_stride, y_col_stride, y_stride_0, y_stride_1, y_stride_2,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    TURNED: tl.constexpr,
    GROUP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    outer = program // (row_tiles * col_tiles)
    tile = program % (row_tiles * col_tiles)
    # int64, because every product below may pass 2**31
    first = (outer // (outer_1 * outer_2)).to(tl.int64)
    second = (outer // outer_2 % outer_1).to(tl.int64)
    third = (outer % outer_2).to(tl.int64)
    x_ptr += first * x_stride_0 + second * x_stride_1 + third * x_stride_2
    y_ptr += first * y_stride_0 + second * y_stride_1 + third * y_stride_2

    # GROUP rows of tiles are walked down together, so that programs of one moment write near each other, too
    band = tile // (GROUP * col_tiles)
    height = tl.minimum(row_tiles - band * GROUP, GROUP)
    within = tile % (GROUP * col_tiles)
    row = ((band * GROUP + within % height) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    col = (within // height * COLS + tl.arange(0, COLS)).to(tl.int64)

    at = row[:, None] * x_row_stride + col[None, :] * x_col_stride
    mask = (row < rows)[:, None] & (col < cols)[None, :]
    x = tl.load(x_ptr + at, mask=mask)  # [ROWS, COLS]
    if TURNED:
        # the compiler passes it through shared memory, so that each side has its own layout
        to = col[:, None] * y_col_stride + row[None, :] * y_row_stride
        turned_mask = (col < cols)[:, None] & (row < rows)[None, :]
        tl.store(y_ptr + to, tl.trans(x), mask=turned_mask)
    else:
        to = row[:, None] * y_row_stride + col[None, :] * y_col_stride
        tl.store(y_ptr + to, x, mask=mask)
