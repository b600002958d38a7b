//! Random damage: a broken file is refused or read, but nothing panics and no count is believed.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::formats::hf_folder;
use super::make::{gguf_of, safetensors_bytes, tiny};
use super::*;

/// What happens to a file: bytes replaced, then perhaps an end cut off.
type Damage = (Vec<(prop::sample::Index, Vec<u8>)>, Option<prop::sample::Index>);

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..9),
        any::<u64>().prop_map(|n| n.to_le_bytes().to_vec()),
        prop::sample::select(vec![0u64, 1, 1 << 20, 1 << 32, 1 << 62, u64::MAX])
            .prop_map(|n| n.to_le_bytes().to_vec()),
        prop::sample::select(b"0123456789,:[]{}\"e-".to_vec()).prop_map(|b| vec![b]),
    ];
    (
        prop::collection::vec((any::<prop::sample::Index>(), bytes), 0..4),
        prop::option::of(any::<prop::sample::Index>()),
    )
}

fn damaged(good: &[u8], (changes, cut): Damage, head: usize) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for (at, with) in changes {
        // Damage to the values of weights is harmless; the structure in front is what matters.
        let at = at.index(head);
        let end = (at + with.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&with[..end - at]);
    }
    if let Some(cut) = cut {
        bytes.truncate(cut.index(good.len() + 1));
    }
    bytes
}

/// Opens a model and reads all of it, if it opens: what is read is at most a small multiple of the file.
fn exercise(path: &std::path::Path, file_len: usize) {
    let Ok(model) = Model::open(path) else { return };
    let mut total = 0;
    for weight in Weight::all(model.config()) {
        total += model.tensor(weight).unwrap().bytes().len();
    }
    assert_eq!(total as u64, model.parameters() * 4);
    assert!(total <= 8 * file_len, "{total} bytes out of a file of {file_len}");
    assert_eq!(model.embed(0).unwrap().len(), model.config().hidden);
}

fn damage_both_formats(cases: u32) {
    let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let (config, tensors) = tiny(Family::Llama, true);
    let (gguf, marks) = gguf_of(&config, &tensors).write();
    let head = marks[marks.len() - tensors.len()];
    let check = |damage: Damage| {
        let bytes = damaged(&gguf, damage, head);
        std::fs::write(&path, &bytes).unwrap();
        exercise(&path, bytes.len());
        Ok(())
    };
    runner.run(&damage(), check).unwrap();

    let hf = hf_folder(&config, &tensors);
    let weights = safetensors_bytes(&tensors);
    let head = 8 + u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
    let check = |damage: Damage| {
        let bytes = damaged(&weights, damage, head);
        std::fs::write(hf.path().join("model.safetensors"), &bytes).unwrap();
        exercise(hf.path(), bytes.len());
        Ok(())
    };
    runner.run(&damage(), check).unwrap();
}

#[test]
fn damage_never_panics() {
    damage_both_formats(400);
}

/// Set in the child process of the next test.
const CHILD: &str = "MODELBENCH_TEST_SMALL_MEMORY";

#[test]
#[cfg(target_os = "linux")]
fn damage_needs_little_memory() {
    if std::env::var_os(CHILD).is_some() {
        return damage_both_formats(400);
    }
    // The address space of the child has room for the test itself (stacks, arenas), not for a believed count.
    let program = std::env::current_exe().unwrap();
    let (_, name) = concat!(module_path!(), "::damage_needs_little_memory").split_once("::").unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 393216 && exec \"$0\" \"$@\""])
        .arg(program)
        .args(["--exact", name, "--test-threads=1"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{output:?}");
}
