//! The gate against adversaries that pass every case: each ends with exit 3, by the witness that saw it.

use super::run::{Done, Scratch};

fn smoke(backend: &str, more: &[&str]) -> Done {
    let scratch = Scratch::new();
    let args = ["-self-test", "-backend", backend, "-set", "smoke", "-require-non-reference", "-json"];
    scratch.run(&[&args[..], more].concat())
}

/// The kinds of the witnesses with a verdict.
fn witnesses(done: &Done, verdict: &str) -> Vec<String> {
    let summary: serde_json::Value = serde_json::from_str(done.stdout.trim()).unwrap();
    let all = summary["gate"]["witnesses"].as_array().unwrap().clone();
    let found = all.into_iter().filter(|witness| witness["verdict"] == verdict);
    found.map(|witness| witness["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn adversaries_are_seen_by_one_witness_each() {
    // `modelbench selftest` meets all of them; these three show that a run ends as it must.
    for (behaviour, witness) in [
        ("noise-below-bound", "order"),
        ("claims-gpu-in-child", "cpu-time"),
        ("honest-at-default-seed", "challenge"),
    ] {
        let done = smoke(&format!("mock:{behaviour}"), &[]);
        assert_eq!(done.code, 3, "{behaviour}: {}{}", done.stdout, done.stderr);
        let against = witnesses(&done, "contradiction");
        assert!(against.iter().any(|kind| kind == witness), "{behaviour}: {against:?}");
    }
}

#[test]
fn an_honest_backend_on_a_cpu_passes_by_its_order() {
    let done = smoke("candle", &["-require-hardware"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert_eq!(witnesses(&done, "positive"), ["order"]);
    assert_eq!(witnesses(&done, "not-measured"), [""; 0]);
    assert_eq!(witnesses(&done, "not-applicable"), ["cpu-time", "counters"]);
}

#[test]
fn who_hides_the_order_has_no_witness() {
    for (behaviour, why) in [
        ("noise-on-everything", "not a sum of these products"),
        ("recognises-probes", "the order that probes show gives the bits of"),
    ] {
        let done = smoke(&format!("mock:{behaviour}"), &[]);
        assert_eq!(done.code, 3, "{behaviour}: {}", done.stdout);
        assert_eq!(witnesses(&done, "contradiction"), [""; 0]);
        assert_eq!(witnesses(&done, "not-measured"), ["order"]);
        assert!(done.stdout.contains(why), "{behaviour}: {}", done.stdout);
    }
}
