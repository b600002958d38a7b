"""f32.py IN.gguf OUT.gguf OUT.weights: a Llama checkpoint with every tensor dequantised to f32, for both sides.

OUT.gguf keeps the metadata and the tokenizer. OUT.weights is nothing but the matrices, in the order in which
backends/vulkan/examples/decode.rs reads them.
"""

import sys

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, dequantize

LAYER = ["attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]

source, target, plain = sys.argv[1:]
reader = GGUFReader(source)


def metadata(name):
    return reader.fields[name].contents()


writer = GGUFWriter(target, metadata("general.architecture"))
for name, field in reader.fields.items():
    if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
        continue
    inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
    writer.add_key_value(name, field.contents(), field.types[0], inner)
writer.add_file_type(LlamaFileType.ALL_F32)
tensors = {}
for tensor in reader.tensors:
    values = np.ascontiguousarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
    # GGUF names the innermost extent first, numpy the outermost.
    tensors[tensor.name] = values.reshape([int(n) for n in reversed(tensor.shape)])
    writer.add_tensor(tensor.name, tensors[tensor.name])
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()


def halves_apart(matrix, heads):
    """Rows in the order of a rotation that pairs element i with i + half; GGUF has them for neighbours in pairs."""
    rows, inner = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, inner).swapaxes(1, 2).reshape(rows, inner)


heads = {"attn_q": metadata("llama.attention.head_count"), "attn_k": metadata("llama.attention.head_count_kv")}
with open(plain, "wb") as out:
    for layer in range(metadata("llama.block_count")):
        for kind in LAYER:
            matrix = tensors[f"blk.{layer}.{kind}.weight"]
            out.write((halves_apart(matrix, heads[kind]) if kind in heads else matrix).tobytes())
    for name in ("output_norm", "token_embd"):
        out.write(tensors[f"{name}.weight"].tobytes())
parameters = sum(values.size for values in tensors.values())
print(f"{len(tensors)} tensors, {parameters} parameters, all f32")
