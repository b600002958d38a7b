//! `modelbench selftest`: the mutation score and its exit codes.

use serde_json::Value;

use super::run::{Done, Scratch};

fn selftest(scratch: &Scratch, args: &[&str]) -> Done {
    scratch.modelbench(&[&["selftest"], args].concat())
}

fn object(done: &Done) -> Value {
    serde_json::from_str(done.stdout.trim()).unwrap()
}

#[test]
fn mutants_are_killed_twice_and_the_score_says_so() {
    let scratch = Scratch::new();
    let done = selftest(&scratch, &["-only", "{nan,crash-abort}"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", done.stdout);
    assert!(lines[0].starts_with("crash-abort") && lines[0].contains("SIGABRT"), "{}", lines[0]);
    assert!(lines[1].starts_with("nan ") && lines[1].contains("killed"), "{}", lines[1]);
    assert_eq!(lines[1].matches("(mismatch)").count(), 2, "{}", lines[1]);
    assert_eq!(lines[2], "mutation score 100.0 % (2 of 2 killed, 0 of 0 allowed survive)");
}

#[test]
fn what_is_allowed_meets_the_cases_of_smoke_and_survives() {
    let done = selftest(&Scratch::new(), &["-only", "minus-zero-dropped", "-json"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    let object = object(&done);
    assert_eq!((&object["survived"], &object["allowed"]), (&1.into(), &1.into()));
    assert_eq!(object["score_percent"], Value::Null, "no mutant was tried");
    let trial = &object["behaviours"][0];
    assert_eq!(trial["killers"], Value::Array(Vec::new()));
    let smoke = Scratch::new().modelbench(&["list", "cases", "-set", "smoke"]).stdout.lines().count();
    assert_eq!(trial["cases"], smoke);
}

#[test]
fn work_that_is_handed_to_the_reference_is_seen_by_the_gate_alone() {
    let done = selftest(&Scratch::new(), &["-only", "returns-reference-bits"]);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("gate/order") && done.stdout.contains("gate/bits"), "{}", done.stdout);
}

#[test]
fn the_number_of_jobs_changes_nothing() {
    let scratch = Scratch::new();
    let [one, three] =
        ["1", "3"].map(|jobs| selftest(&scratch, &["-only", "zeros-*", "-json", "-jobs", jobs]));
    assert_eq!((one.code, three.code), (0, 0), "{}{}", one.stdout, three.stdout);
    assert_eq!(object(&one), object(&three));
}

/// A list of killers with one entry.
fn list(scratch: &Scratch, entry: &str) {
    let text = format!("schema = 1\nseed = \"0x5eed\"\nallowed = []\n\n[killers]\n{entry}\n");
    std::fs::write(scratch.path().join("killers.toml"), text).unwrap();
}

#[test]
fn another_killer_than_the_file_names_is_a_failure_with_both_values() {
    let scratch = Scratch::new();
    let found = object(&selftest(&scratch, &["-only", "nan", "-json"]));
    let by = |i: usize| found["behaviours"][0]["killers"][i]["by"].as_str().unwrap().to_owned();
    let (first, second) = (by(0), by(1));
    let compare = |scratch: &Scratch| selftest(scratch, &["-only", "nan", "-killers", "killers.toml"]);

    list(&scratch, &format!("nan = [{first:?}, {second:?}]\nhang = [\"not tried here\"]"));
    let done = compare(&scratch);
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);

    list(&scratch, "nan = [\"r1/matmul/wrong\", \"r1/matmul/killer\"]");
    let done = compare(&scratch);
    assert_eq!(done.code, 1, "{}{}", done.stdout, done.stderr);
    for text in ["r1/matmul/wrong and r1/matmul/killer", &format!("{first} and {second}"), "exit       1"] {
        assert!(done.stdout.contains(text), "{text}: {}", done.stdout);
    }

    list(&scratch, "");
    let done = compare(&scratch);
    assert_eq!(done.code, 1, "a behaviour without an entry: {}", done.stdout);
    assert!(done.stdout.contains("nan: the file says nothing"), "{}", done.stdout);
}

#[test]
fn usage_errors() {
    let scratch = Scratch::new();
    for (args, says) in [
        (&["-only", "nobody-*"][..], "no behaviour of the zoo matches \"nobody-*\""),
        (&["-only", "[", "-json"], "["),
        (&["-killers", "absent.toml"], "absent.toml"),
        (&["-only", "nan", "-write", "part.toml"], "--write"),
        (&["-jobs", "0"], "0"),
    ] {
        let done = selftest(&scratch, args);
        assert_eq!(done.code, 2, "{args:?}: {}{}", done.stdout, done.stderr);
        assert!(done.stderr.contains(says), "{args:?}: {}", done.stderr);
    }
    std::fs::write(scratch.path().join("bad.toml"), "schema = 1\ncolour = \"red\"\n").unwrap();
    let done = selftest(&scratch, &["-killers", "bad.toml"]);
    assert_eq!(done.code, 2);
    assert!(done.stderr.contains("bad.toml") && done.stderr.contains("-write"), "{}", done.stderr);
}
