//! Qwen2: biases on q, k and v, in both formats, against formulas in float64 written out here.

use super::formats::hf_folder;
use super::make::{Tensors, gguf_of, tiny};
use super::*;

const TOKENS: [usize; 5] = [1, 7, 0, 15, 7];

type Row = Vec<f64>;

fn product(tensors: &Tensors, name: &str, x: &[f64]) -> Row {
    let (shape, w) = &tensors[name];
    let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
    assert_eq!(shape[1], x.len());
    w.chunks_exact(shape[1]).map(dot).collect()
}

fn biased(tensors: &Tensors, name: &str, x: &[f64]) -> Row {
    let bias = &tensors[&format!("{name}.bias")].1;
    let y = product(tensors, &format!("{name}.weight"), x);
    y.iter().zip(bias).map(|(y, b)| y + f64::from(*b)).collect()
}

fn norm(tensors: &Tensors, name: &str, x: &[f64]) -> Row {
    let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
    let inverse = 1.0 / (square + 1e-5).sqrt();
    x.iter().zip(&tensors[name].1).map(|(x, w)| x * inverse * f64::from(*w)).collect()
}

fn rope(x: &[f64], pos: usize, head: usize) -> Row {
    let mut out = x.to_vec();
    for (n, x) in x.chunks_exact(head).enumerate() {
        for j in 0..head / 2 {
            let angle = pos as f64 * 10_000f64.powf(-2.0 * j as f64 / head as f64);
            let (sin, cos) = angle.sin_cos();
            out[n * head + j] = x[j] * cos - x[j + head / 2] * sin;
            out[n * head + j + head / 2] = x[j + head / 2] * cos + x[j] * sin;
        }
    }
    out
}

/// Logits of every position of a one-layer model.
fn in_float64(config: &ModelConfig, t: &Tensors) -> Vec<Row> {
    let (dim, layer) = (config.head_dim, "model.layers.0");
    let (mut keys, mut values) = (Vec::<Row>::new(), Vec::<Row>::new());
    let mut logits = Vec::new();
    for (pos, token) in TOKENS.into_iter().enumerate() {
        let embedding = &t["model.embed_tokens.weight"].1[token * config.hidden..][..config.hidden];
        let mut x: Row = embedding.iter().map(|x| f64::from(*x)).collect();
        let h = norm(t, &format!("{layer}.input_layernorm.weight"), &x);
        let q = rope(&biased(t, &format!("{layer}.self_attn.q_proj"), &h), pos, dim);
        keys.push(rope(&biased(t, &format!("{layer}.self_attn.k_proj"), &h), pos, dim));
        values.push(biased(t, &format!("{layer}.self_attn.v_proj"), &h));
        let mut attended = Row::new();
        for (head, q) in q.chunks_exact(dim).enumerate() {
            let at = head / (config.heads / config.kv_heads) * dim;
            let dot = |k: &Row| k[at..at + dim].iter().zip(q).map(|(k, q)| k * q).sum::<f64>();
            let weights: Row = keys.iter().map(|k| (dot(k) / (dim as f64).sqrt()).exp()).collect();
            let total: f64 = weights.iter().sum();
            let mix = |i| {
                weights.iter().zip(&values).map(|(w, v): (&f64, &Row)| w / total * v[at + i]).sum::<f64>()
            };
            attended.extend((0..dim).map(mix));
        }
        let add = |x: &mut Row, y: Row| x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
        add(&mut x, product(t, &format!("{layer}.self_attn.o_proj.weight"), &attended));
        let h = norm(t, &format!("{layer}.post_attention_layernorm.weight"), &x);
        let gate = product(t, &format!("{layer}.mlp.gate_proj.weight"), &h);
        let up = product(t, &format!("{layer}.mlp.up_proj.weight"), &h);
        let inner: Row = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
        add(&mut x, product(t, &format!("{layer}.mlp.down_proj.weight"), &inner));
        let head = if config.tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
        logits.push(product(t, head, &norm(t, "model.norm.weight", &x)));
    }
    logits
}

#[test]
fn biases_and_both_formats_agree_with_float64() {
    for tied in [true, false] {
        let (config, tensors) = tiny(Family::Qwen2, tied);
        let folder = hf_folder(&config, &tensors);
        let hf = Model::open(folder.path()).unwrap();
        let path = folder.path().join("model.gguf");
        std::fs::write(&path, gguf_of(&config, &tensors).write().0).unwrap();
        let gguf = Model::open(&path).unwrap();
        assert_eq!((hf.config(), gguf.config()), (&config, &config));
        let output = run(&mut cpu(), &hf, &TOKENS);
        assert_eq!(bits(&output), bits(&run(&mut cpu(), &gguf, &TOKENS)));
        assert_eq!(bits(&output), bits(&run_steps(&mut cpu(), &hf, &TOKENS)));
        for (position, want) in in_float64(&config, &tensors).iter().enumerate() {
            let off = difference(&output.logits[position], want);
            assert!(off < 2e-5, "tied {tied}: position {position} is off by {off}");
        }
    }
}

#[test]
fn each_bias_counts() {
    let (config, tensors) = tiny(Family::Qwen2, true);
    let want = in_float64(&config, &tensors);
    for name in ["q_proj", "k_proj", "v_proj"] {
        let mut changed = tensors.clone();
        changed.get_mut(&format!("model.layers.0.self_attn.{name}.bias")).unwrap().1.fill(0.0);
        let model = hf_folder(&config, &changed);
        let output = run(&mut cpu(), &Model::open(model.path()).unwrap(), &TOKENS);
        assert!(difference(&output.logits[4], &want[4]) > 1e-3, "{name}");
    }
}
