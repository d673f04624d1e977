"""What torch and Triton can do here, printed as one line of JSON. Run as a process of its own by `doctor`.

`python doctor_probe.py toolchain` imports both, names the GPUs and compiles a kernel for another chip;
`python doctor_probe.py interpreter` runs the same kernel in Triton's interpreter, which is chosen at import.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

if sys.argv[1:] == ["interpreter"]:
    os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

CROSS_ARCH = 90


@triton.jit  # type: ignore[untyped-decorator]
def double_kernel(x_ptr, y_ptr, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < size
    tl.store(y_ptr + index, 2 * tl.load(x_ptr + index, mask=mask), mask=mask)


def gpus() -> list[dict[str, Any]]:
    """Return name, architecture and memory of every GPU that torch sees."""
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        hip = torch.version.hip is not None
        arch = (
            properties.gcnArchName.split(":")[0]
            if hip
            else f"sm_{properties.major}{properties.minor}"
        )
        found.append(
            {"name": properties.name, "arch": arch, "memory_bytes": properties.total_memory}
        )
    return found


def cross_compile() -> str:
    """Return an error, or nothing where a kernel compiled for a chip that need not be here."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "size": "i32", "BLOCK": "constexpr"}
    source = ASTSource(fn=double_kernel, signature=signature, constexprs={"BLOCK": 128})
    try:
        compiled = triton.compile(source, target=GPUTarget("cuda", CROSS_ARCH, 32))
    except Exception as error:  # noqa: BLE001 - the compiler's, pybind11's and subprocess' errors are the answer here
        return f"{type(error).__name__}: {error}"
    return "" if compiled.asm.get("cubin") else "no machine code came out"


def interpret() -> str:
    """Return an error, or nothing where the interpreter gave the right values."""
    x = torch.arange(200, dtype=torch.float32)
    y = torch.empty_like(x)
    double_kernel[(2,)](x, y, x.numel(), BLOCK=128)
    return "" if torch.equal(y, 2 * x) else "wrong values came out"


def main() -> None:
    if sys.argv[1:] == ["interpreter"]:
        answer: dict[str, Any] = {"interpreter": interpret()}
    else:
        answer = {
            "torch": torch.__version__,
            "cuda": torch.version.cuda or torch.version.hip,
            "triton": triton.__version__,
            "gpus": gpus(),
            "cross_compile": cross_compile(),
        }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
