"""Mutants that no workload tells from the kernel, with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "flash-attn/kernels/portable.py: wrong-other in _tile_step: other=0.0 (2)":
        "the padded columns of k meet those of q, which are 0",
    "matmul/kernels/portable.py: off-by-one in activate: x < 0": "both branches give 0 at 0",
    "matmul/kernels/portable.py: off-by-one in activate: x < 0 (1)": "both branches give 0 at 0",
    "matmul/kernels/portable.py: wrong-other in matmul_kernel: other=0.0 (2)":
        "columns past the last are not stored",
    "rms-norm/kernels/forward.py: wrong-other in _rows_kernel: other=0.0 (2)":
        "columns past the last are not stored",
    "rms-norm/kernels/split.py: off-by-one in _strips_kernel: index < rows":
        "reads one element past the end, which meets a row of zeros",
    "rms-norm/kernels/split.py: no-mask in _strips_kernel: tl.load(rstd_ptr + index, mask=index < rows, other=0.0)":
        "reads past the end, which meets rows of zeros",
    "rms-norm/kernels/split.py: wrong-other in _strips_kernel: other=0.0 (2)":
        "meets rows of zeros",
    "rms-norm/kernels/split.py: wrong-other in _sums_kernel: other=0.0 (1)":
        "another factor of the product is 0 there",
}  # fmt: skip
"""These compute what the kernel does."""

UNSEEN: dict[str, str] = {
    "matmul/kernels/portable.py: dropped-factor in activate: x * 0.7071067811865476":
        "no smoke or edge workload takes GELU in float32",
    "rms-norm/kernels/backward.py: wrong-stride in _rows_kernel: dy_row_stride":
        "no workload has dy and dsummed in rows of different strides",
    "rms-norm/kernels/forward.py: wrong-stride in _twice_kernel: residual_row_stride":
        "no wide workload has x and residual in rows of different strides",
    "rms-norm/kernels/split.py: dropped-factor in _strips_kernel: program.to(tl.int64) * cols":
        "the interpreter's device has one program for each strip of columns",
    "rms-norm/kernels/split.py: wrong-stride in _strips_kernel: dy_row_stride":
        "no wide workload of a backward pass has inputs in rows of different strides",
}  # fmt: skip
"""These are wrong where no smoke or edge workload of the skill looks: each is a workload to add."""
