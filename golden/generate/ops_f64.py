"""Makes golden/ops_f64.safetensors: f32 operands of every op and its result, correctly rounded to float64.

    pip install -r golden/generate/requirements.txt
    python golden/generate/ops_f64.py golden/ops_f64.safetensors

Sums of products of f32 are exact in float64 products and `math.fsum`; everything else runs in mpmath with 250 bits,
so that each result is the real number rounded once to float64, on every machine (no libm decides a bit). Angles of
RoPE at position 131,072 are exact to 60 digits. Operands come from integers of numpy's PCG64, times powers of two.

Names are `kind.number.field`. `y` is the result and `size` its condition: the magnitude to which rounding errors of
an evaluation in float64 are relative (`limits.toml` says how many). `params` are integers, in the order of the
op's arguments below. A case with `exact` has one right f32 answer, whatever the order and precision of the sums.
"""
import math
import sys
import zlib

import libgguf
import ml_dtypes
import mpmath
import numpy as np
from mpmath import mpf
from safetensors.numpy import save_file

f32, f64 = np.float32, np.float64
mpmath.mp.prec = 250
tensors, counts = {}, {}


def put(kind, y, size, exact=False, **fields):
    name = f"{kind}.{counts.setdefault(kind, 0)}"
    counts[kind] += 1
    for field, value in fields.items():
        tensors[f"{name}.{field}"] = np.ascontiguousarray(value)
    tensors[f"{name}.y"], tensors[f"{name}.size"] = np.ascontiguousarray(y, f64), np.ascontiguousarray(size, f64)
    if exact:
        tensors[f"{name}.exact"] = np.ones(1, np.uint8)


def ints(*values):
    return np.array(values, np.int64)


class Data:
    """Random operands, a stream of its own for each case name."""

    def __init__(self, name):
        self.rng = np.random.default_rng([20261130, zlib.crc32(name.encode())])

    def reals(self, *shape, low=-3, high=3):
        """Full 24-bit significands of both signs over the binades low..high."""
        significand = self.rng.integers(1 << 23, 1 << 24, shape).astype(f64) * self.rng.choice([-1.0, 1.0], shape)
        return np.ldexp(significand, self.rng.integers(low, high + 1, shape) - 24).astype(f32)

    def integers(self, most, *shape):
        return self.rng.integers(-most, most + 1, shape).astype(f32)


def total(terms):
    """The correctly rounded sum; fsum keeps no sign of zero, and none is needed: -0 equals 0 in every comparison."""
    return math.fsum(terms)


# Products. params: none; `dtype` names how the weight is stored where `raw` holds its bytes.

def product(kind, w, x, exact=False, **fields):
    w64, rows = w.astype(f64), np.atleast_2d(x).astype(f64)
    terms = rows[:, None, :] * w64[None]
    magnitudes = np.abs(fields.get("magnitudes", w)).astype(f64)[None] * np.abs(rows)[:, None, :]
    y = np.array([[total(t) for t in row] for row in terms])
    size = np.array([[total(t) for t in row] for row in magnitudes])
    if x.ndim == 1:
        y, size = y[0], size[0]
    put(kind, y, size, exact, w=w, x=x, **fields)


SHAPES = [(1, 1), (1, 2), (3, 7), (5, 8), (7, 9), (4, 31), (9, 32), (6, 33), (2, 257), (3, 1000), (1, 4097), (65, 3), (17, 64)]
for out, n in SHAPES:
    d = Data(f"matmul {out} {n}")
    product("matmul", d.reals(out, n), d.reals(n))
for out, n, p in [(1, 1, 1), (3, 7, 2), (8, 8, 8), (7, 9, 5), (9, 33, 3), (2, 257, 4), (5, 100, 17), (33, 5, 9)]:
    d = Data(f"batched_matmul {out} {n} {p}")
    product("batched_matmul", d.reals(out, n), d.reals(p, n))
for out, n in [(3, 64), (2, 1000)]:  # Sums that cancel to a small part of their terms.
    d = Data(f"cancelling {out} {n}")
    w, x = d.reals(out, n, low=-6, high=6), d.reals(n, low=-6, high=6)
    w[:, 1::2], x[1::2] = -w[:, 0::2] * f32(1 + 2.0 ** -12), x[0::2]
    product("matmul", w, x)
for kind, x in [("matmul", (70,)), ("batched_matmul", (3, 70))]:
    d = Data(f"exact {kind}")
    product(kind, d.integers(7, 9, 70), d.integers(7, *x), exact=True)
    scaled = [np.ldexp(d.integers(7, *shape), -40).astype(f32) for shape in [(9, 70), x]]
    product(kind, *scaled, exact=True)
    d = Data(f"denormal {kind}")  # Products below the smallest normal number, and denormal operands.
    product(kind, d.reals(4, 70, low=-72, high=-68), d.reals(*x, low=-70, high=-66))
    product(kind, d.reals(4, 70, low=-8, high=8), np.ldexp(d.integers(1 << 20, *x).astype(f64), -149).astype(f32))
    product(kind, np.full((3, 70), -0.0, f32), d.reals(*x))
    product(kind, d.reals(4, 70, low=57, high=59), d.reals(*x, low=57, high=59))  # Near the largest f32.

for name, dtype in [("f16", np.float16), ("bf16", ml_dtypes.bfloat16), ("fp8_e4m3", ml_dtypes.float8_e4m3fn), ("fp8_e5m2", ml_dtypes.float8_e5m2)]:
    for out, n in [(5, 7), (9, 65), (3, 300)]:
        d = Data(f"matmul {name} {out} {n}")
        stored = d.reals(out, n).astype(dtype)
        product("matmul", stored.astype(f32), d.reals(n), dtype=np.frombuffer(name.encode(), np.uint8), raw=stored.view(np.uint8))
for name, number, out, n in [("q8_0", 8, 5, 96), ("q8_0", 8, 3, 1024), ("q4_k", 12, 4, 256), ("q4_k", 12, 3, 1024)]:
    d = Data(f"matmul {name} {out} {n}")
    raw = np.ascontiguousarray(libgguf.quantize_rows(d.reals(out, n, low=-6, high=-1), number)).view(np.uint8).reshape(out, -1)
    w = np.asarray(libgguf.dequantize_rows(raw, number), f32).reshape(out, n)
    fields = {}
    if name == "q4_k":  # A value is (d*scale)*code - dmin*min; errors are relative to the sum of both parts.
        blocks = raw.reshape(-1, 144)
        least = blocks.copy()
        least[:, 16:] = 0
        minus = np.asarray(libgguf.dequantize_rows(least.reshape(out, -1), number), f32).reshape(out, n)
        fields["magnitudes"] = (w.astype(f64) - 2 * minus.astype(f64)).astype(f32)
    product("matmul", w, d.reals(n), dtype=np.frombuffer(name.encode(), np.uint8), raw=raw, **fields)
    product("batched_matmul", w, d.reals(3, n), dtype=np.frombuffer(name.encode(), np.uint8), raw=raw, **fields)

# rms_norm. eps is an f32.

def rms_norm(x, weight, eps):
    eps, y = f32(eps), np.empty(x.shape, f64)
    for p, row in enumerate(x):
        squares = mpf(total(row.astype(f64) ** 2)) / len(row) + mpf(float(eps))
        for j, v in enumerate(row):
            y[p, j] = float(mpf(float(v)) / mpmath.sqrt(squares) * mpf(float(weight[j]))) if squares else math.nan
    put("rms_norm", y, np.abs(y), x=x, weight=weight, eps=np.array([eps], f32))


for p, n, eps in [(1, 1, 1e-5), (2, 2, 1e-6), (3, 7, 1e-5), (2, 8, 0.0), (1, 33, 1e-5), (2, 129, 1e-6), (1, 576, 1e-5), (1, 2049, 1e-5), (4, 64, 1.0)]:
    d = Data(f"rms_norm {p} {n}")
    rms_norm(d.reals(p, n), d.reals(n), eps)
d = Data("rms_norm special")
for low, eps in [(-9, 1e-5), (-60, 0.0), (-70, 0.0), (-70, 1e-30), (55, 1e-5), (-140, 1e-5)]:
    rms_norm(d.reals(2, 40, low=low, high=low + 2), d.reals(40), eps)
rms_norm(np.zeros((2, 5), f32), d.reals(5), 1e-5)
rms_norm(np.array([[0, 0, 0], [0, -0.0, 2]], f32), d.reals(3), 0.0)
rms_norm(np.array([[-0.0, 3.0, -0.0, 1e-45]], f32), np.array([1, -0.0, 2, 1], f32), 1e-5)

# rope. params: pos, heads, head_dim; theta is an f32.

def rope(x, pos, heads, dim, theta):
    theta, half = mpf(float(f32(theta))), dim // 2
    y, size = np.empty(x.shape, f64), np.empty(x.shape, f64)
    for p in range(len(x)):
        for j in range(half):
            angle = (pos + p) * mpmath.power(theta, -mpf(2 * j) / dim)
            c, s = mpmath.cos(angle), mpmath.sin(angle)
            for i in range(j, heads * dim, dim):
                a, b = mpf(float(x[p, i])), mpf(float(x[p, i + half]))
                y[p, i], y[p, i + half] = float(a * c - b * s), float(b * c + a * s)
                size[p, i] = size[p, i + half] = float((abs(a) + abs(b)) * (1 + angle))
    put("rope", y, size, exact=pos == 0 and len(x) == 1, x=x, params=ints(pos, heads, dim), theta=np.array([theta], f32))


for pos in [0, 1, 4095, 32767, 131071, 131072]:
    for theta, dim in [(1e4, 64), (5e5, 128), (1e6, 80)]:
        rope(Data(f"rope {pos} {dim}").reals(1, dim), pos, 1, dim, theta)
for p, heads, dim, pos, theta in [(1, 3, 2, 7, 1e4), (5, 1, 6, 0, 1e4), (3, 2, 80, 4094, 1e4), (2, 3, 96, 131070, 5e5), (2, 1, 256, 131071, 1e6), (9, 1, 8, 32760, 1e4)]:
    rope(Data(f"rope {p} {heads} {dim}").reals(p, heads * dim), pos, heads, dim, theta)
rope(np.array([[-0.0, 1e-45, 3e38, -1e-38], [0, 0, -0.0, -0.0]], f32), 4095, 1, 4, 1e4)

# swiglu, add_in_place, add_bias.

def swiglu(gate, up):
    y = np.array([float(mpf(float(g)) / (1 + mpmath.exp(-mpf(float(g)))) * mpf(float(u))) for g, u in zip(gate, up)])
    put("swiglu", y, np.abs(y), gate=gate, up=up)


d = Data("swiglu")
extremes = np.array([0, -0.0, 1e-45, -1e-38, 16.6, -16.6, 17.4, 88.7, -88.7, 88.8, -88.8, 103.9, -104.1, 700, -700, 709.7, -709.7, 709.8, -710, -1e4, 1e4, 3e38, -3e38], f32)
swiglu(extremes, np.ones_like(extremes))
swiglu(extremes, d.reals(len(extremes), low=0, high=0) * f32(-1))
for n in [1, 7, 33, 500]:
    swiglu(d.reals(n), d.reals(n))
swiglu(d.reals(600, low=-20, high=7), d.reals(600, low=-10, high=10))

d = Data("add")
for n in [1, 7, 33, 300]:
    a, b = d.reals(n, low=-30, high=30), d.reals(n, low=-30, high=30)
    put("add_in_place", a.astype(f64) + b.astype(f64), np.abs(a.astype(f64)) + np.abs(b), dst=a, src=b)
for a, b in [(d.integers(4000, 65), d.integers(4000, 65)), (np.array([-0.0, 0.0, -0.0, 1e-45, -1e-45, 1.7e38, 1.0], f32), np.array([-0.0, -0.0, 1.0, 1e-45, 1e-45, 1.7e38, -1.0], f32))]:
    put("add_in_place", a.astype(f64) + b.astype(f64), np.abs(a.astype(f64)) + np.abs(b), exact=True, dst=a, src=b)
for p, n in [(1, 1), (3, 7), (5, 33), (2, 129)]:
    a, b = d.reals(p, n), d.reals(n)
    put("add_bias", a.astype(f64) + b.astype(f64), np.abs(a.astype(f64)) + np.abs(b), dst=a, bias=b)
a, b = d.integers(4000, 5, 9), d.integers(4000, 9)
put("add_bias", a.astype(f64) + b.astype(f64), np.abs(a.astype(f64)) + np.abs(b), exact=True, dst=a, bias=b)

# attention. params: kv_heads, group, head_dim, causal; scale is an f32.

def attention(q, k, v, kv_heads, group, dim, causal=True, scale=None, exact=False):
    scale = f32(1 / math.sqrt(dim)) if scale is None else f32(scale)
    n, rows = len(k), len(q)
    y, size = np.empty(q.shape, f64), np.empty(q.shape, f64)
    for p in range(rows):
        seen = n - rows + 1 + p if causal else n
        for h in range(kv_heads * group):
            at = slice(h * dim, (h + 1) * dim)
            of = slice(h // group * dim, (h // group + 1) * dim)
            terms = q[p, at].astype(f64) * k[:seen, of].astype(f64)
            scores = [mpmath.fsum(map(mpf, map(float, t))) * mpf(float(scale)) for t in terms]
            most = max(scores)
            weights = [mpmath.exp(s - most) for s in scores]
            sums = mpmath.fsum(weights)
            for i in range(dim):
                column = [mpf(float(e)) for e in v[:seen, of.start + i]]
                y[p, at.start + i] = float(mpmath.fsum(w * e for w, e in zip(weights, column)) / sums)
            condition = 1 + float(np.abs(terms).sum(1).max()) * abs(float(scale))
            size[p, at] = float(np.abs(v[:seen, of]).max()) * condition
    put("attention", y, size, exact, q=q, k=k, v=v, params=ints(kv_heads, group, dim, causal), scale=np.array([scale], f32))


for p, n, kv_heads, group, dim, causal in [
        (1, 1, 1, 1, 2, True), (1, 2, 1, 1, 2, True), (1, 7, 2, 3, 2, True), (3, 9, 1, 8, 8, True), (3, 9, 1, 3, 8, False), (5, 5, 2, 1, 4, True),
        (1, 31, 1, 1, 80, True), (1, 33, 1, 3, 96, True), (2, 17, 1, 1, 128, True), (1, 17, 1, 1, 256, True), (1, 128, 2, 2, 16, True), (1, 500, 1, 1, 8, True)]:
    d = Data(f"attention {p} {n} {kv_heads} {group} {dim} {causal}")
    attention(d.reals(p, kv_heads * group * dim, low=-3, high=0), d.reals(n, kv_heads * dim, low=-3, high=0), d.reals(n, kv_heads * dim), kv_heads, group, dim, causal)

def scored(scores, v, exact=False):
    """Head dimension 2, scale 1: query (1, 0) against keys (score, 0) gives just these scores."""
    scores = np.asarray(scores, f32)
    k = np.stack([scores, np.zeros_like(scores)], 1)
    attention(np.array([[1, 0]], f32), k, v, 1, 1, 2, scale=1, exact=exact)


d = Data("attention scores")
whole = d.integers(100, 33, 2)
scored([0] * 17 + [3e38] + [0] * 15, whole, exact=True)  # One huge logit takes all the weight.
scored([-3e38] * 32 + [5], whole, exact=True)
scored(np.linspace(-3.4e38, 3.4e38, 33), whole, exact=True)  # Up to the largest f32: differences beyond it.
scored([3.4e38] * 4, np.array([[1, 2], [3, 4], [5, 6], [7, 12]], f32), exact=True)  # All equal, near the limit.
scored([-7.5] * 32, whole[:32], exact=True)  # All equal: the mean of integers over a power of two.
scored([0] * 33, d.reals(33, 2))
scored([-0.0, 0.0, 1e-45, -1e-45], d.reals(4, 2))
for spread in [10, 90, 110, 400, 1000]:  # From f32 exponentials that all count to ones that all vanish but the first.
    scored(np.sort(d.reals(33, low=0, high=0)) * f32(spread), d.reals(33, 2))
    scored(np.sort(d.reals(33, low=0, high=0))[::-1] * f32(spread), d.reals(33, 2))
scored(np.concatenate([[200], np.full(32, 200 - 87.0), np.full(31, 200 - 104.0)]), d.reals(64, 2))
for dim, exponent in [(64, 3), (80, 4)]:
    attention(d.reals(2, 2 * dim, low=0, high=exponent), d.reals(40, dim, low=0, high=exponent), d.reals(40, dim), 1, 2, dim)

# argmax. The first of the largest; a NaN never replaces a value and a NaN in front stays.

def argmax(x, index):
    x = np.array(x, f32)
    # The index is stated; numpy, which lets a NaN win, must agree where it can.
    assert index == (0 if np.isnan(x[0]) else int(np.nanargmax(x))), x
    put("argmax", [index], [0], exact=True, x=x)


inf, nan = math.inf, math.nan
for x, index in [([5], 0), ([1, 3, 3, 2], 1), ([-0.0, 0.0], 0), ([0.0, -0.0], 0), ([-inf] * 9, 0), ([-1, inf, inf], 1), ([nan, 5, 9], 0), ([1, nan, 2, nan], 2),
                 ([nan, nan], 0), ([-inf, nan, -3e38], 2), ([1e-45, 0, 3e-45, 3e-45], 2), ([7] * 65, 0), ([1, 1 + 2 ** -23, 1], 1)]:
    argmax(x, index)
d = Data("argmax")
for n in [33, 1000]:
    x = d.reals(n)
    argmax(x, int(np.argmax(x)))

save_file(tensors, sys.argv[1])
print(", ".join(f"{kind} {n}" for kind, n in sorted(counts.items())), f"cases, {sum(t.size for name, t in tensors.items() if name.endswith('.y'))} values")
