//! The arithmetic that is inferred: on the terminal, in JSON, and as the reason of a failure.

use serde_json::Value;

use crate::run::Scratch;

#[test]
fn the_table_shows_declared_and_inferred_for_each_op() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "candle", "-filter", "r1/{numerics,rope}/**", "-numerics"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let line = done.stdout.lines().find(|line| line.starts_with("batched_matmul   f16 ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[2..], ["f32", "/", "f32", "/", "kept", "f32", "f32", "kept"]);
    assert!(done.stdout.contains("inferred as declared in "), "{}", done.stdout);
    // The errors of rope's own cases lie within their bounds.
    assert!(
        done.stdout.lines().any(|line| line.starts_with("rope ") && line.ends_with('%')),
        "{}",
        done.stdout
    );
    assert!(done.stdout.contains("error / bound"), "{}", done.stdout);
}

#[test]
fn json_holds_the_same() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "cpu-ref", "-filter", "r1/numerics/matmul-q8_0/**", "-json"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    let inferred = &json["numerics"]["inferred"];
    assert_eq!(inferred.as_array().unwrap().len(), 1);
    assert_eq!(inferred[0]["dtype"], "q8_0");
    assert_eq!(inferred[0]["activation"], "int8");
    assert_eq!(json["numerics"]["declared"]["q8_activation"], "int8");
}

#[test]
fn a_run_without_probes_says_that_nothing_was_measured() {
    let scratch = Scratch::new();
    let done = scratch.run(&["-backend", "candle", "-filter", "r1/argmax/**"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("declared, not measured"), "{}", done.stdout);
}

#[test]
fn every_precision_mutant_is_named() {
    for (behaviour, says) in [
        ("tf32-operands", "computes products with tf32 operands; f32 is declared"),
        ("bf16-operands", "computes products with bf16 operands; f32 is declared"),
        ("f16-operands", "computes products with f16 operands; f32 is declared"),
        ("f16-accumulation", "accumulates products in f16; f32 is declared"),
        ("flush-to-zero", "flushes denormals to zero in products; keeping them is declared"),
    ] {
        let scratch = Scratch::new();
        let name = format!("mock:{behaviour}");
        let done = scratch.run(&["-backend", &name, "-self-test", "-filter", "r1/numerics/**"]);
        assert_eq!(done.code, 1, "{behaviour}: {}", done.stdout);
        let details = done.cases().into_iter().map(|(.., line)| line["outcome"]["detail"].to_string());
        let named = details.filter(|detail| detail.contains(says)).count();
        assert!(named >= 20, "{behaviour}: {named} cases say {says:?}");
    }
}
