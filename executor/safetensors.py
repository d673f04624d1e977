"""Read one tensor of a safetensors file as bytes, without torch: eight bytes of length, a JSON header, the data."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

from kernel_skills.executor.errors import InvalidPackage

_DTYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32",
    "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip
_MOST_HEADER_BYTES = 100_000_000
"""What the format itself allows."""


@dataclass(frozen=True)
class StoredTensor:
    dtype: str
    shape: tuple[int, ...]
    data: bytes


def read_tensor(path: Path, key: str) -> StoredTensor:
    """Return a tensor by its key.

    Raises:
        InvalidPackage: the file is no safetensors file, or has no such tensor, or one of another dtype.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > _MOST_HEADER_BYTES:
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file.read(length))
            if key not in header:
                known = ", ".join(sorted(set(header) - {"__metadata__"})) or "none"
                raise InvalidPackage(f"{path} holds no tensor {key!r}; known: {known}")
            described = header[key]
            first, last = described["data_offsets"]
            file.seek(8 + length + first)
            data = file.read(last - first)
        if len(data) != last - first:
            raise ValueError("it ends before its data")
        return StoredTensor(_DTYPES[described["dtype"]], tuple(described["shape"]), data)
    except (OSError, struct.error, ValueError, KeyError, TypeError) as error:
        raise InvalidPackage(f"{path} cannot be read as safetensors: {error}") from None
