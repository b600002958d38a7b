//! `modelbench fingerprint`: the orders of backends whose order is known.

use serde_json::Value;

use super::run::{Done, Scratch};

fn fingerprint(args: &[&str]) -> Done {
    Scratch::new().modelbench(&[&["fingerprint"], args].concat())
}

fn object(done: &Done) -> Value {
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    serde_json::from_str(done.stdout.trim()).unwrap()
}

/// Every product of a backend has this order at the largest number of terms, and differs from cpu-ref's where it
/// should.
fn expect(behaviour: &str, many: &str, differs: &[u64]) {
    let name = format!("mock:{behaviour}");
    let found = object(&fingerprint(&["-backend", &name, "-self-test", "-json"]));
    assert_eq!(found["measured"].as_array().unwrap().len(), 29, "{found}");
    assert!(found["measured"].as_array().unwrap().iter().all(|one| one["tree"].is_object()), "{found}");
    let summary = found["summary"].as_array().unwrap();
    assert_eq!(summary.len(), 4, "{behaviour}");
    for product in summary {
        assert_eq!(product["order"], many, "{behaviour}: {}", product["product"]);
        if product["product"] != "attention-sum" {
            let probed: Vec<u64> = serde_json::from_value(product["probed"].clone()).unwrap();
            let expected: Vec<u64> = differs.iter().copied().filter(|k| probed.contains(k)).collect();
            assert_eq!(product["differsAt"], serde_json::json!(expected), "{behaviour}");
        }
    }
}

const EVERYWHERE: [u64; 8] = [8, 16, 17, 32, 64, 100, 200, 256];

#[test]
fn the_orders_of_eight_synthetic_backends_are_found() {
    for (behaviour, order, differs) in [
        ("sums-sequential", "sequential", &EVERYWHERE[..]),
        ("sums-reverse", "reverse", &EVERYWHERE),
        // Eight terms in halves of halves are cpu-ref's eight lanes with one term each.
        ("sums-pairwise", "pairwise", &EVERYWHERE[1..]),
        // cpu-ref's order but for the tail.
        ("sums-eight-lanes", "8 lanes strided, then pairwise", &[17, 100]),
        ("sums-sixteen-lanes", "16 lanes strided, then by halves", &EVERYWHERE),
        ("sums-fused-4", "fused 4-way with the accumulator as one more term", &EVERYWHERE),
        ("sums-fused-8", "fused 8-way, then sequential", &EVERYWHERE),
    ] {
        expect(behaviour, order, differs);
    }
    // One row is probed up to 64 terms only: two blocks, which are two halves as well.
    let found = object(&fingerprint(&["-backend", "mock:sums-blocks-of-32", "-self-test", "-json"]));
    let orders: Vec<&str> = found["summary"]
        .as_array()
        .unwrap()
        .iter()
        .map(|product| product["order"].as_str().unwrap())
        .collect();
    let blocks = "blocked by 32, each sequential, blocks in order";
    assert_eq!(orders, [blocks, "pairwise down to 32 terms, each sequential", blocks, blocks]);
}

#[test]
fn cpu_ref_is_cpu_ref_everywhere() {
    let done = fingerprint(&["-backend", "cpu-ref"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let lines: Vec<&str> = done.stdout.lines().filter(|line| line.starts_with("  k=")).collect();
    assert_eq!(lines.len(), 29, "{}", done.stdout);
    assert!(lines.iter().all(|line| line.contains(" cpu-ref's ")), "{}", done.stdout);
    assert!(done.stdout.contains("8 lanes strided, then pairwise, tail in order"), "{}", done.stdout);
    assert!(done.stdout.contains("every order found is cpu-ref's"), "{}", done.stdout);
    // Another seed makes other probes of the same order.
    let other = fingerprint(&["-backend", "cpu-ref", "-seed", "7"]);
    assert_eq!(other.stdout, done.stdout);
}

#[test]
fn candles_products_have_an_order_of_their_own() {
    let found = object(&fingerprint(&["-backend", "candle", "-json"]));
    let summary = found["summary"].as_array().unwrap();
    let matmul = summary.iter().find(|product| product["product"] == "matmul").unwrap();
    assert!(!matmul["differsAt"].as_array().unwrap().is_empty(), "{matmul}");
    assert!(found["meaning"].as_str().unwrap().starts_with("not cpu-ref's order: matmul"), "{found}");
}

#[test]
fn what_is_missing_is_named_and_counts_for_nobody() {
    let done = fingerprint(&["-backend", "mock:delegates-matmul", "-self-test"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("not measured: matmul: unimplemented"), "{}", done.stdout);
    assert!(done.stdout.contains("not measured, which counts for nobody"), "{}", done.stdout);
    let done = fingerprint(&["-backend", "mock:delegates-everything", "-self-test"]);
    assert_eq!(done.code, 4, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("no order was found"), "{}", done.stdout);
}

#[test]
fn unknown_backends_are_refused_as_by_a_run() {
    for (args, says) in [
        (&["-backend", "candl"][..], "did you mean candle?"),
        (&["-backend", "mock:sums-reverse"], "no backend"),
        (&["-backend", "mock:sums", "-self-test"], "no backend"),
        (&[], "no backend named"),
        (&["-backend", "candle", "-timeout", "0"], "0"),
    ] {
        let done = fingerprint(args);
        assert_eq!(done.code, 2, "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(says), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn an_order_of_the_probes_alone_says_nothing() {
    let done = fingerprint(&["-backend", "mock:recognises-probes", "-self-test"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(
        done.stdout.contains("meaning    the order of the probes is not that of ordinary products"),
        "{}",
        done.stdout
    );
    let honest = fingerprint(&["-backend", "mock:sums-fused-4", "-self-test"]);
    assert!(honest.stdout.contains("; foretells 192 of 192 ordinary results"), "{}", honest.stdout);
}
