//! Broken and hostile files, each with the message that it earns.

use std::path::Path;

use serde_json::{Value, json};

use super::formats::hf_folder;
use super::make::{GgufWriter, Tensors, config_json, gguf_of, safetensors_bytes, text, tiny};
use super::*;

fn refused(path: &Path) -> String {
    match Model::open(path) {
        Ok(_) => panic!("{} was accepted", path.display()),
        Err(error) => error.to_string(),
    }
}

fn refused_bytes(name: &str, bytes: &[u8]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let error = refused(&path);
    assert!(error.contains(name), "the file is not named: {error}");
    error
}

fn llama() -> GgufWriter {
    let (config, tensors) = tiny(Family::Llama, true);
    gguf_of(&config, &tensors)
}

type Change = fn(&mut GgufWriter);

#[test]
fn gguf_values_and_tensors_are_checked() {
    let cases: &[(Change, &str)] = &[
        (|g| g.version = 1, "at byte 4: version: expected 2 or 3, little-endian, found 1"),
        (|g| g.version = 3u32.swap_bytes(), "found a big-endian file"),
        (|g| g.value("general.architecture", 8, &text("mamba")), "expected llama or qwen2, found mamba"),
        (|g| g.value("general.architecture", 4, &[0; 4]), "general.architecture: expected a string, found 0"),
        (|g| g.values.remove(0).0.clear(), "general.architecture: expected a string, found nothing"),
        (|g| g.value("llama.block_count", 4, &2u32.to_le_bytes()), "\"blk.1.attn_norm.weight\": expected"),
        (|g| g.value("llama.block_count", 4, &[255; 4]), "llama.block_count: expected 1 to 4096"),
        (|g| g.value("llama.block_count", 9, &[4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), "found an array of 0"),
        (|g| g.value("llama.block_count", 5, &[255; 4]), "a whole number, found -1"),
        (
            |g| g.value("llama.attention.head_count", 4, &[0; 4]),
            "llama.attention.head_count: expected a divisor",
        ),
        (|g| g.value("llama.attention.head_count_kv", 4, &[3, 0, 0, 0]), "a divisor of the 4 query heads"),
        (|g| g.value("llama.rope.dimension_count", 4, &[4, 0, 0, 0]), "expected the head size 8, found 4"),
        (|g| g.value("llama.rope.scaling.type", 8, &text("yarn")), "rope.scaling.type: expected none"),
        (
            |g| g.value("llama.rope.scaling.factor", 6, &2f32.to_le_bytes()),
            "expected 1 (no scaling), found 2",
        ),
        (|g| g.value("llama.expert_count", 4, &[8, 0, 0, 0]), "expert_count: expected 0"),
        (|g| g.value("llama.attention.sliding_window", 4, &[8, 0, 0, 0]), "sliding_window: expected 0"),
        (|g| g.value("llama.attention.causal", 7, &[0]), "attention.causal: expected true"),
        (|g| g.value("llama.vocab_size", 4, &[17, 0, 0, 0]), "the 16 rows of token_embd.weight, found 17"),
        (
            |g| g.value("llama.rope.freq_base", 6, &f32::NAN.to_le_bytes()),
            "rope.freq_base: expected a finite",
        ),
        (|g| g.value("split.count", 2, &[2, 0]), "merge the parts first"),
        (|g| g.value("general.alignment", 4, &[24, 0, 0, 0]), "general.alignment: expected a power of two"),
        (|g| g.value("x", 13, &[]), "value of \"x\": expected a value type 0 to 12, found 13"),
        (|g| g.value("x", 7, &[2]), "a bool, 0 or 1, found 2"),
        (|g| g.value("x", 8, &[255; 8]), "expected a length of at most"),
        (|g| g.value("x", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xFF]), "expected UTF-8"),
        (
            |g| g.value("x", 9, &[[4u8, 0, 0, 0].as_slice(), &[255; 8]].concat()),
            "the rest of the file can hold",
        ),
        (
            |g| g.value("x", 9, &[[8u8, 0, 0, 0, 1].as_slice(), &[0; 7], &[255; 8]].concat()),
            "a string length of",
        ),
        (|g| g.value("x", 9, &[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0].repeat(9)), "nested at most 4 deep"),
        (|g| g.values.push(g.values[2].clone()), "every key once, found \"llama.embedding_length\" again"),
        (|g| g.tensors.push(g.tensors[0].clone()), "tensor \"token_embd.weight\" at byte"),
        (|g| g.tensors[1].1.clear(), "\"blk.0.attn_norm.weight\" at byte"),
        (|g| g.tensors[1].1 = vec![1; 5], "expected 1 to 4 dimensions, found 5"),
        (|g| g.tensors[1].1 = vec![0], "dimensions above 0, found 0"),
        (|g| g.tensors[1].1 = vec![u64::MAX / 2, 4], "a size that fits memory"),
        (|g| g.tensors[1].1 = vec![1 << 40], "bytes of data inside the"),
        (
            |g| g.tensors[1].1 = vec![8, 4],
            "expected blk.0.attn_norm.weight of shape [32], found shape [4, 8]",
        ),
        (|g| g.tensors[1].2 = 10, "found type 10 (Q2_K)"),
        (|g| g.tensors[1].2 = 77, "found type 77 (unknown)"),
        (|g| (g.tensors[1].2, g.tensors[1].1) = (8, vec![33]), "whole Q8_0 blocks of 32, found rows of 33"),
        (
            |g| drop(g.tensors.remove(4)),
            "tensor \"blk.0.attn_v.weight\": expected blk.0.attn_v.weight of shape",
        ),
        (|g| g.tensors[3].0 = "rope_freqs.weight".into(), "\"blk.0.attn_k.weight\": expected"),
        (
            |g| g.tensor("rope_freqs.weight", &[4], 0, vec![0; 16]),
            "\"rope_freqs.weight\": expected only the tensors",
        ),
        (|g| g.tensor("blk.0.attn_q.bias", &[32], 0, vec![0; 128]), "\"blk.0.attn_q.bias\": expected only"),
    ];
    for (number, (change, message)) in cases.iter().enumerate() {
        let mut gguf = llama();
        change(&mut gguf);
        let error = refused_bytes("hostile.gguf", &gguf.write().0);
        assert!(error.contains(message), "case {number}: wanted {message:?} in {error:?}");
    }
}

#[test]
fn gguf_counts_and_offsets_are_checked_before_use() {
    let (good, marks) = llama().write();
    let patched = |at: usize, with: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + with.len()].copy_from_slice(with);
        refused_bytes("patched.gguf", &bytes)
    };
    for huge in [u64::MAX, 1 << 40, 1 << 24] {
        let error = patched(8, &huge.to_le_bytes());
        assert!(error.contains("at byte 8: tensor count: expected at most"), "{error}");
        let error = patched(16, &huge.to_le_bytes());
        assert!(error.contains("at byte 16: metadata count: expected at most"), "{error}");
        let error = patched(24, &huge.to_le_bytes());
        assert!(error.contains("at byte 24: metadata key: expected a length of at most"), "{error}");
    }
    let tensors = llama().tensors.len();
    let table = marks.len() - tensors;
    // Marks of a tensor: name, dimensions, type with the offset behind it.
    let offset_of = |tensor: usize| marks[table - 3 * (tensors - tensor) + 2] + 4;
    let name = &llama().tensors[2].0;
    let error = patched(offset_of(2), &0u64.to_le_bytes());
    assert!(error.contains(&format!("{name:?}")) || error.contains("token_embd.weight"), "{error}");
    assert!(error.contains("found an overlap from byte"), "{error}");
    let error = patched(offset_of(2), &1u64.to_le_bytes());
    assert!(error.contains(&format!("{name:?}")) && error.contains("a multiple of 32, found 1"), "{error}");
    for far in [1 << 40, u64::MAX - 31] {
        let error = patched(offset_of(2), &far.to_le_bytes());
        assert!(error.contains(&format!("{name:?}")) && error.contains("truncated or corrupt"), "{error}");
    }
    assert!(patched(0, b"JUNK").contains("a file that starts with [4a, 55, 4e, 4b"));
}

#[test]
fn gguf_cut_anywhere_is_refused() {
    let (good, marks) = llama().write();
    let data = marks[marks.len() - llama().tensors.len()];
    let cuts = (0..data).chain(marks.iter().map(|m| m + 1)).chain([good.len() - 1]);
    for cut in cuts.filter(|cut| *cut < good.len()) {
        refused_bytes("cut.gguf", &good[..cut]);
    }
}

fn header_of(bytes: &[u8]) -> (Value, &[u8]) {
    let len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + len]).unwrap(), &bytes[8 + len..])
}

fn safetensors_with(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A folder of a tiny model whose safetensors file is replaced.
fn refused_weights(bytes: &[u8]) -> String {
    let (config, tensors) = tiny(Family::Llama, true);
    let folder = hf_folder(&config, &tensors);
    std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let error = refused(folder.path());
    assert!(error.contains("model.safetensors"), "the file is not named: {error}");
    error
}

type Edit<'a> = &'a dyn Fn(&mut Value);

#[test]
fn safetensors_entries_are_checked() {
    let (_, tensors) = tiny(Family::Llama, true);
    let good = safetensors_bytes(&tensors);
    let (header, data) = header_of(&good);
    let norm = "model.norm.weight";
    let cases: &[(Edit<'_>, &str)] = &[
        (&|h| h[norm]["dtype"] = json!("F64"), "\"model.norm.weight\" at byte"),
        (&|h| h[norm]["dtype"] = json!("I32"), "expected dtype F32, F16 or BF16, found I32"),
        (&|h| h[norm]["dtype"] = json!("Q9"), "expected a dtype of the format, found \"Q9\""),
        (&|h| h[norm]["dtype"] = json!("F16"), "expected 64 bytes for F16 [32], found 128 bytes"),
        (&|h| h[norm]["shape"] = json!([31]), "expected 124 bytes for F32 [31], found 128 bytes"),
        (
            &|h| h[norm]["shape"] = json!([4, 8]),
            "expected output_norm.weight of shape [32], found shape [4, 8]",
        ),
        (&|h| h[norm]["shape"] = json!([1u64 << 62, 1u64 << 62]), "whole bytes that fit 64 bits"),
        (&|h| h[norm]["shape"] = json!([-1]), "\\\"model.norm.weight\\\""),
        (&|h| h[norm]["data_offsets"] = json!([0, 1u64 << 50]), "expected data_offsets inside the"),
        (&|h| h[norm]["data_offsets"] = json!([128, 0]), "expected data_offsets inside the"),
        (&|h| h[norm]["data_offsets"] = json!([0, 128]), "an overlap"),
        (&|h| h[norm]["data_offsets"] = json!([0]), "model.norm.weight"),
        (&|h| drop(h.as_object_mut().unwrap().remove("model.embed_tokens.weight")), "a hole"),
        (&|h| h["model.norm.bias"] = h.as_object_mut().unwrap().remove(norm).unwrap(), "no such tensor"),
        (
            &|h| h["zzz"] = json!({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}),
            "\"zzz\": expected only",
        ),
        (&|h| *h = json!([]), "expected a JSON object of tensors"),
    ];
    for (number, (change, message)) in cases.iter().enumerate() {
        let mut changed = header.clone();
        change(&mut changed);
        let error = refused_weights(&safetensors_with(&changed.to_string(), data));
        let message = message.replace("\\\"", "\"");
        assert!(error.contains(&message), "case {number}: wanted {message:?} in {error:?}");
    }
    let longer = refused_weights(&[good.as_slice(), &[0; 4]].concat());
    assert!(longer.contains("end of data: expected"), "{longer}");
    let one = format!("\"{norm}\":{}", header[norm]);
    let twice = refused_weights(&safetensors_with(&format!("{{{one},{one}}}"), data));
    assert!(twice.contains("\"model.norm.weight\" occurs twice"), "{twice}");
    for len in [u64::MAX, 1 << 40, good.len() as u64 - 7] {
        let mut bytes = good.clone();
        bytes[..8].copy_from_slice(&len.to_le_bytes());
        let error = refused_weights(&bytes);
        assert!(error.contains("at byte 0: header length: expected at most"), "{error}");
    }
}

#[test]
fn safetensors_cut_anywhere_is_refused() {
    let (_, tensors) = tiny(Family::Llama, true);
    let good = safetensors_bytes(&tensors);
    let data = good.len() - header_of(&good).1.len();
    for cut in (0..=data).step_by(3).chain([data, data + 1, good.len() - 1]) {
        refused_weights(&good[..cut]);
    }
}

#[test]
fn folders_and_indexes_are_checked() {
    let (config, tensors) = tiny(Family::Llama, true);
    let whole = safetensors_bytes(&tensors);
    let check = |map: Value, message: &str| {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("model");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("config.json"), config_json(&config).to_string()).unwrap();
        std::fs::write(inner.join("a.safetensors"), &whole).unwrap();
        std::fs::write(folder.path().join("outside.safetensors"), &whole).unwrap();
        let index = json!({"weight_map": map}).to_string();
        std::fs::write(inner.join("model.safetensors.index.json"), index).unwrap();
        let error = refused(&inner);
        assert!(error.contains(message), "wanted {message:?} in {error:?}");
    };
    let named =
        |shard: &str| tensors.keys().map(|k| (k.clone(), json!(shard))).collect::<serde_json::Map<_, _>>();
    let plain = "expected the plain name of a .safetensors file";
    for shard in
        ["../outside.safetensors", "/etc/x.safetensors", "./a.safetensors", "..", "", "a", "a\\b.safetensors"]
    {
        check(named(shard).into(), plain);
    }
    check(named("b.safetensors").into(), "b.safetensors: cannot open");
    let mut more = named("a.safetensors");
    more.insert("ghost".into(), json!("a.safetensors"));
    check(more.into(), "\"ghost\": expected a tensor of this name in its shard, found none");
    let mut fewer = named("a.safetensors");
    fewer.remove("model.norm.weight");
    check(
        fewer.into(),
        "\"model.norm.weight\": expected \"a.safetensors\", the shard that holds it, found nothing",
    );
    check(json!({"x": 1}), "an object from tensor to shard");

    let folder = hf_folder(&config, &tensors);
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    assert!(refused(folder.path()).contains("neither model.safetensors nor"));
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    assert!(refused(folder.path()).contains("a folder without config.json"));
    assert!(refused(&folder.path().join("absent")).contains("cannot open"));
    assert!(refused_bytes("text.bin", b"hello").contains("expected a folder with config.json"));
}

#[test]
fn the_output_matrix_follows_the_configuration() {
    let (config, mut tensors) = tiny(Family::Llama, true);
    let untied = ModelConfig { tied: false, ..config.clone() };
    let error = refused(hf_folder(&untied, &tensors).path());
    assert!(error.contains("\"lm_head.weight\": expected output.weight of shape [16, 32]"), "{error}");
    // A tied model that repeats its output, or the RoPE frequencies, still uses the embedding.
    let before = run(&mut cpu(), &Model::open(hf_folder(&config, &tensors).path()).unwrap(), &[1, 2]);
    let mut extra = |name: &str, shape: Vec<usize>| {
        let values = vec![9.0; shape.iter().product()];
        tensors.insert(name.into(), (shape, values));
    };
    extra("lm_head.weight", vec![16, 32]);
    extra("model.layers.0.self_attn.rotary_emb.inv_freq", vec![4]);
    let folder = hf_folder(&config, &tensors);
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(bits(&run(&mut cpu(), &model, &[1, 2])), bits(&before));
    let with_head: &Tensors = &tensors;
    let folder = hf_folder(&untied, with_head);
    assert_ne!(run(&mut cpu(), &Model::open(folder.path()).unwrap(), &[1, 2]).logits, before.logits);
}
