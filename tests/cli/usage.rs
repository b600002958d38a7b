//! Wrong usage: its exit code, what it says, and that it leaves no row.

use super::run::Scratch;

fn refused(args: &[&str], code: i32, says: &[&str]) {
    let scratch = Scratch::new();
    let done = scratch.run(args);
    assert_eq!(done.code, code, "{args:?}: {}{}", done.stdout, done.stderr);
    for text in says {
        assert!(done.stderr.contains(text), "{args:?} should say {text:?}: {}", done.stderr);
    }
    assert!(!done.has_row(), "{args:?} left a row");
}

#[test]
fn an_unknown_backend_names_the_known_ones() {
    refused(&["-backend", "cdua"], 2, &["cdua", "candle", "cpu-ref"]);
    refused(&["-backend", "candl"], 2, &["did you mean candle?"]);
    refused(&["-backend", "cpu"], 2, &["did you mean cpu-ref?"]);
    refused(&[], 2, &["no backend named", "candle"]);
}

#[test]
fn self_test_backends_need_their_option() {
    refused(&["-backend", "mock:honest"], 2, &["no backend"]);
    let listed = Scratch::new().modelbench(&["list", "backends"]);
    assert_eq!(listed.code, 0);
    assert!(!listed.stdout.contains("mock"), "{}", listed.stdout);
}

#[test]
fn a_device_is_chosen_only_where_there_is_a_choice() {
    refused(&["-backend", "candle", "-device", "0"], 2, &["candle", "one device"]);
    refused(&["-backend", "cpu-ref", "-vulkan-validation"], 2, &["cpu-ref", "one device"]);
    // An empty name is a mistake of whoever wrote the command, not a wish for any device.
    refused(&["-backend", "vulkan", "-device", ""], 2, &["-device"]);
    let scratch = Scratch::new();
    assert_eq!(scratch.modelbench(&["fingerprint", "-backend", "candle", "-device", "0"]).code, 2);
}

#[test]
fn a_machine_without_vulkan_is_told_what_to_install() {
    let nothing = [("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")];
    let scratch = Scratch::new();
    let done = scratch.modelbench_with(&nothing, &["-out", "out", "-backend", "vulkan"]);
    assert_eq!(done.code, 6, "{}{}", done.stdout, done.stderr);
    // Without the loader it is the loader that is missing.
    assert!(done.stderr.contains("vulkan: no ") && done.stderr.contains("(install "), "{}", done.stderr);
    assert!(!done.has_row());
    let doctor = scratch.modelbench_with(&nothing, &["doctor"]);
    assert_eq!(doctor.code, 6, "{}", doctor.stdout);
    assert!(doctor.stdout.contains("vulkan: no "), "{}", doctor.stdout);
}

#[test]
fn an_empty_selection_is_not_a_pass() {
    refused(&["-backend", "candle", "-filter", "no/such/*"], 4, &["no/such/*"]);
    let scratch = Scratch::new();
    assert_eq!(scratch.modelbench(&["list", "cases", "-filter", "no/such/*"]).code, 4);
}

#[test]
fn unknown_sets_models_and_flags_are_usage_errors() {
    refused(&["-backend", "candle", "-set", "nope"], 2, &["nope", "full", "smoke"]);
    refused(&["-backend", "candle", "-model", "absent.gguf"], 2, &["absent.gguf"]);
    refused(&["-backend", "candle", "-colour"], 2, &["--colour"]);
    refused(&["-backend", "candle", "-seed", "x"], 2, &["whole number"]);
}

#[test]
fn a_bad_suite_names_file_and_line() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("suites/r1");
    std::fs::create_dir_all(&dir).unwrap();
    for (text, says) in [
        ("schema = 1\nwhy = \"x\"\ncolour = \"red\"\n", "r1/x.toml:3"),
        ("schema = 2\nwhy = \"x\"\n", "schema = 2"),
        (
            "schema = 1\nwhy = \"x\"\n[[group]]\nname = \"g\"\ncheck = \"nope\"\nwhy = \"x\"\n\
             tolerance = { kind = \"exact\", why = \"x\" }\n",
            "nope",
        ),
        (
            "schema = 1\nwhy = \"x\"\n[[group]]\nname = \"g\"\ncheck = \"argmax\"\nwhy = \"x\"\n\
             tolerance = { kind = \"exact\" }\n",
            "why",
        ),
        (
            "schema = 1\nwhy = \"x\"\n[[group]]\nname = \"g\"\ncheck = \"argmax\"\nwhy = \"x\"\naxes = { m = [1] }\n\
             tolerance = { kind = \"exact\", why = \"x\" }\n",
            "no axis \"m\"",
        ),
    ] {
        std::fs::write(dir.join("x.toml"), text).unwrap();
        let done = scratch.run(&["-backend", "candle", "-suites", "suites"]);
        assert_eq!(done.code, 2, "{text}: {}", done.stderr);
        assert!(done.stderr.contains(says) && done.stderr.contains("x.toml:"), "{text}: {}", done.stderr);
        assert!(!done.has_row());
    }
}

/// A tree of one argmax case and the set `full`, built.
fn small_tree(scratch: &Scratch) -> std::path::PathBuf {
    let to = scratch.path().join("suites");
    for folder in ["r1", "sets"] {
        std::fs::create_dir_all(to.join(folder)).unwrap();
    }
    let suite = "schema = 1\nwhy = \"x\"\n[[group]]\nname = \"g\"\ncheck = \"argmax\"\nwhy = \"x\"\n\
                 axes = { pattern = [\"last\"], n = [5] }\ntolerance = { kind = \"exact\", why = \"x\" }\n";
    std::fs::write(to.join("r1/argmax.toml"), suite).unwrap();
    let set = "schema = 1\nwhy = \"x\"\ninclude = [\"**\"]\ncases = 0\ndigest = \"\"\n";
    std::fs::write(to.join("sets/full.toml"), set).unwrap();
    let done = scratch.modelbench(&["build-suites", "suites"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.stdout.contains("set full: 1 cases"), "{}", done.stdout);
    to
}

fn replace(file: &std::path::Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

#[test]
fn a_set_that_lost_a_case_is_refused() {
    let scratch = Scratch::new();
    let tree = small_tree(&scratch);
    replace(&tree.join("sets/full.toml"), "cases = 1", "cases = 2");
    let done = scratch.run(&["-backend", "candle", "-suites", "suites"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("pins 2") && done.stderr.contains("full"), "{}", done.stderr);
}

#[test]
fn cases_of_unknown_power_are_refused() {
    let scratch = Scratch::new();
    let tree = small_tree(&scratch);
    let file = tree.join("r1/argmax.toml");
    // Another case than the one that was tried.
    replace(&file, "n = [5]", "n = [6]");
    let done = scratch.run(&["-backend", "candle", "-suites", "suites"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("build-suites"), "{}", done.stderr);
    // A case that accepts whatever comes: sums of zeros are zeros wherever they end up.
    replace(&file, "n = [6]", "n = [2]");
    replace(&file, "check = \"argmax\"", "check = \"add_bias\"");
    replace(&file, "pattern = [\"last\"], n", "rows = [0], n");
    let done = scratch.modelbench(&["build-suites", "suites"]);
    assert_eq!(done.code, 2, "{}", done.stderr);
    assert!(done.stderr.contains("accepts every wrong answer"), "{}", done.stderr);
}

#[test]
fn another_suite_tree_shows_and_costs_the_label() {
    let scratch = Scratch::new();
    small_tree(&scratch);
    let done = scratch.run(&["-backend", "candle", "-suites", "suites"]);
    assert_eq!(done.code, 1, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("NOT the kit's"), "{}", done.stdout);
    assert!(done.stdout.lines().any(|line| line.starts_with("PARTIAL")), "{}", done.stdout);
}
