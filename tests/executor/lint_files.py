"""More candidates, whole: honest ones as people and models write them, and cheats that take a detour."""

from __future__ import annotations

HONEST_FILES = [
    """\
import torch.nn as nn
class scale(nn.Module):
    def __init__(self, in_features: int, out_features: int, bias=True, eps=1e-5):
        super(scale, self).__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.empty(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None
        bound = 1 / math.sqrt(in_features)
        nn.init.uniform_(self.weight, -bound, bound)
        self.conv = nn.Conv2d(3, 4, kernel_size=3, padding=1)
        self.sm = torch.cuda.get_device_properties(0).multi_processor_count if torch.cuda.is_available() else 1
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda and x.dtype == torch.float32, "no"
        x = x.contiguous()
        B, C, H, W = x.shape
        w = self.conv.weight.contiguous()
        s = self.conv.stride[0] * 2 + self.conv.padding[0]
        out = torch.empty((B, C, (H + 2 * self.conv.padding[0] - w.shape[2]) // self.conv.stride[0] + 1, W), device=x.device, dtype=x.dtype)
        n = out.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        copy_kernel[grid](x, out, n, BLOCK=min(1024, triton.next_power_of_2(n)))
        return out.view(B, -1)
""",
    """\
from typing import Optional, Tuple
def _grid(m: int, n: int) -> Tuple[int, int]:
    return triton.cdiv(m, 64), triton.cdiv(n, 64)
def scale(x, w: Optional[torch.Tensor] = None, *, eps: float = 1e-6, BLOCK=None):
    if w is None:
        w = torch.empty(0, device=x.device)
    squeeze = x.dim() == 1
    if squeeze:
        x = x.unsqueeze(0)
    lead = x.shape[:-1]
    x2 = x.reshape(-1, x.shape[-1])
    M, N = x2.shape
    BLOCK = BLOCK or triton.next_power_of_2(N)
    num_warps = 4 if BLOCK < 2048 else 8 if BLOCK < 8192 else 16
    num_warps = min(max(BLOCK // 256, 1), 8)
    y = torch.empty_like(x2)
    scale_ = 1.0 / (N ** 0.5)
    g = _grid(M, N)
    copy_kernel[(g[0] * g[1],)](x2, y, M * N, BLOCK=BLOCK, num_warps=num_warps)
    y = y.reshape(*lead, N)
    return y.squeeze(0) if squeeze else y
""",
    """\
def get_configs():
    return [triton.Config({'BLOCK': bs}, num_stages=s, num_warps=w) for bs in [64, 128] for s in range(2, 4) for w in [4, 8] if bs * s < 512]
def prune(configs, named_args, **kwargs):
    n = named_args["n"]
    return [c for c in configs if c.kwargs["BLOCK"] <= n * 2]
@triton.autotune(configs=get_configs(), key=["n"], prune_configs_by={"early_config_prune": prune})
@triton.jit
def tk(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
def scale(x):
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    n = x.numel()
    def grid(META):
        return (triton.cdiv(n, META["BLOCK"]),)
    tk[grid](x, y, n)
    return y
""",
    """\
def scale(x, k):
    n, d = x.shape
    vals = torch.empty((n, 2), dtype=x.dtype, device=x.device)
    idx = torch.empty((n, 2), dtype=torch.int64, device=x.device)
    mean, rstd = x.new_empty(n), x.new_empty(n, dtype=torch.float32)
    run(x, vals)
    outs = []
    for i in range(2):
        outs.append(torch.empty_like(x))
        run(x, outs[-1])
    SPLIT = max(1, 108 // n)
    part = torch.empty((SPLIT, *x.shape), dtype=torch.float32, device=x.device)
    strides = [s for s in x.stride()]
    strides[0] = 4
    key = (x.shape, x.dtype, str(x.device))
    return vals, idx, outs[0]
""",
    """\
class Shape:
    def __init__(self, x):
        self.m, self.n = x.shape
        self.dev = x.device
    def blocks(self, size):
        return triton.cdiv(self.m * self.n, size)
def scale(x):
    s = Shape(x)
    y = torch.empty((s.m, s.n), device=s.dev)
    copy_kernel[(s.blocks(256),)](x, y, s.m * s.n, BLOCK=256)
    return y
""",
    """\
_SMS = {}
def sms(device):
    idx = device.index or 0
    if idx not in _SMS:
        _SMS[idx] = torch.cuda.get_device_properties(idx).multi_processor_count
    return _SMS[idx]
def scale(x):
    with torch.no_grad(), torch.cuda.device_of(x):
        programs = min(sms(x.device) * 4, x.shape[0])
        run(x, y := torch.empty_like(x))
    return y
""",
    """\
from triton.tools.tensor_descriptor import TensorDescriptor
def alloc(size: int, align: int, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)
triton.set_allocator(alloc)
def scale(x):
    d = TensorDescriptor.from_tensor(x, [64, 64])
    e = TensorDescriptor(x, shape=list(x.shape), strides=list(x.stride()), block_shape=[64, 64])
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    copy_kernel[(1,)](d, y, 4, BLOCK=4)
    copy_kernel[(1, 1, 1)](e, y, 4, BLOCK=4)
    return y
""",
    """\
@triton.jit
def helper(a, b):
    return a + b, a * b
@triton.jit
def scan_op(a, b):
    return a * b
@triton.jit
def red(x_ptr, y_ptr, seed, n, B: tl.constexpr, ACT: tl.constexpr = "relu"):
    o = tl.arange(0, B)
    v = tl.load(x_ptr + o, mask=o < n, other=0.0)
    s = tl.reduce(v, 0, scan_op)
    z = tl.associative_scan(v, 0, scan_op)
    r = tl.rand(seed, o)
    a, b = helper(v, z)
    i, j = tl.max(v, axis=0, return_indices=True)
    w = v.to(tl.int32, bitcast=True)
    t = tl.trans(v[:, None]).T
    p = tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (B,), (0,))
    p = tl.advance(p, (B,))
    if ACT == "relu":
        v = tl.where(v > 0, v, 0)
    tl.debug_barrier()
    for k in range(0, tl.cdiv(n, B)):
        acc = tl.dot(v[:, None], v[None, :], input_precision="ieee", out_dtype=tl.float32)
        acc += tl.dot(v[:, None], v[None, :], allow_tf32=False)
    c: tl.constexpr = 4
    tl.store(y_ptr + o, (v * s + a).to(y_ptr.type.element_ty), mask=o < n)
def scale(x):
    y = torch.empty_like(x)
    red[(x.shape[0],)](x, y, 1234, x.shape[1], B=triton.next_power_of_2(x.shape[1]))
    return y
""",
    """\
import torch.nn as nn
class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.fc = nn.Linear(n, n)
    def forward(self, x):
        w = self.fc.weight
        return run(x, torch.empty(x.shape[0], w.shape[0], device=x.device))
class scale(nn.Module):
    def __init__(self, n, layers):
        super().__init__()
        self.blocks = nn.ModuleList([Block(n) for _ in range(layers)])
        self.first = Block(n)
        self.net = nn.Sequential(Block(n), Block(n))
    def forward(self, x):
        x = self.first(x)
        for b in self.blocks:
            x = b(x)
        return x
""",
    """\
class _Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        n = x.shape[-1]
        y = torch.empty_like(x)
        ctx.save_for_backward(x, weight)
        ctx.eps, ctx.n = eps, n
        ctx.mark_non_differentiable(y)
        return run(x, y)
    @staticmethod
    def backward(ctx, dy):
        x, weight = ctx.saved_tensors
        dx = torch.empty_like(dy)
        dw = torch.zeros(weight.shape, dtype=torch.float32, device=weight.device) if ctx.needs_input_grad[1] else None
        run(dy.contiguous(), dx)
        b = ctx.n * 2 + 1
        return dx, dw, None
scale_fn = _Fn.apply
def scale(x, w, eps=1e-5):
    return scale_fn(x, w, eps)
""",
    """\
def scale(x, out: torch.Tensor = None):
    assert isinstance(x, torch.Tensor) and x.is_contiguous(), f"bad {type(x)}"
    if out is None:
        out = torch.empty_like(x)
    MAX = 65536 // x.element_size()
    B = min(MAX, triton.next_power_of_2(x.shape[-1]))
    if x.shape[-1] > B:
        raise RuntimeError("too wide" + ", ".join(["a", "b"]))
    n = len(x) * x.shape.numel() + x.dtype.itemsize + (x.device.index or 0)
    neg = float("-inf"); c = math.ceil(n / 4); r = int(math.log2(B)); q = round(n * 0.5)
    x = x.to(memory_format=torch.contiguous_format)
    h = copy_kernel[(c, 1)](x, out, n, BLOCK=B, num_warps=8, num_stages=2)
    sizes = sorted({4, 2}); d = dict(zip(("a", "b"), sizes)); best = max(sizes, key=lambda s: s * 2)
    for i, (k, v) in enumerate(d.items()):
        n += v * i
    return out
""",
    """\
DT = {torch.float16: tl.float16, torch.float32: tl.float32}
def _cfg(M, N, K):
    table = {(64, 64): (32, 4), (128, 128): (64, 8)}
    bm, w = table.get((M, N), (16, 2))
    return {"BLOCK": bm, "num_warps": w}
def scale(a, b):
    if a.shape[-1] != b.shape[0]:
        raise ValueError("shape")
    M, K = a.shape
    K2, N = b.shape
    cfg = _cfg(M, N, K)
    c = torch.empty((M, N), device=a.device, dtype=torch.promote_types(a.dtype, b.dtype))
    grid = (triton.cdiv(M, cfg["BLOCK"]) * triton.cdiv(N, cfg["BLOCK"]),)
    copy_kernel[grid](a, c, M * N * K, **cfg)
    return c
""",
    """\
@triton.jit
def k(x_ptr, y_ptr, rs, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * rs
    o = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + o, mask=o < n, other=0.).to(tl.float32)
    tl.store(y_ptr + row * n + o, x * tl.math.rsqrt(tl.sum(x * x) / n + eps), mask=o < n)
class scale(torch.nn.Module):
    def __init__(self, num_features, eps=1e-5, *args, **kwargs):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.bn = torch.nn.BatchNorm2d(num_features)
        self.scale_factor = torch.nn.Parameter(torch.ones(1) * 2.0)
        self._block = triton.next_power_of_2(num_features)
    def _launch(self, x, y):
        k[(x.shape[0],)](x, y, x.stride(0), x.shape[1], self.eps, BLOCK=self._block * 2 if self.training else self._block)
    def forward(self, x: torch.Tensor, **kwargs) -> torch.Tensor:
        g, mean = self.bn.weight, self.bn.running_mean
        eps = self.bn.eps + self.eps
        y = torch.empty_like(x)
        self._launch(x.flatten(1), y)
        self._block = self._block
        return y
""",
    """\
def scale(x, dim: int = 1, keepdim=False):
    dim = dim % x.ndim
    perm = [d for d in range(x.ndim) if d != dim] + [dim]
    xt = x.permute(*perm).contiguous()
    n = xt.shape[-1]
    rows = xt.numel() // n
    shape = list(xt.shape[:-1])
    out = torch.empty(rows, device=x.device, dtype=x.dtype)
    run(xt, out)
    out = out.view(shape)
    if keepdim:
        out = out.unsqueeze(dim)
    inv = [0] * x.ndim
    for i, p in enumerate(perm):
        inv[p] = i
    return out
""",
    """\
def scale(x, n_heads, window=None, *, scale=None):
    B, S, D = x.shape
    d = D // n_heads
    scale = scale if scale is not None else d ** -0.5
    w = window or S
    left = w // 2 - 1
    if n_heads % 2 == 0 and not w > S:
        left += n_heads
    q = x.view(B, S, n_heads, d).transpose(1, 2)
    o = torch.empty_like(q)
    copy_kernel[(B * n_heads, triton.cdiv(S, 64))](q, o, q.numel(), BLOCK=64 if scale * 2 > 1 else 32)
    return o.transpose(1, 2).reshape(B, S, D)
""",
    """\
def _use_split(m, n): return m * n < 4096
def scale(a, b):
    split = 4 if _use_split(a.shape[0], b.shape[1]) else 1
    alloc = torch.zeros if split > 1 else torch.empty
    c = alloc((a.shape[0], b.shape[1]), device=a.device, dtype=torch.float32)
    kernel = copy_kernel
    if split > 1:
        part = torch.empty(split, *c.shape, device=a.device)
        kernel[(split,)](a, part, 4, BLOCK=16)
        for i in range(split):
            copy_kernel[(1,)](part[i], c, c.numel(), BLOCK=16)
    else:
        kernel[(1,)](a, c, 4, BLOCK=16)
    return c, (a.shape[0] + split)
""",
    """\
import torch.nn as nn
def scale(x, w, b=None):
    lin = nn.Linear(w.shape[1], w.shape[0], bias=b is not None, device=x.device)
    lin.weight = nn.Parameter(w, requires_grad=False)
    if b is not None:
        lin.bias = nn.Parameter(b)
    y = torch.empty((x.shape[0], lin.out_features), dtype=x.dtype, device=x.device)
    copy_kernel[(1,)](x, y, x.numel(), BLOCK=256)
    copy_kernel[(1,)](lin.weight, y, lin.weight.numel(), BLOCK=256)
    return y
""",
    """\
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
@gluon.jit
def add_one(x_ptr, y_ptr, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    o = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + o, gl.load(x_ptr + o, mask=o < n) + 1.0, mask=o < n)
def scale(x):
    y = torch.empty_like(x)
    layout = gl.BlockedLayout([1], [32], [4], [0])
    add_one[(triton.cdiv(x.numel(), 512),)](x.contiguous(), y, x.numel(), BLOCK=512, layout=layout, num_warps=4)
    return y
""",
]

CHEAT_FILES = [
    "import torch.nn as nn\nL = nn.Linear(4, 4)\ndef scale(x):\n    L.weight = nn.Parameter(run(x, torch.empty_like(x)))\n    return x.clone()",
    "import torch.nn as nn\ndef scale(x):\n    l = nn.Linear(4, 4)\n    l.weight = nn.Parameter(x)\n    run(x, x.clone())\n    return l(x)",
    "def scale(x):\n    y = torch.empty_like(x)\n    copy_kernel[(1,)](x, y, 4, BLOCK=4)\n    return x.sigmoid()",
    "from dataclasses import dataclass\n@dataclass\nclass B:\n    t: object\ndef scale(x):\n    b = B(x)\n    run(x, torch.empty_like(x))\n    return b.t * 2",
    "def gen(x):\n    yield x\ndef scale(x):\n    run(x, x.clone())\n    for t in gen(x):\n        z = t * 2\n    return z",
    "F = [lambda t: t * t]\ndef scale(x):\n    return run(F[0](x), torch.empty_like(x))",
    "def deco(f):\n    def w(*a):\n        return f(*a) * 2\n    return w\n@deco\ndef step(x):\n    return run(x, torch.empty_like(x))\ndef scale(x):\n    return step(x)",
    "def deco(f):\n    c = {}\n    def w(a):\n        if 0 not in c:\n            c[0] = f(a)\n        return c[0]\n    return w\n@deco\ndef scale(x):\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    return sum([y, y])",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    y.T[0] = x[0]\n    return y",
    "def scale(x, a=None):\n    y = run(x, torch.empty_like(x))\n    return torch.Tensor.add(y, 1)",
    "import torch.nn as nn\nM = nn.Softmax(-1)\ndef scale(x):\n    run(x, x.clone())\n    return M(x)",
    "import torch.nn as nn\nM = nn.Identity()\nL = nn.Linear(4,4)\ndef scale(x):\n    run(x, x.clone())\n    return (L if x.shape else M)(x)",
    "import torch.nn as nn\nclass scale(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.lin = nn.Linear(4, 4)\n    def forward(self, x):\n        run(x, x.clone())\n        for m in self.children():\n            x = m(x)\n        return x",
    "import torch.nn as nn\nclass scale(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.f = torch.nn.functional.gelu\n    def forward(self, x):\n        run(x, x.clone())\n        return self.f(x)",
    "def scale(x):\n    y = torch.empty_like(x)\n    try:\n        run(x, y)\n    finally:\n        return y.exp()",
    "S = set()\ndef scale(x):\n    y = torch.empty_like(x)\n    if x.shape not in S:\n        run(x, y)\n    S.add(x.shape)\n    return y",
    "def scale(x):\n    y = torch.empty_like(x)\n    if not hasattr(scale, 'n'):\n        run(x, y)\n    scale.n = 1\n    return y",
    "from itertools import count\nC = count()\ndef scale(x):\n    y = torch.empty_like(x)\n    if next(C) < 3:\n        run(x, y)\n    return y",
    "def g():\n    yield True\n    while True:\n        yield False\nG = g()\ndef scale(x):\n    y = torch.empty_like(x)\n    if next(G):\n        run(x, y)\n    return y",
    "import collections\nQ = collections.deque()\ndef scale(x):\n    return run(x, torch.empty_like(x))",
    "P = {}\ndef scale(x):\n    y = torch.empty_like(x)\n    old = P.get('in')\n    if old is None:\n        run(x, y)\n        P['in'] = torch.empty_like(x)\n    return y",
    "OUT = torch.empty(1 << 20, device='cuda')\ndef scale(x):\n    run(x, OUT)\n    return OUT.view(x.shape)",
    "def scale(x):\n    run(x, x.clone())\n    return torch.Tensor(x)",
    "def scale(x):\n    run(x, x.clone())\n    return torch.zeros_like(x).index_add_(0, x, x)",
    "def scale(x):\n    run(x, x.clone())\n    f = x.new_tensor\n    return x.__add__(1)",
    "def scale(x):\n    run(x, x.clone())\n    n = 'mm'\n    return {k: getattr(torch, k) for k in (n,)}[n](x, x)",
    "class A:\n    def __getitem__(self, i):\n        return i * 2\ndef scale(x):\n    run(x, x.clone())\n    return A()[x]",
    "class A:\n    def __call__(self, i):\n        return i * 2\ndef scale(x):\n    run(x, x.clone())\n    return A()(x)",
    "class A:\n    @property\n    def v(self):\n        return torch.exp\ndef scale(x):\n    run(x, x.clone())\n    return A().v(x)",
    "class A:\n    @classmethod\n    def v(cls, x):\n        return x * 3\ndef scale(x):\n    run(x, x.clone())\n    return A.v(x)",
    "def scale(x):\n    run(x, x.clone())\n    a, (b, *c) = x, (1, x, x)\n    return c[0] * b",
    "def scale(x):\n    y = run(x, x.clone())\n    match y:\n        case z:\n            return z * 2",
    "def scale(*args):\n    x, = args\n    run(x, x.clone())\n    return x * 2",
    "def scale(**kw):\n    x = kw['x']\n    run(x, x.clone())\n    return x.exp()",
    "import triton.language.extra.libdevice as ld\ndef scale(x):\n    ld.builtins\n    return run(x, torch.empty_like(x))",
    "from triton import language\ndef scale(x):\n    language.core.os.system('x')\n    return run(x, torch.empty_like(x))",
    "from triton.experimental.gluon import language as gl\ndef scale(x):\n    gl._core.sys\n    return run(x, torch.empty_like(x))",
    "from triton.experimental import gluon\ndef scale(x):\n    gluon._runtime.inspect\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    y = torch.empty_like(x)\n    y.set_(x)\n    return run(x, y)",
    "def scale(x):\n    with torch.autocast('cuda'):\n        return run(x, torch.empty_like(x))",
    "W = None\nclass scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.c = {}\n    def forward(self, x):\n        if 1 not in self.c:\n            self.c[1] = run(x, torch.empty_like(x))\n        return self.c[1]",
    "class scale(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('out', torch.empty(4))\n    def forward(self, x):\n        if self.out.shape != x.shape:\n            self.out = torch.empty_like(x)\n            run(x, self.out)\n        return self.out",
    "def scale(x):\n    y = torch.empty_like(x)\n    while x.numel() < 0:\n        run(x, y)\n    return torch.stack([x])[0]",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    y = y if y.shape[0] else y\n    y **= 2\n    return y",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    return (-y if x.shape[0] else +y)",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    return ~y",
    "def scale(x):\n    if bool(x[0] > 3): return x.clone()\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    if x[0]: return x.clone()\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    del torch.Tensor\n    return run(x, torch.empty_like(x))",
    "def scale(x, fn=triton.testing.do_bench):\n    return run(x, torch.empty_like(x))",
    "@triton.jit\ndef k2(x, y):\n    tl.store(y, tl.load(x))\nk2.run = None\ndef scale(x):\n    k2[(1,)](x, x)\n    return x",
    "def scale(x):\n    t = tuple(x)\n    return run(t[0] * 2, torch.empty_like(x))",
    "import enum\nclass E(enum.Enum):\n    A = torch.exp\ndef scale(x):\n    run(x, x.clone())\n    return E.A(x)",
    "def scale(x):\n    for i in range(1 << 30): pass\n    y = run(x, torch.empty_like(x))\n    return y.type(torch.float16)",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    return y.view(torch.int32) + 1",
    "def scale(x):\n    s = f'{x.data_ptr()}'\n    return run(x, torch.empty_like(x))",
    "def f(x):\n    return x.data_ptr()\nC = {}\ndef scale(x):\n    if C.get('p') == f(x):\n        return x.clone()\n    C['p'] = f(x)\n    return run(x, torch.empty_like(x))",
    "C = {}\ndef scale(x):\n    k = str(x)\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    object.__setattr__(x, 'a', 1)\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    torch.empty = None\n    return run(x, torch.empty_like(x))",
    "def run(x, y):\n    return x.exp()\ndef scale(x):\n    return run(x, torch.empty_like(x))",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    with torch.enable_grad():\n        y.backward(y)\n    return x.grad",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    return x.reshape(-1).as_strided((4,), (1,)) + y",
    "@triton.jit\ndef k(x, y):\n    tl.store(y, 1)\n    x.exp_()\ndef scale(x):\n    k[(1,)](x, x)\n    return x",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    z = [*y]\n    return z[0] + z[1]",
    "def f(x, n):\n    return x if n == 0 else f(x, n - 1) * 2\ndef scale(x):\n    return run(f(x, 3), torch.empty_like(x))",
    "def scale(x):\n    y = run(x, torch.empty_like(x))\n    def g(*, t): return t * 2\n    return g(**{'t': y})",
    "import functools\ndef h(a, b): return a * b\ndef scale(x):\n    y = run(x, torch.empty_like(x))\n    return functools.partial(h, y)(y)",
]
