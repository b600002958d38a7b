//! Rows from the outside: keys, verification, tampering.

use std::fs;

use super::run::Scratch;

#[test]
fn a_key_of_ones_own_signs_and_is_never_overwritten() {
    let scratch = Scratch::new();
    let made = scratch.modelbench(&["keygen", "-out", "me.pem"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert_ne!(scratch.modelbench(&["keygen", "-out", "me.pem"]).code, 0);
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(scratch.path().join("me.pem")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let done = scratch.run(&["-backend", "candle", "-set", "smoke", "-key", "me.pem"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert_eq!(scratch.modelbench(&["verify", "out", "-pub", "me.pub.pem"]).code, 0);
    scratch.modelbench(&["keygen", "-out", "other.pem"]);
    assert_eq!(scratch.modelbench(&["verify", "out", "-pub", "other.pub.pem"]).code, 7);
}

#[test]
fn an_edited_run_is_refused() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "mock:nan", "-self-test", "-set", "smoke"]);
    assert_eq!(done.code, 1);
    assert_eq!(scratch.modelbench(&["verify", "out"]).code, 0);
    for (file, from, to) in [
        ("results.jsonl", "\"kind\":\"mismatch\"", "\"kind\":\"pass\""),
        ("results.jsonl", "\"verdict\":\"regression\"", "\"verdict\":\"ok\""),
        ("results.jsonl", "\"seed\":\"0x5eed\"", "\"seed\":\"0x5eee\""),
        ("row.dsse.json", "\"sig\":\"ME", "\"sig\":\"MF"),
        ("row.sigstore.json", "application/vnd.in-toto+json", "application/vnd.in-toto+jsox"),
        ("public-key.pem", "MFkw", "MFkx"),
    ] {
        let path = done.folder.join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} holds no {from}");
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let verified = scratch.modelbench(&["verify", "out"]);
        assert_eq!(verified.code, 7, "{file}: {from} -> {to}: {}", verified.stdout);
        fs::write(&path, text).unwrap();
    }
    assert_eq!(scratch.modelbench(&["verify", "out"]).code, 0);
    assert_eq!(scratch.modelbench(&["verify", "absent"]).code, 2);
}

#[test]
fn a_row_is_about_the_very_files_that_were_tested() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "candle", "-set", "smoke"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    let plain = scratch.modelbench(&["verify", "out"]);
    assert_eq!(plain.code, 0, "{}", plain.stderr);
    assert!(plain.stdout.contains("subjects   not compared with any file"), "{}", plain.stdout);
    // The backend is bundled, so the program itself is what was tested.
    let program = env!("CARGO_BIN_EXE_modelbench");
    let same = scratch.modelbench(&["verify", "out", "-subject", program]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(same.stdout.contains("is modelbench, sha256"), "{}", same.stdout);
    fs::write(scratch.path().join("other.so"), "another build").unwrap();
    let other = scratch.modelbench(&["verify", "out", "-subject", program, "-subject", "other.so"]);
    assert_eq!(other.code, 7);
    assert!(
        other.stderr.contains("other.so has sha256") && other.stderr.contains("modelbench ("),
        "{}",
        other.stderr
    );
    assert_eq!(scratch.modelbench(&["verify", "out", "-subject", "absent.so"]).code, 2);
    fs::write(done.folder.join("notes.txt"), "mine").unwrap();
    let noted = scratch.modelbench(&["verify", "out"]);
    assert_eq!(noted.code, 0, "{}", noted.stderr);
    assert!(noted.stdout.contains("unnamed    notes.txt"), "{}", noted.stdout);
    fs::remove_file(done.folder.join("public-key.pem")).unwrap();
    let half = scratch.modelbench(&["verify", "out"]);
    assert_eq!(half.code, 7);
    assert!(half.stderr.contains("public-key.pem is not there"), "{}", half.stderr);
}

#[test]
fn explain_and_doctor_answer() {
    let scratch = Scratch::new();
    let done = scratch.modelbench(&["explain", "r1/matmul/bound/out33-in65/f32"]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    for text in
        ["why", "bound[0]", "K = 65", "sum|w||x|", "sha256", "rejects", "again", "suites/r1/matmul.toml:"]
    {
        assert!(done.stdout.contains(text), "{text}: {}", done.stdout);
    }
    let done = scratch.modelbench(&["explain", "r1/matmul/bound/out33-in66/f32"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("r1/matmul/bound/out33-in65/f32"), "{}", done.stderr);
    let done = scratch.modelbench(&["doctor"]);
    // A machine without a Vulkan device is told what to install, and by the exit code.
    let vulkan = done.stdout.contains("ok         backend vulkan");
    assert_eq!(done.code, if vulkan { 0 } else { 6 }, "{}", done.stderr);
    assert!(vulkan || done.stdout.contains("(install "), "{}", done.stdout);
    for text in ["candle", "missing", "drm", "nvml", "CPU time", "interfere"] {
        assert!(done.stdout.contains(text), "{text}: {}", done.stdout);
    }
}
