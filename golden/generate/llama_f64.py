"""An independent Llama forward pass in numpy float64: the oracle for whole-model goldens.

Reads a GGUF file or a Hugging Face safetensors file with its config.json. It shares no code with the
project, keeps every intermediate in float64, and is meant to be read: 60 lines of textbook formulas.

    python llama_f64.py fixtures/models/kjv/model.safetensors fixtures/models/kjv/config.json 73 110 32
    python llama_f64.py SmolLM2-135M-Instruct.Q4_1.gguf - 504 3575 282 4649 314

Needs numpy and safetensors; gguf for GGUF files. GGUF stores q and k rows permuted for interleaved
RoPE; safetensors keeps the rotate-half order. Checked against transformers 5.23.0 in float32: largest
difference 4.1e-6 to 3.6e-5 on the bundled models and SmolLM2-135M, argmax equal at every position.
"""
import json
import sys

import numpy as np

NAMES = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
HF_NAMES = ["input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rope(x, positions, theta, interleaved):
    """x is [tokens, heads, head_dim]; rotates each head at its absolute position."""
    dim = x.shape[-1]
    angle = positions[:, None] * theta ** (-np.arange(0, dim, 2) / dim)
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    out = np.empty_like(x)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, dim // 2), slice(dim // 2, None))
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def forward(weights, cfg, ids):
    """Returns (logits [tokens, vocab], hidden states per layer), all float64."""
    tokens, heads, kv_heads, dim = len(ids), cfg["heads"], cfg["kv_heads"], cfg["head_dim"]
    positions = np.arange(tokens, dtype=np.float64)
    causal = np.triu(np.full((tokens, tokens), -np.inf), 1)
    x = weights["embed"][ids].astype(np.float64)
    hidden = [x]
    for layer in range(cfg["layers"]):
        w = {name: weights[f"{layer}.{name}"] for name in NAMES}
        h = rms_norm(x, w["attn_norm"], cfg["eps"])
        q = rope((h @ w["attn_q"].T).reshape(tokens, heads, dim), positions, cfg["theta"], cfg["interleaved"])
        k = rope((h @ w["attn_k"].T).reshape(tokens, kv_heads, dim), positions, cfg["theta"], cfg["interleaved"])
        v = (h @ w["attn_v"].T).reshape(tokens, kv_heads, dim)
        k, v = np.repeat(k, heads // kv_heads, 1), np.repeat(v, heads // kv_heads, 1)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(dim) + causal
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hts,shd->thd", scores, v).reshape(tokens, heads * dim) @ w["attn_output"].T
        h = rms_norm(x, w["ffn_norm"], cfg["eps"])
        gate = h @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
        hidden.append(x)
    return rms_norm(x, weights["norm"], cfg["eps"]) @ weights["head"].T, hidden


def load_gguf(path):
    import gguf
    from gguf.quants import dequantize

    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields[key].contents()
    tensors = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
    weights = {"embed": tensors["token_embd.weight"], "norm": tensors["output_norm.weight"]}
    weights["head"] = tensors.get("output.weight", weights["embed"])
    layers, heads = value("llama.block_count"), value("llama.attention.head_count")
    for layer in range(layers):
        for name in NAMES:
            weights[f"{layer}.{name}"] = tensors[f"blk.{layer}.{name}.weight"]
    return weights, dict(heads=heads, kv_heads=value("llama.attention.head_count_kv"), layers=layers,
                         head_dim=value("llama.embedding_length") // heads, theta=value("llama.rope.freq_base"),
                         eps=value("llama.attention.layer_norm_rms_epsilon"), interleaved=True)


def load_safetensors(path, config_path):
    from safetensors.numpy import load_file

    config = json.load(open(config_path))
    tensors = {name: t.astype(np.float64) for name, t in load_file(path).items()}
    weights = {"embed": tensors["model.embed_tokens.weight"], "norm": tensors["model.norm.weight"]}
    weights["head"] = tensors.get("lm_head.weight", weights["embed"])
    for layer in range(config["num_hidden_layers"]):
        for name, hf_name in zip(NAMES, HF_NAMES):
            weights[f"{layer}.{name}"] = tensors[f"model.layers.{layer}.{hf_name}.weight"]
    heads = config["num_attention_heads"]
    return weights, dict(heads=heads, kv_heads=config["num_key_value_heads"], layers=config["num_hidden_layers"],
                         head_dim=config["hidden_size"] // heads, theta=config["rope_theta"],
                         eps=config["rms_norm_eps"], interleaved=False)


if __name__ == "__main__":
    path, config_path, ids = sys.argv[1], sys.argv[2], np.array([int(i) for i in sys.argv[3:]])
    weights, cfg = load_gguf(path) if path.endswith(".gguf") else load_safetensors(path, config_path)
    logits, _ = forward(weights, cfg, ids)
    for position, row in enumerate(logits):
        best = np.argsort(-row)[:3]
        print(position, [(int(i), round(float(row[i]), 6)) for i in best], f"margin {row[best[0]] - row[best[1]]:.6f}")
