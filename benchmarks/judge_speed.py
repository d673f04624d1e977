"""Seconds that judging a candidate takes, for KernelBench-size problems with twenty candidates each.

    python benchmarks/judge_speed.py [--small] [--only softmax] [--json]

Writes each problem and its candidates to a folder of its own, judges the folder in one go on the GPU at hand, and prints
wall seconds per candidate with the phases. What comes once per problem stands apart: start-up, admission, compiling, and
the first candidate, which brings the baselines and the reference.

KernelBench's own evaluator, in-process and without compiling, takes 56.7 s (softmax), 4.4 s (layer norm) and 2.4 s
(matmul) for a candidate on one H200.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from kernel_skills.executor.problem_batch import Judges, JudgesOptions, Line
from kernel_skills.executor.targets import find_target

CANDIDATES = 20
HEAD = """\
import torch
import triton
import triton.language as tl


"""


@dataclass(frozen=True)
class Speed:
    """One problem: its file, a candidate's source with `%(NAME)s` to fill, and what is filled in."""

    problem: str
    candidate: str
    choices: dict[str, tuple[int, ...]]
    wrong: tuple[str, str]
    """A piece of the source, and what makes every fifth candidate wrong in its place."""
    kernelbench_s: float
    at_most_s: float


SOFTMAX = Speed(
    problem="""\
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.rand(%(rows)d, %(cols)d)]


def get_init_inputs():
    return []
""",
    candidate=HEAD
    + """\
@triton.jit
def softmax_kernel(x_ptr, y_ptr, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < cols, other=-float("inf"))
        higher = tl.maximum(top, x)
        total = total * tl.exp(top - tl.where(higher > -float("inf"), higher, 0.0)) + tl.exp(x - tl.where(higher > -float("inf"), higher, 0.0))
        top = higher
    highest = tl.max(top, 0)
    scale = 1.0 / tl.sum(total * tl.exp(top - highest), 0)
    for start in range(0, cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < cols, other=-float("inf"))
        tl.store(y_ptr + row * cols + at, tl.exp(x - highest) * scale, mask=at < cols)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
        softmax_kernel[(rows,)](x, y, x.stride(0), cols, BLOCK=%(BLOCK)d, num_warps=%(WARPS)d)
        return y
""",
    choices={"BLOCK": (1024, 2048, 4096, 8192, 16384), "WARPS": (4, 8, 16, 32)},
    wrong=("* scale", "* scale * 1.001"),
    kernelbench_s=56.7,
    at_most_s=5.6,
)  # fmt: skip

LAYER_NORM = Speed(
    problem="""\
import torch


class Model(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = torch.nn.LayerNorm(normalized_shape=shape)

    def forward(self, x):
        return self.ln(x)


def get_inputs():
    return [torch.rand(%(rows)d, %(features)d, %(size)d, %(size)d)]


def get_init_inputs():
    return [(%(features)d, %(size)d, %(size)d)]
""",
    candidate=HEAD
    + """\
@triton.jit
def sums_kernel(x_ptr, part_ptr, row_stride, line_stride, n, line, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    share = tl.cdiv(n, parts)
    count = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK], tl.float32)
    spread = tl.zeros([BLOCK], tl.float32)
    for start in range(0, share, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = (at < share) & (part * share + at < n)
        at += part * share
        where = row * row_stride + (at // line) * line_stride + at %% line
        x = tl.load(x_ptr + where, mask=mask, other=0.0)
        count += tl.where(mask, 1.0, 0.0)
        step = tl.where(mask, x - mean, 0.0)
        mean += step / tl.maximum(count, 1.0)
        spread += step * tl.where(mask, x - mean, 0.0)
    total = tl.sum(count, 0)
    middle = tl.sum(count * mean, 0) / tl.maximum(total, 1.0)
    spread += count * (mean - middle) * (mean - middle)
    tl.store(part_ptr + (row * parts + part) * 3, total)
    tl.store(part_ptr + (row * parts + part) * 3 + 1, middle)
    tl.store(part_ptr + (row * parts + part) * 3 + 2, tl.sum(spread, 0))


@triton.jit
def apply_kernel(x_ptr, w_ptr, b_ptr, y_ptr, part_ptr, row_stride, line_stride, w_stride, b_stride, n, line, eps,
                 PARTS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    some = tl.arange(0, PARTS)
    count = tl.load(part_ptr + (row * PARTS + some) * 3)
    mean = tl.load(part_ptr + (row * PARTS + some) * 3 + 1)
    spread = tl.load(part_ptr + (row * PARTS + some) * 3 + 2)
    middle = tl.sum(count * mean, 0) / n
    variance = tl.sum(spread + count * (mean - middle) * (mean - middle), 0) / n
    scale = 1.0 / tl.sqrt(variance + eps)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    line_at = at // line
    x = tl.load(x_ptr + row * row_stride + line_at * line_stride + at %% line, mask=mask)
    w = tl.load(w_ptr + line_at * w_stride + at %% line, mask=mask)
    b = tl.load(b_ptr + line_at * b_stride + at %% line, mask=mask)
    tl.store(y_ptr + row * n + at, (x - middle) * scale * w + b, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.ln = torch.nn.LayerNorm(normalized_shape=shape)

    def forward(self, x):
        w, b = self.ln.weight, self.ln.bias
        rows, line = x.shape[0], x.shape[3]
        n = x.shape[1] * x.shape[2] * line
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        part = torch.empty((rows, 256, 3), dtype=torch.float32, device=x.device)
        sums_kernel[(rows, 256)](x, part, x.stride(0), x.stride(2), n, line, 256, BLOCK=%(BLOCK)d, num_warps=%(WARPS)d)
        apply_kernel[(rows, triton.cdiv(n, %(BLOCK)d))](
            x, w, b, y, part, x.stride(0), x.stride(2), w.stride(1), b.stride(1), n, line, self.ln.eps, PARTS=256,
            BLOCK=%(BLOCK)d, num_warps=%(WARPS)d)
        return y
""",
    choices={"BLOCK": (512, 1024, 2048, 4096, 8192), "WARPS": (2, 4, 8, 16)},
    wrong=("* w + b", "* w"),
    kernelbench_s=4.4,
    at_most_s=0.88,
)  # fmt: skip

MATMUL = Speed(
    problem="""\
import torch


class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.rand(%(size)d, %(size)d), torch.rand(%(size)d, %(size)d)]


def get_init_inputs():
    return []
""",
    candidate=HEAD
    + """\
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, m, n, k, a_row, b_row, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * M + tl.arange(0, M)
    col = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros([M, N], tl.float32)
    for start in range(0, k, K):
        at = start + tl.arange(0, K)
        a = tl.load(a_ptr + row[:, None] * a_row + at[None, :], mask=(row[:, None] < m) & (at[None, :] < k), other=0.0)
        b = tl.load(b_ptr + at[:, None] * b_row + col[None, :], mask=(at[:, None] < k) & (col[None, :] < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * n + col[None, :], total, mask=(row[:, None] < m) & (col[None, :] < n))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        c = torch.empty((m, n), dtype=a.dtype, device=a.device)
        matmul_kernel[(triton.cdiv(m, %(M)d), triton.cdiv(n, %(N)d))](
            a, b, c, m, n, k, a.stride(0), b.stride(0), M=%(M)d, N=%(N)d, K=%(K)d, num_warps=%(WARPS)d)
        return c
""",
    choices={"M": (64, 128), "N": (64, 128), "K": (16, 32), "WARPS": (4, 8, 16)},
    wrong=('input_precision="ieee"', 'input_precision="ieee") * (1 + 1e-5'),
    kernelbench_s=2.4,
    at_most_s=1.2,
)  # fmt: skip

PROBLEMS = {"softmax": SOFTMAX, "layer-norm": LAYER_NORM, "matmul": MATMUL}
SIZES = {
    "softmax": {"rows": 4096, "cols": 393216},
    "layer-norm": {"rows": 16, "features": 64, "size": 256},
    "matmul": {"size": 4096},
}
SMALL = {
    "softmax": {"rows": 3, "cols": 3000},
    "layer-norm": {"rows": 2, "features": 2, "size": 40},
    "matmul": {"size": 96},
}


def write(name: str, sizes: dict[str, int], count: int, folder: Path) -> tuple[Path, Path]:
    """Write a problem and its candidates; return the problem's file and the candidates' folder."""
    speed, solutions = PROBLEMS[name], folder / name
    solutions.mkdir(parents=True)
    problem = folder / f"{name}.py"
    problem.write_text(speed.problem % sizes)
    filled = itertools.product(*speed.choices.values())
    for position, values in enumerate(itertools.islice(filled, count)):
        source = speed.candidate % dict(zip(speed.choices, values, strict=True))
        wrong = position % 5 == 4
        title = f"{position:02d}_{'wrong' if wrong else 'right'}.py"
        (solutions / title).write_text(source.replace(*speed.wrong) if wrong else source)
    return problem, solutions


def measure(name: str, sizes: dict[str, int], count: int, folder: Path) -> dict[str, object]:
    """Judge the candidates of a problem and return the figures."""
    problem, solutions = write(name, sizes, count, folder)
    fallen: list[float] = []
    begin = time.perf_counter()
    with Judges(find_target("h200"), JudgesOptions()) as judges:
        judges.load(problem, {})
        judges.admit()
        ready = time.perf_counter()
        lines = judges.judge_folder(
            solutions, folder / f"{name}.jsonl", lambda *_: fallen.append(time.perf_counter())
        )
    speed = PROBLEMS[name]
    expected = ["accepted" if "right" in line.file else "rejected" for line in lines]
    each = [end - start for start, end in itertools.pairwise(fallen)]
    accepted = [line for line in lines[1:] if line.verdict.accepted]
    return {
        "problem": name,
        "candidates": len(lines),
        "as_expected": [line.verdict.verdict for line in lines] == expected,
        "outcomes": [f"{line.file}: {line.verdict.outcome} {line.verdict.log[:200]}" for line in lines if line.verdict.verdict != expected[lines.index(line)]],
        "once_s": {"start and admission": ready - begin, "first candidate": fallen[0] - ready},
        "seconds_per_candidate": sum(each) / len(each),
        "median_s": statistics.median(each),
        "at_most_s": speed.at_most_s,
        "kernelbench_s": speed.kernelbench_s,
        "phases_s": phases(accepted),
        "latency_ms": [line.verdict.figures.performance.latency_ms for line in accepted if line.verdict.figures.performance],
    }  # fmt: skip


def phases(lines: list[Line]) -> dict[str, float]:
    """Return the median of every phase over the accepted candidates after the first."""
    names = dict.fromkeys(name for line in lines for name in line.verdict.seconds)
    return {
        name: round(statistics.median(line.verdict.seconds.get(name, 0.0) for line in lines), 4)
        for name in names
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--small", action="store_true", help="sizes that the interpreter takes")
    parser.add_argument("--only", choices=PROBLEMS, help="one problem")
    parser.add_argument("--candidates", type=int, default=CANDIDATES)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    asked = parser.parse_args()
    results = []
    for name in [asked.only] if asked.only else PROBLEMS:
        with tempfile.TemporaryDirectory() as folder:
            sizes = (SMALL if asked.small else SIZES)[name]
            results.append(measure(name, sizes, asked.candidates, Path(folder)))
        if not asked.json:
            print(json.dumps(results[-1], indent=1), flush=True)
    if asked.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
