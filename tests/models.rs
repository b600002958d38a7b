//! cpu-ref on the bundled models, against float64 goldens that an independent producer made.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

use modelbench::model::{BUNDLED, Capture, ForwardOutput, Model, Resident, Session, bundled, bundled_golden};
use modelbench_reference::CpuRef;

fn run(model: &Model, tokens: &[usize], steps: bool) -> ForwardOutput {
    let mut host = CpuRef::new();
    let weights = Resident::upload(&mut host, model).unwrap();
    let mut session = Session::new(&mut host, model, &weights, tokens.len()).unwrap();
    if !steps {
        return session.prefill(&mut host, tokens, Capture::ALL).unwrap();
    }
    let mut all = ForwardOutput::default();
    for &token in tokens {
        let part = session.step(&mut host, token, Capture::ALL).unwrap();
        all.logits.extend(part.logits);
        all.hidden.resize(part.hidden.len(), Vec::new());
        all.hidden.iter_mut().zip(part.hidden).for_each(|(whole, part)| whole.extend(part));
    }
    all
}

#[test]
fn cpu_ref_is_within_2e_5_of_the_goldens_at_every_position_and_layer() {
    const LIMIT: f64 = 2e-5;
    for name in BUNDLED {
        let model = bundled(name).unwrap().unwrap();
        let golden = bundled_golden(model.digest()).unwrap().unwrap();
        let output = run(&model, &golden.input_ids, false);
        let logits = golden.logits.unwrap();
        assert_eq!(output.logits.len(), logits.rows(), "{name}");
        for (position, row) in output.logits.iter().enumerate() {
            for (got, want) in row.iter().zip(logits.row(position).unwrap()) {
                assert!((f64::from(*got) - want).abs() <= LIMIT, "{name} position {position}: {got} {want}");
            }
        }
        assert_eq!(output.hidden.len(), golden.hidden.len(), "{name}");
        for (layer, (got, want)) in output.hidden.iter().zip(&golden.hidden).enumerate() {
            let largest = want.values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            assert_eq!(got.len(), want.values.len());
            for (got, want) in got.iter().zip(&want.values) {
                assert!(
                    (f64::from(*got) - want).abs() <= LIMIT * largest,
                    "{name} layer {layer}: {got} {want}"
                );
            }
        }
    }
}

#[test]
fn prefill_and_steps_give_the_same_bits_on_cpu_ref() {
    for name in BUNDLED {
        let model = bundled(name).unwrap().unwrap();
        let tokens = bundled_golden(model.digest()).unwrap().unwrap().input_ids;
        assert_eq!(run(&model, &tokens, false), run(&model, &tokens, true), "{name}");
    }
}

fn folder(config: &[u8], weights: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("config.json"), config).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), weights).unwrap();
    folder
}

#[test]
fn broken_files_are_refused_by_name() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models/tied");
    let config = std::fs::read(root.join("config.json")).unwrap();
    let weights = std::fs::read(root.join("model.safetensors")).unwrap();
    assert!(Model::open(folder(&config, &weights).path()).is_ok());
    for cut in [0, 7, 8, 9, 100, 2000, weights.len() / 2, weights.len() - 1] {
        let error = Model::open(folder(&config, &weights[..cut]).path()).unwrap_err().to_string();
        assert!(error.contains("model.safetensors"), "cut at {cut}: {error}");
    }
    let mut huge = weights.clone();
    huge[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(Model::open(folder(&config, &huge).path()).is_err());
    for (from, to) in
        [("\"llama\"", "\"mamba\""), ("\"silu\"", "\"gelu\""), ("\"hidden_size\": 64", "\"hidden_size\": 65")]
    {
        let text = String::from_utf8(config.clone()).unwrap();
        assert!(text.contains(from), "{from}");
        let error =
            Model::open(folder(text.replace(from, to).as_bytes(), &weights).path()).unwrap_err().to_string();
        assert!(!error.is_empty(), "{to}");
    }
}

/// A GGUF header: magic, version, tensors, metadata entries.
fn gguf(version: u32, tensors: u64, entries: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(version.to_le_bytes());
    bytes.extend(tensors.to_le_bytes());
    bytes.extend(entries.to_le_bytes());
    bytes.extend(rest);
    bytes
}

#[test]
fn hostile_gguf_headers_are_refused() {
    let long = u64::MAX.to_le_bytes();
    for (what, bytes) in [
        ("a version of the future", gguf(99, 0, 0, &[])),
        ("more tensors than bytes", gguf(3, u64::MAX, 0, &[])),
        ("more entries than bytes", gguf(3, 0, u64::MAX, &[])),
        ("a key longer than the file", gguf(3, 0, 1, &long)),
        ("no architecture", gguf(3, 0, 0, &[])),
        ("nothing", Vec::new()),
        ("something else", b"PK\x03\x04 this is a zip".to_vec()),
    ] {
        let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let error = Model::open(file.path()).unwrap_err().to_string();
        assert!(error.contains(".gguf"), "{what}: {error}");
    }
}
