"""Makes golden/q8_0_quantise.safetensors: f32 rows and the GGUF Q8_0 blocks that they become.

    pip install -r golden/generate/requirements.txt
    python golden/generate/q8_0_quantise.py golden/q8_0_quantise.safetensors

`<kind>.x` are rows of 32, `<kind>.raw` the blocks of 34 bytes (a binary16 scale, 32 codes) that `gguf` quantises and
that `libgguf`, which wraps the C code of ggml, must give too, bit for bit; `<kind>.scale` is amax/127 in f32 before it
becomes binary16. Blocks whose amax/127 has no finite f32 inverse are left out: what C does with them is undefined.
"""
import sys

import gguf
import libgguf
import numpy as np
from gguf.quants import quantize
from safetensors.numpy import save_file

f32, Q8_0 = np.float32, gguf.GGMLQuantizationType.Q8_0
rng = np.random.default_rng(20261201)


def reals(rows, low, high):
    """Full significands of both signs over the binades low..high."""
    significand = rng.integers(1 << 23, 1 << 24, (rows, 32)) * rng.choice([-1.0, 1.0], (rows, 32))
    return np.ldexp(significand, rng.integers(low, high + 1, (rows, 32)) - 24).astype(f32)


def topped(x, amax):
    """Puts the largest magnitude in front, so that the scale is known."""
    x = np.array(x, f32)
    x[:, 0] = amax
    return x


halves = rng.integers(-253, 254, (24, 32)) / 2.0
# The scale is a power of two, so that halves are exact ties; then the f32 just below and above each tie.
exponents = np.exp2(rng.integers(-14, 15, (24, 1)))
ties = topped(halves, 127.0)
odd = np.where(ties[:, 1:] % 1 == 0, ties[:, 1:] + f32(0.5), ties[:, 1:])
ties[:, 1:] = np.clip(odd, -126.5, 126.5)
below, above = ties.copy(), ties.copy()
below[:, 1:], above[:, 1:] = np.nextafter(ties[:, 1:], f32(0)), np.nextafter(ties[:, 1:], ties[:, 1:] * f32(2))
denormals = rng.integers(-(1 << 23) + 1, 1 << 23, (8, 32)).astype(f32) * f32(2.0 ** -149)
kinds = {
    "spread": reals(64, -6, 6),
    "even": reals(32, 0, 0),
    "ties": (ties * exponents).astype(f32),
    "below": (below * exponents).astype(f32),
    "above": (above * exponents).astype(f32),
    "zeros": np.stack([np.zeros(32, f32), np.full(32, -0.0, f32), np.where(np.arange(32) % 2, f32(-0.0), f32(0))]),
    "one": topped(np.zeros((4, 32)), [1e-30, -1.0, 3.4e38, -127]),
    "huge": topped(reals(8, 120, 128), f32(3.4028235e38)),  # The scale is beyond binary16: infinity there.
    "tiny": topped(reals(8, -126, -115), f32(2.0 ** -114)),  # The scale is below binary16: zero there.
    "denormal": np.concatenate([topped(denormals, f32(2.0 ** -119)), topped(denormals, f32(1e-30))]),
    "equal": np.repeat(reals(8, -3, 3)[:, :1], 32, 1),
}
tensors = {}
for name, x in kinds.items():
    x = np.ascontiguousarray(x, f32)
    assert np.isfinite(x).all(), name
    scale = np.abs(x).max(1) / f32(127)
    with np.errstate(over="ignore", divide="ignore"):
        assert (np.isfinite(f32(1) / scale) | (scale == 0)).all(), f"{name}: an inverse overflows"
        raw = np.ascontiguousarray(quantize(x, Q8_0)).view(np.uint8).reshape(-1, 34)
    other = np.ascontiguousarray(libgguf.quantize_rows(x, int(Q8_0))).view(np.uint8).reshape(-1, 34)
    assert np.array_equal(raw, other), f"{name}: gguf and libgguf differ in rows {np.flatnonzero((raw != other).any(1))}"
    tensors[f"{name}.x"], tensors[f"{name}.raw"], tensors[f"{name}.scale"] = x, raw, scale.astype(f32)
save_file(tensors, sys.argv[1])
