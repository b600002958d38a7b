//! The same seed gives the same record.

use serde_json::Value;

use super::run::{Done, Scratch};

fn without_times(done: &Done) -> Vec<Value> {
    let mut lines = done.results();
    for line in &mut lines {
        for field in ["ms", "started", "finished"] {
            if let Some(value) = line.get_mut(field) {
                *value = Value::Null;
            }
        }
    }
    // The nonce of the measurements is drawn after the start, whatever the seed.
    lines.retain(|line| line["line"] != "measured");
    // The footer's digest covers the times.
    if let Some(footer) = lines.last_mut() {
        footer["sha256"] = Value::Null;
    }
    lines
}

#[test]
fn equal_seeds_give_equal_records_and_others_do_not() {
    let run = |seed: &str| {
        let scratch = Scratch::new();
        let done = scratch.run(&["-backend", "candle", "-set", "smoke", "-seed", seed, "-quiet"]);
        assert_eq!(done.code, 0, "{}", done.stdout);
        without_times(&done)
    };
    let (one, two, other) = (run("7"), run("0x7"), run("8"));
    assert_eq!(one, two);
    assert_ne!(one, other);
}

#[test]
fn a_repro_line_gives_the_same_output() {
    let scratch = Scratch::new();
    let all = scratch.run(&["-backend", "candle", "-set", "smoke"]);
    let case = "r1/matmul/cancelling/out64-in100/f32";
    let output = |done: &Done| {
        done.cases().into_iter().find(|(id, ..)| id == case).unwrap().2["output_sha256"].clone()
    };
    let whole = output(&all);
    let scratch = Scratch::new();
    let alone = scratch.run(&["-backend", "candle", "-filter", case, "-seed", "0x5eed"]);
    assert_eq!(alone.code, 0, "{}", alone.stderr);
    assert!(!alone.has_row(), "a filtered run has no row");
    assert_eq!(output(&alone), whole);
}
