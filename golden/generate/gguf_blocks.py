"""Blocks of every supported GGUF encoding with the values that the gguf package decodes from them.

    python gguf_blocks.py ../gguf_blocks.safetensors

Needs gguf 0.19.0, libgguf 0.2.2, numpy and safetensors. `<type>.raw` are the bytes of 4 rows of 512 elements,
`<type>.f32` the decoded values. The rows are quantised normal numbers, and for the integer encodings also random
bytes under finite scales, so that every code, packed scale and minimum occurs. `gguf` decodes; `libgguf`, which wraps
the C code of ggml, must agree bit for bit.
"""
import sys

import gguf
import libgguf
import numpy as np
from gguf.quants import dequantize, quantize
from safetensors.numpy import save_file

ROWS, COLUMNS = 4, 512
# Byte offsets of the binary16 scales inside a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

rng = np.random.default_rng(20261130)
out = {}
for name in ["F32", "F16", "BF16", *SCALES]:
    kind = gguf.GGMLQuantizationType[name]
    normal = rng.standard_normal((ROWS // 2, COLUMNS)).astype(np.float32)
    if name.endswith("_K"):
        first = libgguf.quantize_rows(normal, int(kind))
    else:
        first = quantize(normal, kind)
    first = np.ascontiguousarray(first).view(np.uint8).reshape(ROWS // 2, -1)
    if name in SCALES:
        block, size = gguf.GGML_QUANT_SIZES[kind]
        second = rng.integers(0, 256, (ROWS // 2 * COLUMNS // block, size), dtype=np.uint8)
        for at in SCALES[name]:
            scales = rng.standard_normal(len(second)).astype(np.float16)
            second[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
        second = second.reshape(ROWS // 2, -1)
    else:
        tiny = (rng.standard_normal((ROWS // 2, COLUMNS)) * 2.0 ** rng.integers(-24, 15, COLUMNS)).astype(np.float32)
        second = np.ascontiguousarray(quantize(tiny, kind)).view(np.uint8).reshape(ROWS // 2, -1)
    raw = np.concatenate([first, second])
    stored = raw.view({"F32": np.float32, "F16": np.float16}.get(name, np.uint8))
    values = np.ascontiguousarray(dequantize(stored, kind), dtype=np.float32).reshape(ROWS, COLUMNS)
    assert np.isfinite(values).all()
    if name in SCALES:
        other = np.asarray(libgguf.dequantize_rows(raw, int(kind)), dtype=np.float32).reshape(ROWS, COLUMNS)
        assert np.array_equal(values.view(np.uint32), other.view(np.uint32)), name
    out[f"{name}.raw"], out[f"{name}.f32"] = raw, values
save_file(out, sys.argv[1])
