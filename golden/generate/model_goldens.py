"""Goldens of whole models: `llama_f64.py` run over the tokens of the golden that is replaced.

    python golden/generate/model_goldens.py fixtures/models/kjv golden/models/kjv.safetensors
    python golden/generate/model_goldens.py SmolLM2-135M-Instruct.Q4_1.gguf golden/models/smollm2-135m.safetensors

A folder gives every logit and hidden state; a GGUF file, whose model is large, gives the argmax, margin and eight
largest logits of each position, the last logits and the hidden states after the last layer (before the last norm).
Needs numpy and safetensors, gguf for GGUF files. How numpy's BLAS sums decides the last bits, so a new run agrees
to about 1e-12, not to the bit; the script prints the largest difference from the golden it replaces.
"""
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

import llama_f64 as oracle

source, path = sys.argv[1:]
old = load_file(path)
ids = old["input_ids"].astype(int)
large = source.endswith(".gguf")
if large:
    weights, cfg = oracle.load_gguf(source)
else:
    weights, cfg = oracle.load_safetensors(f"{source}/model.safetensors", f"{source}/config.json")
logits, hidden = oracle.forward(weights, cfg, ids)
if large:
    top = np.argsort(-logits, -1)[:, :8]
    values = np.take_along_axis(logits, top, -1)
    new = {"argmax": top[:, 0], "top8_ids": top, "top8_logits_f64": values, "margin_f64": values[:, 0] - values[:, 1],
           "last_logits_f64": logits[-1], "final_hidden_f64": hidden[-1]}
else:
    new = {"logits_f64": logits, **{f"hidden_f64.{layer}": state for layer, state in enumerate(hidden)}}
new["input_ids"] = ids
new = {name: np.ascontiguousarray(t, np.int32 if t.dtype.kind == "i" else np.float64) for name, t in new.items()}
assert new.keys() == old.keys(), (new.keys(), old.keys())
print(f"largest difference: {max(np.abs(new[name] - old[name]).max() for name in old):.2e}")
save_file(new, path)
