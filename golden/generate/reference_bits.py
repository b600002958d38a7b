"""Makes golden/reference_bits.safetensors: inputs and exact outputs of cpu-ref's operations.

    python3 -m venv venv && venv/bin/pip install numpy==2.4.6 safetensors==0.8.0 ml_dtypes==0.6.0
    venv/bin/python golden/generate/reference_bits.py golden/reference_bits.safetensors

The arithmetic is reference_f32.py; narrowing to 8 and 16 bits is numpy's and ml_dtypes'. Every case has a
generator of its own, keyed by its name, so adding a case changes no other. Names are `kind.number.field`.
Prints how many output values each kind has, and the manifest entry.
"""
import hashlib
import sys
import zlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

import reference_f32 as ref

f32 = np.float32
SEED = 20261130
tensors, counts = {}, {}


def rng_of(name):
    return np.random.default_rng([SEED, zlib.crc32(name.encode())])


def put(kind, outputs, **fields):
    """Stores a case; `outputs` names the fields that the test compares."""
    number = sum(1 for k in tensors if k.startswith(kind + ".") and k.endswith("." + outputs[0]))
    for field, value in fields.items():
        tensors[f"{kind}.{number}.{field}"] = np.ascontiguousarray(value)
    counts[kind] = counts.get(kind, 0) + sum(np.asarray(fields[o]).size for o in outputs)


def reals(rng, *shape):
    """Values over several binades and both signs, so that the order of a sum shows."""
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))).astype(f32)


def rows(w, x):
    return np.stack([ref.dot8(row, w) for row in x])


def ints(*values):
    return np.array(values, np.int64)


SHAPES = [(1, 1, 1), (3, 7, 2), (5, 8, 1), (7, 9, 3), (4, 63, 2), (9, 64, 1), (6, 65, 2), (2, 257, 1), (33, 129, 3), (17, 192, 2)]

for out, n, p in SHAPES:
    rng = rng_of(f"matmul_f32 {out} {n} {p}")
    w, x = reals(rng, out, n), reals(rng, p, n)
    put("matmul_f32", ["y"], w=w, x=x, y=rows(w, x))

for kind, dtype, raw in [("f16", np.float16, np.uint16), ("bf16", ml_dtypes.bfloat16, np.uint16),
                         ("fp8_e4m3", ml_dtypes.float8_e4m3fn, np.uint8), ("fp8_e5m2", ml_dtypes.float8_e5m2, np.uint8)]:
    for out, n, p in SHAPES[1:8]:
        rng = rng_of(f"matmul_{kind} {out} {n} {p}")
        w, x = rng.standard_normal((out, n)).astype(f32).astype(dtype), reals(rng, p, n)
        put(f"matmul_{kind}", ["y"], w=w.view(raw), x=x, y=rows(w.astype(f32), x))
    # Narrowing: values around the grid, exact ties, denormals of the target, overflow, both zeros.
    rng = rng_of(f"narrow_{kind}")
    grid = np.arange(0, 2 ** (8 * np.dtype(raw).itemsize), 1 if raw is np.uint8 else 97).astype(raw).view(dtype).astype(f32)
    grid = grid[np.isfinite(grid)]
    ties = (grid[:-1] / f32(2) + grid[1:] / f32(2)).astype(f32)
    wide = (rng.standard_normal(800) * np.exp2(rng.integers(-40, 40, 800))).astype(f32)
    fixed = np.array([0.0, -0.0, 447.9, 464.0, 464.1, 65519.9, 65520.0, 61440.0, 3.4e38, 1e-45, np.inf, -np.inf], f32)
    x = np.concatenate([grid, ties, np.nextafter(ties, f32(np.inf)), wide, fixed])
    with np.errstate(over="ignore"):
        y = x.astype(dtype)
    # A NaN has many codes; the others have one.
    put(f"narrow_{kind}", ["y"], x=x, y=y.view(raw))

for bits, out, n, block, axis, symmetric, p in [(8, 3, 12, 4, 1, 1, 2), (8, 6, 35, 2, 0, 0, 1), (8, 5, 64, 64, 1, 0, 2),
                                                (4, 3, 14, 7, 1, 1, 2), (4, 4, 64, 32, 1, 0, 1), (4, 8, 10, 4, 0, 1, 3)]:
    rng = rng_of(f"matmul_i{bits} {out} {n} {block} {axis}")
    codes = rng.integers(-2 ** (bits - 1), 2 ** (bits - 1), (out, n))
    grid = [out, n]
    grid[axis] //= block
    scales = rng.uniform(0.01, 0.1, grid).astype(f32)
    zeros = np.zeros(grid, np.int32) if symmetric else rng.integers(-5, 6, grid).astype(np.int32)
    spread = lambda a: np.repeat(a, block, axis)
    w = (codes - spread(zeros)).astype(f32) * spread(scales)
    raw = codes.astype(np.int8).view(np.uint8).reshape(-1)
    if bits == 4:
        raw = (raw[0::2] & 15) | ((raw[1::2] & 15) << 4)
    x = reals(rng, p, n)
    put(f"matmul_i{bits}", ["y", "dequantised"], w=raw, params=ints(out, n, block, axis, symmetric), scales=scales.reshape(-1),
        zeros=np.zeros(0, np.int32) if symmetric else zeros.reshape(-1), x=x, dequantised=w, y=rows(w, x))


def q8_cases(kind, w_fields, qw, dw, x):
    out, n = qw.shape
    dots, cells = np.zeros((len(x), out), f32), np.zeros((len(x), out), f32)
    for i, row in enumerate(x):
        qx, dx = ref.quant(row)
        for o in range(out):
            dots[i, o] = ref.q8_dot(qw[o], dw[o], qx, dx)
            cells[i, o] = ref.q8_cell(qw[o], dw[o], qx, dx)
    put(kind, ["dot", "cell"], x=x, dot=dots, cell=cells, **w_fields)


for out, n, p in [(1, 32, 1), (5, 64, 3), (9, 160, 2), (3, 576, 1), (33, 96, 2)]:
    rng = rng_of(f"q8_gguf {out} {n} {p}")
    codes = rng.integers(-128, 128, (out, n // 32, 32)).astype(np.int8)
    d = rng.uniform(-0.02, 0.02, (out, n // 32, 1)).astype(np.float16)
    raw = np.concatenate([d.view(np.uint8), codes.view(np.uint8)], 2).reshape(out, -1)
    q8_cases("q8_gguf", {"w": raw}, codes.reshape(out, n).astype(np.int32), d[:, :, 0].astype(f32), reals(rng, p, n))
    rng = rng_of(f"q8_narrowed {out} {n} {p}")
    w, x = reals(rng, out, n), reals(rng, p, n)
    q, d = ref.quant(w.reshape(-1))
    q8_cases("q8_narrowed", {"w": w}, q.reshape(out, n), d.reshape(out, -1), x)

rng = rng_of("q8_quant")
for x in [reals(rng, 640), np.zeros(32, f32), np.full(32, -0.0, f32),
          # The scale is 1 and 2, so halves are exact ties.
          np.concatenate([[127], np.arange(-30, 32) / 2, [-127]]).astype(f32),
          np.concatenate([[254], np.arange(-31, 32)]).astype(f32),
          rng.uniform(1, 3000, 64).astype(np.int32).view(f32),
          (rng.standard_normal(64) * 1e37).astype(f32)]:
    q, d = ref.quant(x)
    put("q8_quant", ["codes", "scales"], x=x, codes=q.astype(np.int8), scales=d)

for out, n, p in [(1, 256, 1), (7, 256, 2), (5, 768, 3), (3, 1280, 1)]:
    rng = rng_of(f"q4_k {out} {n} {p}")
    blocks = rng.integers(0, 256, (out, n // 256, 144)).astype(np.uint8)
    blocks[:, :, :4] = rng.uniform(0.001, 0.01, (out, n // 256, 2)).astype(np.float16).view(np.uint8)
    w, x = blocks.reshape(out, -1), reals(rng, p, n)
    put("q4_k", ["y"], w=w, x=x, y=np.array([[ref.q4k_row(row, v) for row in w] for v in x], f32))

for p, n, eps in [(1, 1, 1e-5), (3, 7, 1e-6), (2, 64, 1e-5), (5, 129, 0.0), (4, 576, 1e-5), (1, 2049, 1e-6)]:
    rng = rng_of(f"rms_norm {p} {n}")
    x, w = reals(rng, p, n), reals(rng, n)
    put("rms_norm", ["y"], x=x, w=w, eps=np.array([eps], f32), y=np.stack([ref.rms_norm(row, w, f32(eps)) for row in x]))

rng = rng_of("swiglu")
extremes = np.array([0.0, -0.0, 88.7, -88.7, 88.8, -88.8, 103.9, -104.1, 700, -700, 709, -710, 3e38, -3e38, np.inf, 1e-45, -1e-38], f32)
for g in [extremes, np.linspace(-110, 110, 1501).astype(f32), reals(rng, 4000)]:
    u = reals(rng, len(g))
    with np.errstate(over="ignore"):
        put("swiglu", ["y"], gate=g, up=u, y=ref.swiglu(g, u))

for p, heads, dim, pos, theta in [(3, 1, 2, 0, 1e4), (2, 3, 6, 1, 1e4), (4, 2, 64, 0, 1e5), (8, 1, 64, 1000, 1e4), (8, 1, 128, 8191, 5e5),
                                  (8, 1, 64, 32767, 1e5), (9, 1, 128, 131064, 5e5), (9, 2, 64, 131064, 1e4), (1, 1, 80, 99991, 1e6)]:
    rng = rng_of(f"rope {p} {heads} {dim} {pos} {theta}")
    x = reals(rng, p, heads * dim)
    put("rope", ["y"], x=x, params=ints(pos, heads, dim), theta=np.array([theta], f32),
        y=np.stack([ref.rope(row, pos + i, heads, dim, float(f32(theta))) for i, row in enumerate(x)]))

for p, kv_heads, group, dim, n, causal in [(1, 1, 1, 2, 1, 1), (1, 2, 2, 6, 7, 1), (3, 1, 3, 8, 9, 1), (3, 1, 3, 8, 9, 0), (5, 2, 1, 4, 5, 1),
                                           (1, 3, 3, 16, 65, 1), (2, 1, 4, 32, 257, 1), (1, 1, 1, 8, 1500, 1)]:
    rng = rng_of(f"attention {p} {kv_heads} {group} {dim} {n} {causal}")
    q, k, v = reals(rng, p, kv_heads * group * dim), rng.standard_normal((n, kv_heads * dim)).astype(f32), reals(rng, n, kv_heads * dim)
    scale = f32(1 / np.sqrt(dim))
    seen = [n - p + 1 + i if causal else n for i in range(p)]
    y = np.stack([ref.attention(row, k[:s], v[:s], kv_heads, group, dim, scale) for row, s in zip(q, seen)])
    put("attention", ["y"], q=q, k=k, v=v, params=ints(kv_heads, group, dim, causal), scale=np.array([scale], f32), y=y)

rng = rng_of("argmax")
nan = np.nan
for x in [[1.0], [1, 3, 3, 2], [nan, 5, 9], [1, nan, 2, nan], [-0.0, 0.0], [0.0, -0.0], [-np.inf, -np.inf], [-1, np.inf, np.inf],
          reals(rng, 1000), rng.integers(0, 5, 200), [nan, nan], [-np.inf, nan, -1e38]]:
    x = np.array(x, f32)
    put("argmax", ["y"], x=x, y=ints(ref.argmax(x)))

path = sys.argv[1]
save_file(tensors, path)
for kind in sorted(counts):
    print(f'    ("{kind}", {counts[kind]}),')
print(sum(counts.values()), "values")
print(f'[[golden]]\npath = "reference_bits.safetensors"\nsha256 = "{hashlib.sha256(open(path, "rb").read()).hexdigest()}"')
