//! Every misbehaviour of the self-test backends: its outcome, and that the other cases keep theirs.

use super::run::{Done, Scratch};

fn smoke(behaviour: &str, more: &[&str]) -> (Scratch, Done) {
    let scratch = Scratch::new();
    let name = format!("mock:{behaviour}");
    let mut args =
        vec!["-backend", &name, "-self-test", "-set", "smoke", "-timeout", "2", "-memory-limit", "700"];
    args.extend(more);
    let done = scratch.run(&args);
    assert!([0, 1, 3].contains(&done.code), "{behaviour}: {}{}", done.stdout, done.stderr);
    (scratch, done)
}

/// The behaviour must show as `outcome` in the op cases of `subject`, and every one of `healthy` must still pass.
fn shows(behaviour: &str, subject: &str, outcome: &str, says: &str, healthy: &str) {
    let ops = format!("r1/{{{subject},{healthy}}}/**");
    shows_among(&ops, behaviour, subject, outcome, says, healthy);
}

/// The same among the cases that a glob matches.
fn shows_among(filter: &str, behaviour: &str, subject: &str, outcome: &str, says: &str, healthy: &str) {
    let (_scratch, done) = smoke(behaviour, &["-filter", filter]);
    assert_eq!(done.code, 1, "{behaviour}: {}", done.stdout);
    let cases = done.cases();
    assert_eq!(cases.len(), done.results().len() - 2, "a header, a line for each case, a footer");
    let hit: Vec<_> =
        cases.iter().filter(|(_, kind, line)| line["subject"] == subject && kind == outcome).collect();
    assert!(!hit.is_empty(), "{behaviour}: no {outcome} in {subject}: {}", done.stdout);
    let detail = hit[0].2["outcome"].to_string();
    assert!(detail.contains(says), "{behaviour} should say {says:?}: {detail}");
    let others: Vec<_> = cases.iter().filter(|(_, _, line)| line["subject"] == healthy).collect();
    assert!(!others.is_empty(), "{behaviour}: no case of {healthy} is among {filter}");
    for (id, kind, line) in others {
        assert_eq!(kind, "pass", "{behaviour} took {id} with it: {line}");
    }
}

#[test]
fn an_honest_mock_passes() {
    let (_scratch, done) = smoke("honest", &["-require-non-reference"]);
    assert_eq!(done.code, 0, "{}", done.stdout);
}

#[test]
fn crashes_are_charged_to_their_case() {
    shows_among("**", "crash-segv", "matmul", "crash", "SIGSEGV", "swiglu");
    shows("crash-abort", "rope", "crash", "SIGABRT", "swiglu");
    shows("exit-zero", "swiglu", "crash", "exited 0", "rope");
    shows_among("r1/{special,swiglu}/**", "balloon", "add_bias", "crash", "memory limit", "swiglu");
}

#[test]
fn a_hang_ends_at_its_deadline() {
    // Each of these cases lasts until its deadline.
    let few = "r1/{rms_norm/*/rows2-n1*,swiglu}/**";
    shows_among(few, "hang", "rms_norm", "timeout", "rms_norm", "swiglu");
    shows_among(few, "hang-sigterm", "rms_norm", "timeout", "rms_norm", "swiglu");
}

#[test]
fn broken_protocol_is_an_error() {
    shows("garbage-frame", "argmax", "error", "protocol", "swiglu");
    shows("short-read", "rms_norm", "error", "short read", "swiglu");
    shows("panic", "rope", "error", "panicked", "swiglu");
}

#[test]
fn wrong_answers_are_mismatches() {
    shows("wrong-shape", "swiglu", "mismatch", "shape", "rope");
    shows("nan", "matmul", "mismatch", "NaN", "swiglu");
    shows("off-by-one-element", "matmul", "mismatch", "elements are wrong", "swiglu");
    shows("input-modified", "matmul", "mismatch", "changed", "swiglu");
    shows("stale-output", "rope", "mismatch", "", "swiglu");
}

#[test]
fn lies_about_caps_are_named() {
    for (behaviour, cap) in [
        ("lies-about-upload-dtype", "UploadDtype"),
        ("lies-about-device-memory", "DeviceMemory"),
        ("lies-about-collective", "Collective"),
    ] {
        let (_scratch, done) = smoke(behaviour, &[]);
        assert_eq!(done.code, 1, "{behaviour}: {}", done.stdout);
        let gap = done.stdout.lines().find(|line| line.starts_with("gap") && line.contains(cap));
        assert!(gap.is_some_and(|gap| gap.contains("not honoured")), "{behaviour}: {}", done.stdout);
    }
}

#[test]
fn an_identity_that_changes_is_caught() {
    let (_scratch, done) = smoke("changing-identity", &[]);
    assert_eq!(done.code, 1, "{}", done.stdout);
    assert!(done.cases().iter().any(|(_, _, line)| line["outcome"].to_string().contains("identity")));
}

#[test]
fn output_of_a_worker_never_reaches_the_protocol() {
    let (_scratch, done) = smoke("noisy", &["-require-non-reference"]);
    assert_eq!(done.code, 0, "{}", done.stdout);
}

#[test]
fn delegation_and_borrowed_bits_fail_the_gate() {
    for (behaviour, witness) in [
        ("returns-reference-bits", "indistinguishable"),
        ("delegates-everything", "hot ops ran on cpu-ref"),
        ("delegates-matmul", "matmul"),
    ] {
        let (_scratch, done) = smoke(behaviour, &["-require-non-reference"]);
        assert_eq!(done.code, 3, "{behaviour}: {}", done.stdout);
        assert!(done.stdout.contains(witness), "{behaviour}: {}", done.stdout);
        assert!(done.stdout.lines().any(|line| line.starts_with("not-yet")), "{behaviour}: {}", done.stdout);
    }
    // Without the gate, borrowed bits still cost the label.
    let (_scratch, done) = smoke("returns-reference-bits", &["-require", "Approx"]);
    assert_eq!(done.code, 1, "{}", done.stdout);
}
