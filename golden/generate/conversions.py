"""Makes golden/conversions.safetensors: every code of the narrow floats, and rounding to them around every tie.

    pip install -r golden/generate/requirements.txt
    python golden/generate/conversions.py golden/conversions.safetensors

For each of f16 (numpy), bf16, fp8_e4m3 (without infinities, as in the OCP specification) and fp8_e5m2 (ml_dtypes):

- `<type>.f32`: the value of code 0, 1, 2, ... (all 65,536 or 256), as f32; NaN is 0x7fc00000 with the code's sign;
- `<type>.middle`: the f32 half way between the values of the positive codes c and c + 1, up to the step behind the
  largest finite value, which would be the next binade's first;
- `<type>.rounded`: three columns, the codes of the f32 just below that middle, of the middle (a tie, to even), and of
  the f32 just above; values of the codes themselves round to their code, and negative values to the code with its
  sign bit, which this script checks and does not store;
- `<type>.special_x`, `<type>.special_y`: other f32 values and their codes: denormals, zeros, the largest, infinities.

Narrowing rounds once, to nearest even, without saturation.
"""
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

f32 = np.float32
KINDS = [("f16", np.float16, np.uint16, 0x7C00), ("bf16", ml_dtypes.bfloat16, np.uint16, 0x7F80),
         ("fp8_e4m3", ml_dtypes.float8_e4m3fn, np.uint8, 0x7F), ("fp8_e5m2", ml_dtypes.float8_e5m2, np.uint8, 0x7C)]
SPECIAL = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38, 2.0 ** -9, 2.0 ** -10, 2.0 ** -17, 2.0 ** -24, 2.0 ** -25, 2.0 ** -133,
                    2.0 ** -134, 240, 448, 449, 463.9, 464, 464.1, 480, 512, 57344, 61439, 61440, 65504, 65519.996, 65520, 65536, 1e10, 3.3895314e38,
                    3.3961776e38, 3.3961777e38, 3.4028235e38, -3.4028235e38, np.inf, -np.inf], f32)
tensors = {}


def narrow(x, dtype, raw):
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype).view(raw)


for name, dtype, raw, end in KINDS:
    bits = 8 * np.dtype(raw).itemsize
    sign = raw(1 << (bits - 1))
    values = np.arange(1 << bits).astype(raw).view(dtype).astype(f32)
    signs = np.where(np.arange(1 << bits) >> (bits - 1), np.uint32(0x8000_0000), np.uint32(0))
    tensors[f"{name}.f32"] = np.where(np.isnan(values), np.uint32(0x7FC0_0000) | signs, values.view(np.uint32)).astype(np.uint32).view(f32)

    finite = values[:end].astype(np.float64)
    steps = np.append(np.diff(finite), finite[-1] - finite[-2])
    middle = (finite + steps / 2).astype(f32)
    assert np.array_equal(middle.astype(np.float64), finite + steps / 2), f"{name}: a middle is not an f32"
    near = np.stack([np.nextafter(middle, f32(0)), middle, np.nextafter(middle, f32(np.inf))], 1)
    rounded = narrow(near, dtype, raw)
    codes = np.arange(end).astype(raw)
    assert np.array_equal(narrow(values[:end], dtype, raw), codes), f"{name}: a value does not keep its code"
    assert np.array_equal(narrow(-near, dtype, raw), rounded | sign), f"{name}: rounding is not symmetric"
    # What the columns must be, by the definition of rounding to nearest even.
    assert np.array_equal(rounded[:, 0], codes) and np.array_equal(rounded[:, 2], codes + raw(1)), name
    assert np.array_equal(rounded[:, 1], codes + (codes & raw(1))), name
    tensors[f"{name}.middle"], tensors[f"{name}.rounded"] = middle, rounded
    tensors[f"{name}.special_x"], tensors[f"{name}.special_y"] = SPECIAL, narrow(SPECIAL, dtype, raw)

save_file(tensors, sys.argv[1])
