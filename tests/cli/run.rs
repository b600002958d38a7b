//! Starts the binary in a folder of its own, and the main job.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// A scratch folder with a key of its own.
pub struct Scratch(TempDir);

/// How a run ended.
pub struct Done {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub folder: PathBuf,
}

impl Scratch {
    pub fn new() -> Scratch {
        Scratch(TempDir::new().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs the binary with arguments, in the scratch folder.
    pub fn modelbench(&self, args: &[&str]) -> Done {
        self.modelbench_with(&[], args)
    }

    /// The same with variables.
    pub fn modelbench_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Done {
        let output = Command::new(env!("CARGO_BIN_EXE_modelbench"))
            .args(args)
            .current_dir(self.path())
            .env("XDG_CONFIG_HOME", self.path().join("config"))
            .env_remove("NO_COLOR")
            // `cargo test` sets it, and a certificate refuses it.
            .env_remove("LD_LIBRARY_PATH")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        Done {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            folder: self.path().join("out"),
        }
    }

    /// A conformance run into the folder `out`.
    pub fn run(&self, args: &[&str]) -> Done {
        let mut all = vec!["-out", "out"];
        all.extend(args);
        self.modelbench(&all)
    }
}

impl Done {
    pub fn results(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.folder.join("results.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The case lines, as (id, outcome, whole line).
    pub fn cases(&self) -> Vec<(String, String, Value)> {
        let text = |v: &Value| v.as_str().unwrap().to_owned();
        self.results()
            .into_iter()
            .filter(|line| line["line"] == "case")
            .map(|line| (text(&line["id"]), text(&line["outcome"]["kind"]), line))
            .collect()
    }

    pub fn has_row(&self) -> bool {
        self.folder.join("row.dsse.json").exists() || self.folder.join("row.sigstore.json").exists()
    }
}

#[test]
fn candle_earns_approx_and_leaves_a_verifiable_row() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "candle", "-require-non-reference"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.lines().any(|line| line.starts_with("Approx ")), "{}", done.stdout);
    assert!(!done.stdout.contains('\x1b'), "colour without a terminal");
    for file in
        ["row.dsse.json", "row.sigstore.json", "results.jsonl", "public-key.pem", "test-result.dsse.json"]
    {
        assert!(done.folder.join(file).exists(), "{file}");
    }
    let verified = scratch.modelbench(&["verify", "out"]);
    assert_eq!(verified.code, 0, "{}", verified.stderr);
    assert!(
        verified.stdout.contains("PARTIAL    self-tested, mode ci: the run is worth Approx"),
        "{}",
        verified.stdout
    );
    // On whole models a correct engine stays below half of what it is allowed.
    let worst = worst_on_models(&done);
    assert!(worst < 0.5, "{worst} of the ensemble's limit");
}

/// Largest error over limit of the cases of rung 2 that run whole models.
fn worst_on_models(done: &Done) -> f64 {
    let cases = done.cases();
    let worst = cases.iter().filter(|(id, ..)| id.starts_with("r2/forward/"));
    let worst = worst.filter_map(|(_, _, line)| line["quality"]["worst"].as_f64());
    let worst: Vec<f64> = worst.collect();
    assert!(worst.len() >= 3, "{} model cases", worst.len());
    worst.into_iter().fold(0.0, f64::max)
}

#[test]
fn the_limit_of_whole_models_separates_mutants_from_engines() {
    for behaviour in ["gelu-for-silu", "bf16-operands", "interleaved-rope"] {
        let scratch = Scratch::new();
        let name = format!("mock:{behaviour}");
        let done = scratch.run(&["-backend", &name, "-self-test", "-filter", "r2/forward/**"]);
        assert_eq!(done.code, 1, "{behaviour}: {}", done.stdout);
        let worst = worst_on_models(&done);
        assert!(worst > 2.0, "{behaviour}: {worst} of the ensemble's limit");
    }
}

#[test]
fn the_reference_is_reference_but_never_passes_the_gate() {
    let scratch = Scratch::new();
    let done = scratch.run(&["--backend=cpu-ref"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.lines().any(|line| line.starts_with("Reference ")), "{}", done.stdout);

    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "cpu-ref", "-set", "smoke", "-require-non-reference"]);
    assert_eq!(done.code, 3, "{}", done.stdout);
    assert!(done.stdout.lines().any(|line| line.starts_with("not-yet")), "{}", done.stdout);
}

#[test]
fn json_is_one_object_and_smoke_is_partial() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "candle", "-set", "smoke", "-json"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let object: Value = serde_json::from_str(done.stdout.trim()).unwrap();
    assert_eq!(object["label"], "PARTIAL");
    assert_eq!(object["exit"], 0);
    assert_eq!(
        scratch.run(&["-backend", "candle", "-set", "smoke"]).code,
        2,
        "a run folder is never overwritten"
    );
}
