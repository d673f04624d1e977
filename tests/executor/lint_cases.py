"""Small candidates by rule: what each finds, and what is like it and honest. `{K}` is a kernel with its launcher `run`."""

from __future__ import annotations

KERNEL_PART = """\
import math
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def run(x, y):
    copy_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


"""

_ENTRY = "def scale(x):\n    {}\n    return run(x, torch.empty_like(x))\n"


def candidate(body: str) -> str:
    """A candidate that does `body` and then launches: one line is put into the entry, more are the whole file."""
    if "def scale" in body or "class scale" in body:
        return KERNEL_PART + body
    return KERNEL_PART + _ENTRY.format(body)


HONEST: dict[str, list[str]] = {
    "S-import": [
        "from torch import nn\nimport torch.nn.functional as F\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "try:\n    from triton.tools.tensor_descriptor import TensorDescriptor\nexcept ImportError:\n"
        "    TensorDescriptor = None\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "from contextlib import nullcontext\nimport itertools, functools\ndef scale(x):\n"
        "    with torch.cuda.device(x.device) if x.is_cuda else nullcontext():\n"
        "        return run(x, torch.empty_like(x))",
    ],
    "S-entry": ["@torch.no_grad()\ndef scale(x):\n    return run(x, torch.empty_like(x))"],
    "S-reference": [
        "def reference(x):\n    return torch.softmax(x, -1)\ndef scale(x):\n    return run(x, torch.empty_like(x))"
    ],
    "S-torch": [
        "z = torch.zeros((x.shape[0], 4), dtype=torch.float32, device=x.device)",
        "n = torch.finfo(x.dtype).max; z = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)",
        "def unused(x):\n    return torch.softmax(x, -1)\ndef scale(x):\n    return run(x, torch.empty_like(x))\n"
        "if __name__ == '__main__':\n    print(torch.softmax(torch.randn(3), -1))",
        "class Net(torch.nn.Module):\n    def __init__(self, n=4):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.randn(n, n) * 0.02)\n"
        "        torch.nn.init.normal_(self.weight)\n        self.register_buffer('table', torch.arange(n).cos())\n"
        "        self.reset_parameters()\n"
        "    def reset_parameters(self):\n        torch.nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))\n"
        "    def forward(self, x):\n        return run(x, torch.empty_like(x))\n"
        "class scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = Net()\n"
        "    def forward(self, x):\n        return self.net(x)",
    ],
    "S-method": [
        "x = x.contiguous().view(-1, x.shape[-1]).transpose(0, 1).unsqueeze(0).expand(2, -1, -1).reshape(-1)",
        "y = x.new_empty(x.shape).T; z = x.detach().clone(); k = {}; k.update(a=1); k.get('a'); s = 'a'.upper()",
        "z = torch.empty_like(x).zero_(); w = torch.empty(4, device=x.device).fill_(0.0); x = x.to(x.device)",
        "for part in x.split(4):\n        run(part, torch.empty_like(part))",
        "from typing import NamedTuple\nclass Tile(NamedTuple):\n    rows: int\n    cols: int = 4\n"
        "    @property\n    def softmax(self) -> int:\n        return self.rows * self.cols\n"
        "def scale(x):\n    t = Tile(4)\n    n = t.softmax * 2\n    return run(x, torch.empty_like(x))",
    ],
    "S-operator": [
        "m, n = x.shape; g = (m + 63) // 64 * -(-n // 64); b = 1 << (n - 1).bit_length(); c = min(m, n) ** 2",
        "if x.shape[0] * x.element_size() > 4 or x.dtype != torch.float16 or x.stride() == (1, 2): pass",
        "a, *rest = x.shape; total = math.prod(rest) * a; m = sum(x.shape); n = max(*x.shape); s = x.shape[:-1] + (4,)",
        "def scale(x, n, eps: float = 1e-5, groups=4):\n    size = n * 2 + groups\n    e = eps * 2 - 1\n"
        "    return run(x, torch.empty((n + 1, groups * 2), device=x.device))",
        "def grid(meta):\n    return (triton.cdiv(4, meta['BLOCK']) * 2,)\n"
        "def scale(x):\n    run(x, x.clone())\n    y = torch.empty_like(x)\n"
        "    copy_kernel[grid](x, y, x.numel(), BLOCK=4)\n    return y",
        "if x is None or x.dim() != 2: raise ValueError(f'{x.shape} {x.numel() * 2}')",
        "v = x[0]; w = x[:, None]; u = x[..., :4]",
    ],
    "S-module": [
        "class scale(torch.nn.Module):\n    def __init__(self, n=4):\n        super().__init__()\n"
        "        self.lin = torch.nn.Linear(n, n)\n        self.norm = torch.nn.LayerNorm(n)\n"
        "    def forward(self, x):\n        w, b = self.lin.weight, self.lin.bias\n"
        "        n = w.shape[0] * self.lin.in_features\n"
        "        run(w, torch.empty_like(w))\n        return run(x, torch.empty_like(x))",
    ],
    "S-engine": ["'torch.compile(x); torch.ops.aten.mm(x)'"],
    "S-flag": ["backends = 4; manual_seed = backends * 2"],
    "S-stream": [
        "p = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4"
    ],
    "S-harness": ["do_bench = allclose = 4"],
    "S-triton": [
        "b = triton.next_power_of_2(x.shape[0]); d = {torch.float16: tl.float16}[torch.float16]",
        "CONFIGS = [triton.Config({'BLOCK': b}, num_warps=w) for b in (64, 128) for w in (2, 4)]\n"
        "@triton.autotune(configs=CONFIGS, key=['n'])\n"
        "@triton.heuristics({'EVEN': lambda a: a['n'] % a['BLOCK'] == 0})\n@triton.jit\n"
        "def tuned(x_ptr, y_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):\n"
        "    at = tl.arange(0, BLOCK)\n    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)\n"
        "def scale(x):\n    y = torch.empty_like(x)\n"
        "    tuned[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)](x, y, x.numel())\n    return y",
    ],
    "S-dynamic": [
        "'open, exec and eval in text are text'; n = getattr(x, 'ndim'); f = hasattr(tl, 'make_tensor_descriptor')"
    ],
    "S-output": ["print = None"],
    "S-result": [
        "from typing import NamedTuple\nclass Out(NamedTuple):\n    y: torch.Tensor\n    n: int\n"
        "def scale(x):\n    return Out(run(x, torch.empty_like(x)), 4)",
    ],
    "S-dunder": ["v = torch.__version__; w = triton.__version__; n = type(x).__name__"],
    "S-introspect": ["frame = 4; n = frame + 1"],
    "S-patch": [
        "class Tile:\n    def __init__(self, rows):\n        self.rows = rows\n        self.area = rows * 2\n"
        "def scale(x):\n    t = Tile(x.shape[0])\n    n = t.area * 2\n    return run(x, torch.empty_like(x))",
        "class Op(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, eps):\n"
        "        ctx.save_for_backward(x)\n        ctx.eps = eps\n        return run(x, torch.empty_like(x))\n"
        "    @staticmethod\n    def backward(ctx, dy):\n        (x,) = ctx.saved_tensors\n"
        "        dx = run(dy, torch.empty_like(x))\n        return dx, None\n"
        "def scale(x):\n    return Op.apply(x, 1e-5)",
    ],
    "S-subclass": [
        "from dataclasses import dataclass\nfrom enum import Enum\n@dataclass(frozen=True)\nclass Config:\n"
        "    rows: int = 4\n    def cells(self):\n        return self.rows * 2\nclass Mode(Enum):\n    A = 1\n"
        "def scale(x):\n    n = Config(3).cells() + Mode.A.value\n    return run(x, torch.empty_like(x))",
    ],
    "S-state": [
        "SIZES = {}\ndef pick(n):\n    return 64 if n > 4 else 32, 4\ndef config(n):\n    if n not in SIZES:\n"
        "        SIZES[n] = pick(n)\n    return SIZES[n]\n"
        "def scale(x):\n    block, warps = config(x.shape[0])\n    b = block * 2\n    return run(x, torch.empty_like(x))",
        "import functools\n@functools.lru_cache(maxsize=None)\ndef block(n):\n    return triton.next_power_of_2(n)\n"
        "def scale(x):\n    b = block(x.shape[0]) * 2\n    return run(x, torch.empty_like(x))",
        "POOL = {}\ndef workspace(x):\n    if x.device not in POOL:\n"
        "        POOL[x.device] = torch.zeros(64, device=x.device)\n    return POOL[x.device]\n"
        "def scale(x):\n    run(x, workspace(x))\n    return run(x, torch.empty_like(x))",
        "parts = []\n    parts.append(torch.empty_like(x))\n    n = 0\n    n += 1\n    d = {}\n    d['a'] = x",
    ],
    "S-try": [
        "try:\n        n = int('4')\n    except ValueError:\n        n = 4",
    ],
    "S-pointer": [
        "ok = x.data_ptr() % 16 == 0 and all(t.data_ptr() % 16 == 0 for t in (x, x))",
        "def aligned(*ts):\n    return not any(t.data_ptr() & 15 for t in ts)\n"
        "def scale(x):\n    ok = aligned(x)\n    return run(x, torch.empty_like(x))",
    ],
    "S-launch": [
        "KERNELS = {torch.float32: copy_kernel}\ndef launch(kernel, x, y):\n"
        "    kernel[(1,)](x, y, x.numel(), BLOCK=4)\n"
        "def scale(x):\n    y = torch.empty_like(x)\n    launch(copy_kernel, x, y)\n"
        "    KERNELS[x.dtype][(1,)](x, y, 4, BLOCK=4)\n    k = copy_kernel if x.shape[0] > 4 else copy_kernel\n"
        "    k[(1, 1)](x, y, 4, 256)\n    return y",
        "f = copy_kernel[(1,)]; f(x, x.clone(), 4, BLOCK=4)",
    ],
    "S-no-kernel": [
        "def scale(x):\n    def inner(y):\n        return run(x, y)\n    return inner(torch.empty_like(x))",
    ],
    "S-hook": [
        "def fill(nargs):\n    nargs['d'].block_shape = [nargs['BLOCK'], 64]\n"
        "@triton.autotune(configs=[triton.Config({'BLOCK': 64}, pre_hook=fill)], key=['n'], reset_to_zero=['y_ptr'])\n"
        "@triton.jit\ndef tuned(d, y_ptr, n, BLOCK: tl.constexpr):\n    tl.store(y_ptr, n)\n"
        "def scale(x):\n    y = torch.empty_like(x)\n    tuned[(1,)](x, y, 4)\n    return y",
    ],
    "S-kernel": [
        "from triton.language.extra import libdevice\nLN2 = tl.constexpr(0.69)\n@triton.jit\ndef part(v):\n"
        "    return libdevice.tanh(v) * LN2 + tl.math.exp2(v)\n@triton.jit\n"
        "def k(x_ptr, y_ptr, n, B: tl.constexpr, F: tl.constexpr = True):\n    at = tl.arange(0, B)\n"
        "    v = tl.load(x_ptr + at, mask=at < n).to(tl.float32)\n    for _ in tl.static_range(2):\n        v = part(v)\n"
        "    if F:\n        v = tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [v], dtype=tl.float32, is_pure=True, pack=1)\n"
        "    tl.static_assert(B > 4)\n    tl.store(y_ptr + at, v.to(y_ptr.dtype.element_ty), mask=at < n)\n"
        "def scale(x):\n    y = torch.empty_like(x)\n    k[(1,)](x, y, 4, B=8)\n    return y",
    ],
    "S-dtype": ["n = torch.float16"],
    "S-unicode": [
        "# für µ ‑ an em dash — \U0001f680 ⚠\ufe0f \U0001f469\u200d\U0001f4bb is a comment\ndef scale(x):\n    'é'\n    return run(x, torch.empty_like(x))"
    ],
}

CHEATS: dict[str, list[str]] = {
    "S-import": [
        "import os", "import numpy as np", "import torch.utils.cpp_extension", "from triton.runtime import driver",
        "from triton.language.core import builtin", "import ctypes", "import math, sys", "from torch import *",
        "from kernel_skills.executor import judge", "from .missing import x", "import typing; typing.get_type_hints(x)",
        "import dataclasses; dataclasses.sys.exit()", "from contextlib import suppress", "import __main__",
        "from functools import reduce", "import collections.abc; collections.sys.modules", "from itertools import accumulate",
    ],
    "S-entry": ["if True:\n    def scale(x): ...", "scale = run\n# def scale"],
    "S-reference": ["return reference(x)", "import torch as t; make_inputs(3)", "class scale(Model):\n    pass"],
    "S-torch": [
        "z = torch.softmax(x, -1)", "t = torch; f = t.mm", "ops = {'mm': torch.mm}", "f = lambda a, g=torch.relu: g(a)",
        "z = getattr(torch, 'matmul')(x, x)", "import torch.nn.functional as F; F.gelu(x)", "torch.Tensor.matmul(x, x)",
        "torch.special.expit(x)", "torch.linalg.norm(x)", "z = [torch.cat, torch.exp][0]", "torch.zeros(4, out=x)", "torch.Tensor(x)",
        "F = torch.exp\ndef scale(x):\n    return run(F(x), torch.empty_like(x))",
        "F = torch.exp\ndef scale(x):\n    return run(list(map(F, [x]))[0], torch.empty_like(x))",
        "torch.arange(4)", "torch.randn_like(x)", "from torch.nn.functional import gelu as g",
        "@torch.relu\ndef f(): ...\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "def scale(x, op=torch.softmax):\n    return run(op(x), torch.empty_like(x))",
        "def helper(f, x):\n    return f(x)\ndef scale(x):\n    return run(helper(torch.exp, x), torch.empty_like(x))",
        "class Net(torch.nn.Module):\n    def __init__(self, x):\n        super().__init__()\n        self.y = torch.exp(x)\n"
        "def scale(x):\n    return run(Net(x).y, torch.empty_like(x))",
        "class scale(torch.nn.Module):\n    def forward(self, x):\n        return self.step(x)\n    def step(self, x):\n"
        "        return run(torch.exp(x), torch.empty_like(x))",
        "class Op(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return run(x, x.clone())\n"
        "    @staticmethod\n    def backward(ctx, dy):\n        return torch.exp(dy)\n"
        "def scale(x):\n    return Op.apply(x)",
    ],
    "S-method": [
        "x.softmax(-1)", "x.sum()", "torch.empty_like(x).addmm_(x, x)", "f = x.mm", "getattr(x, 'exp')()", "x.item()",
        "x.tolist()", "x.cpu()", "x.half()", "x.to(torch.float16)", "x.zero_()", "x.view(-1).T.cumsum(0)", "x.copy_(x)",
        "for row in x: row.sum()", "[t.exp() for t in (x, x)]", "x.register_foo", "x.apply_(abs)",
        "match x:\n        case torch.Tensor(mm=f): f(x)", "y = x.shape, x; y[1].exp()", "d = dict(a=x); d['a'].exp()",
        "def scale(x: int):\n    return run(x.exp(), torch.empty_like(x))",
        "class Box:\n    def __init__(self, t):\n        self.t = t\ndef scale(x):\n    b = Box(x)\n    b.t.exp()\n"
        "    return run(x, torch.empty_like(x))",
        "class Box:\n    def exp(self):\n        return 1\ndef scale(x):\n    y = run(x, torch.empty_like(x))\n"
        "    return y.exp()",
    ],
    "S-operator": [
        "z = x @ x", "z = x * 2", "x += 1", "z = -x", "z = x > 0", "z = x[x]", "x[0] = 1", "z = sum(x)", "z = abs(x)",
        "z = float(x[0])", "acc = 0\n    for c in x.transpose(0, 1): acc += c", "z = (lambda a: a * 2)(x)",
        "z = [a + 1 for a in (x,)]", "z = max(x, x)", "z = pow(x, 2)", "z = run(x, x.clone()) / 2", "z = list(map(abs, x))",
        "def twice(v):\n    return v * 2\ndef scale(x):\n    return run(twice(x), torch.empty_like(x))",
        "def scale(x):\n    y = torch.empty_like(x)\n    def inner():\n        return run(x, y) + 1\n    return inner()",
        "z = torch.tensor([x[0], x[1]])", "z = {'a': x}['a'] * 2", "(z := x) * 2", "z = x.T - x.T",
        "z = x.data_ptr() % 16 + x[0]", "z = 1 if x[0, 0] == 3 else 2", "a, b = x, x.shape; c = a / b[0]",
        "def scale(x, *rest):\n    z = rest[0] * 2\n    return run(x, torch.empty_like(rest[0]))",
        "def scale(x):\n    return run(x * 2, torch.empty(4))", "def scale(a, b):\n    run(b, b)\n    return a + b",
        "def scale(a):\n    z = a + 1\n    n = z.numel()\n    return run(a, torch.empty(n))",
        "def scale(a):\n    copy_kernel[(1,)](a > 0, a, 4, BLOCK=4)\n    return a",
    ],
    "S-module": [
        "z = torch.nn.Linear(4, 4)(x)", "lin = torch.nn.Linear(4, 4); z = lin.forward(x)",
        "class scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4)])\n    def forward(self, x):\n"
        "        for layer in self.layers:\n            x = layer(x)\n        return run(x, torch.empty_like(x))",
        "class scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net = torch.nn.Sequential(torch.nn.Linear(4, 4))\n    def forward(self, x):\n"
        "        f = self.net\n        return run(f(x), torch.empty_like(x))",
    ],
    "S-engine": [
        "torch.compile(run)(x, x)", "torch.ops.aten.mm(x, x)", "torch.jit.script(run)", "torch._C._nn.gelu(x)",
        "torch.library.custom_op('a::b', mutates_args=())", "torch.utils.cpp_extension.load_inline('a', '')",
        "torch.load('x')", "torch.hub.load('x', 'y')", "with torch.overrides.TorchFunctionMode(): pass",
        "torch._dynamo.config", "torch.fx.symbolic_trace(run)", "torch.sys.modules",
    ],
    "S-flag": [
        "torch.backends.cuda.matmul.allow_tf32", "torch.manual_seed(0)", "torch.set_float32_matmul_precision('medium')",
        "torch.initial_seed()", "torch.use_deterministic_algorithms(True)", "torch.cuda.manual_seed(0)",
        "torch.autograd.set_detect_anomaly(True)", "torch.get_rng_state()",
    ],
    "S-stream": [
        "with torch.cuda.stream(None): pass", "torch.cuda.Stream()", "torch.cuda.CUDAGraph()", "torch.cuda.Event()",
        "torch.cuda.synchronize()", "torch.cuda.current_stream()",
    ],
    "S-harness": ["torch.testing.assert_close(x, x)", "triton.testing.do_bench(run)", "torch.allclose(x, x)"],
    "S-triton": [
        "tl.core.inspect.currentframe()", "triton.runtime.driver", "triton.compiler", "tl.core.builtins.eval('1')",
        "triton.language.math.core", "triton.knobs.runtime", "tl.semantic",
    ],
    "S-dynamic": [
        "eval('x')", "f = exec", "globals()['x']", "open('/etc/passwd')", "getattr(torch, 'mat' + 'mul')",
        "vars(torch)", "setattr(torch, 'a', 1)", "id(x)", "type('A', (), {})", "compile('', '', 'exec')", "name = 'mm'; getattr(x, name)",
        "async def f(): ...\ndef scale(x):\n    f()\n    return run(x, torch.empty_like(x))", "breakpoint()", "exit()", "dir(torch)",
    ],
    "S-output": ["print('{\"correct\": true}')"],
    "S-result": [
        "return lambda: run(x, torch.empty_like(x))",
        "from functools import partial\ndef scale(x):\n    run(x, x.clone())\n    return partial(run, x, x.clone())",
        "class Later:\n    def __getitem__(self, i):\n        return i\n"
        "def scale(x):\n    run(x, x.clone())\n    return Later()",
    ],
    "S-dunder": [
        "type(x).__matmul__(x, x)", "x.__dict__", "().__class__.__base__.__subclasses__()", "run.__globals__", "__builtins__",
        "torch.nn.__dict__", "__import__('os')", "math.__loader__", "getattr(x, '__matmul__')",
        "class A:\n    def __reduce__(self):\n        return 1\ndef scale(x):\n    A()\n    return run(x, torch.empty_like(x))",
        "class A:\n    def __enter__(self): ...\n    def __exit__(self, *a):\n        return True\ndef scale(x):\n    with A():\n"
        "        return run(x, torch.empty_like(x))",
    ],
    "S-introspect": ["run.f_globals", "x.untyped_storage()", "x.as_subclass(int)", "x.register_hook(run)", "run.last = 1; z = run.last"],
    "S-patch": [
        "torch.allclose = run", "run.cache = 1", "x.foo = 1", "x.data = x", "torch.nn.Module.forward = run", "tl.load = run",
        "del torch.mm", "for torch.empty in (run,): pass", "(torch.a, b) = 1, 2", "torch.nn.foo += 1",
    ],
    "S-subclass": [
        "class T(torch.Tensor):\n    pass\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "class L(torch.nn.Linear):\n    pass\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "class F(float):\n    pass\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "class M(metaclass=type):\n    pass\ndef scale(x):\n    return run(x, torch.empty_like(x))",
    ],
    "S-state": [
        "C = {}\ndef scale(x):\n    k = x.shape\n    if k not in C:\n        C[k] = run(x, torch.empty_like(x))\n    return C[k]",
        "N = [0]\ndef scale(x):\n    N[0] += 1\n    return run(x, torch.empty_like(x))",
        "LAST = None\ndef scale(x):\n    global LAST\n    LAST = run(x, torch.empty_like(x))\n    return LAST",
        "def scale(x, c={}):\n    if 'y' in c:\n        return c['y']\n    c['y'] = run(x, torch.empty_like(x))\n    return c['y']",
        "SEEN = []\ndef scale(x):\n    SEEN.append(x)\n    return run(x, torch.empty_like(x))",
        "SEEN = {}\ndef scale(x):\n    y = torch.empty_like(x)\n    if x.shape in SEEN:\n        return y\n    SEEN[x.shape] = 1\n"
        "    return run(x, y)",
        "import functools\n@functools.cache\ndef f(x):\n    return run(x, torch.empty_like(x))\ndef scale(x):\n    return f(x)",
        "class scale(torch.nn.Module):\n    def forward(self, x):\n        self.y = run(x, torch.empty_like(x))\n        return self.y",
        "class scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.n = 0\n"
        "    def forward(self, x):\n        self.n += 1\n        return run(x, torch.empty_like(x))",
        "P = {}\ndef scale(x):\n    y = torch.empty_like(x)\n    old = P.get('in')\n    if old is None:\n        run(x, y)\n"
        "        P['in'] = 1\n    return y",
        "OUT = torch.empty(4)\ndef scale(x):\n    run(x, OUT)\n    return OUT.view(x.shape)",
        "def g():\n    yield 1\n    yield 2\nG = g()\ndef scale(x):\n    next(G)\n    return run(x, torch.empty_like(x))",
        "IT = iter([1, 2, 3])\ndef scale(x):\n    next(IT)\n    return run(x, torch.empty_like(x))",
        "def make():\n    c = {}\n    def f(x):\n        if 1 not in c:\n            c[1] = run(x, torch.empty_like(x))\n        return c[1]\n"
        "    return f\nF = make()\ndef scale(x):\n    return F(x)",
        "C = {}\ndef scale(x):\n    y = C.get(x.shape)\n    if y is None:\n        y = C[x.shape] = run(x, torch.empty_like(x))\n"
        "    return y.view(x.shape)",
        "class Box:\n    kept = {}\ndef scale(x):\n    Box.kept['y'] = run(x, torch.empty_like(x))\n    return Box.kept['y']",
    ],
    "S-try": [
        "try:\n        run(x, x.clone())\n    except Exception:\n        pass",
        "def safe(x):\n    try:\n        return run(x, torch.empty_like(x))\n    except RuntimeError:\n        return x\n"
        "def scale(x):\n    return safe(x)",
    ],
    "S-pointer": [
        "k = {x.data_ptr(): 1}", "p = x.data_ptr(); q = p + 4", "s = x.data_ptr() == 4", "copy_kernel[(1,)](x.data_ptr(), x, 4, BLOCK=4)",
        "d = {}\n    d[x.data_ptr()] = 1", "k = (x.shape, x.data_ptr()) in {}",
    ],
    "S-launch": [
        "run[(1,)](x, x)", "copy_kernel(x, x, 4, BLOCK=4)", "copy_kernel.fn(x)", "copy_kernel.run(x)",
        "copy_kernel[(1,)](run, x, 4, BLOCK=4)", "{}['k'][(1,)](x)",
    ],
    "S-no-kernel": [
        "def scale(x):\n    return x", "def scale(x):\n    return torch.empty_like(x)", "def scale(x):\n    return x.T",
        "def scale(x):\n    return x.new_zeros(1).expand(1 << 40)",
    ],
    "S-hook": [
        "H = triton.Config({}, pre_hook=torch.nn.Module)\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "def h(a):\n    run(a['x'], a['y'])\nH = triton.Config({}, pre_hook=h)\ndef scale(x):\n    return run(x, torch.empty_like(x))",
        "k = triton.autotune(configs=[], key=[], do_bench=run)(copy_kernel)\ndef scale(x):\n    return run(x, torch.empty_like(x))",
    ],
    "S-kernel": [
        f"@triton.jit\ndef k(x_ptr, y_ptr):\n    {body}\n    tl.store(y_ptr, tl.load(x_ptr))\n"
        "def scale(x):\n    k[(1,)](x, x)\n    return x"
        for body in (
            "tl.core.inspect", "import os", "run(x_ptr, y_ptr)", "torch.exp(x_ptr)", "open('a')", "x_ptr.__class__",
            "v = tl.load(x_ptr).handle.data", "eval('1')", "getattr(tl, 'core')", "tl.load._fn", "math.exp(1.0)",
            "global Z", "(lambda: 1)().f_back", "tl.extra.cuda.globaltimer()", "tl.device_print('x', x_ptr)",
            "tl.inline_asm_elementwise('mov.u64 $0, %globaltimer;', '=l', [], dtype=tl.int64, is_pure=False, pack=1)",
            "tl.inline_asm_elementwise(f'{x_ptr}', '=l', [], dtype=tl.int64, is_pure=False, pack=1)",
        )
    ],
    "S-dtype": [
        f"@triton.jit\ndef k(x_ptr, y_ptr):\n    v = tl.load(x_ptr)\n    {body}\n    tl.store(y_ptr, v)\n"
        "def scale(x):\n    k[(1,)](x, x)\n    return x"
        for body in ("v = v.to(tl.bfloat16)", "v = tl.dot(v, v)", "v = tl.dot(v, v, input_precision='tf32')",
                     "d = tl.dot; v = d(v, v)", "v = tl.dot(v, v, None, 'tf32')", "v = tl.dot(v, v, allow_tf32=True)")
    ],
    "S-unicode": [
        "torch.ｍul(x, 2.0)", "ѕ = 4", "s = 4  # \u202e", "s = '\u2066'", "\u3164 = 4", "s = 4  # \U000e0061\U000e0062",
        "s = '\u200b'", "s = 4  # \x08\x08\x08", "s = '\x1b[2K'", "s = 4  # \u2063",
    ],
}  # fmt: skip
