"""What host functions ask of a tensor's layout and of the device."""

import torch
import triton

ELEMENTS = 4096
"""Of a tile that one program holds: 16 values a thread at 8 warps."""


def is_pixels(x: torch.Tensor) -> bool:
    """Return whether the channels of a pixel lie next to each other (channels-last)."""
    _, channels, pixels = x.shape
    return not _is_planes(x) and x.stride(1) == 1 and x.stride(2) == channels and pixels > 1


def _is_planes(x: torch.Tensor) -> bool:
    """Return whether the pixels of a channel lie next to each other, and then the next channel."""
    _, channels, pixels = x.shape
    return (pixels == 1 or x.stride(2) == 1) and (channels == 1 or x.stride(1) == pixels)


def in_layout(x: torch.Tensor, pixels: bool) -> torch.Tensor:
    """Return x with dense samples in the layout asked for, copied only where it has another."""
    if pixels:
        return x if is_pixels(x) else x.transpose(1, 2).contiguous().transpose(1, 2)
    return x if _is_planes(x) else x.contiguous()


def empty_in_layout(x: torch.Tensor, pixels: bool) -> torch.Tensor:
    """Return an uninitialised tensor of the shape and dtype of x, dense in the layout."""
    batch, channels, size = x.shape
    if pixels:
        flipped = torch.empty((batch, size, channels), dtype=x.dtype, device=x.device)
        return flipped.transpose(1, 2)
    return torch.empty((batch, channels, size), dtype=x.dtype, device=x.device)


def multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":
        # Triton's interpreter runs the programs one after another
        return 4
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def wave_bytes(device: torch.device, wave_mb: int | None) -> int:
    """Return how many bytes may be read once for sums and again, by later launches, for results.

    Three quarters of the second-level cache; what the results are written to needs the rest.
    """
    if wave_mb is not None:
        return wave_mb << 20
    if device.type == "cpu":
        return 1 << 16
    # a chip with a smaller one has a further level behind it, or is too quick for many launches
    return max(int(torch.cuda.get_device_properties(device).L2_cache_size), 16 << 20) * 3 // 4


def tile_shape(channels: int, pixels: int, block: int) -> tuple[int, int]:
    """Return channels and pixels of a tile over planes, powers of two with `block` elements at most."""
    wide = min(triton.next_power_of_2(pixels), block)
    return min(triton.next_power_of_2(channels), block // wide), wide


def split_evenly(size: int, parts: int, block: int) -> tuple[int, int]:
    """Return (length of a part, parts): a whole number of blocks each, all but the last full."""
    length = triton.cdiv(triton.cdiv(size, max(parts, 1)), block) * block
    return length, triton.cdiv(size, length)
