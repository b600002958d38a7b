//! Signed evidence from the outside: challenges, waivers, countersignatures, and the comparison of runs.

use std::fs;

use serde_json::Value;

use super::run::Scratch;

/// A scratch folder with two key pairs, `me` and `other`.
fn with_keys() -> Scratch {
    let scratch = Scratch::new();
    for name in ["me.pem", "other.pem"] {
        assert_eq!(scratch.modelbench(&["keygen", "-out", name]).code, 0);
    }
    scratch
}

#[test]
fn a_challenge_is_made_once_and_shown() {
    let scratch = with_keys();
    fs::write(scratch.path().join("libx.so"), "code").unwrap();
    let new = |extra: &[&str]| {
        let mut args = vec!["challenge", "new", "-subject", "libx.so", "-key", "me.pem"];
        args.extend(extra);
        scratch.modelbench(&args)
    };
    let made = new(&["-ttl", "30m"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    // What sha256sum says of these four bytes.
    let digest = "5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b";
    assert!(made.stdout.contains(digest), "{}", made.stdout);
    let again = new(&[]);
    assert_eq!(again.code, 2);
    assert!(again.stderr.contains("never overwritten"), "{}", again.stderr);
    for ttl in ["31d", "0m", "soon"] {
        assert_eq!(new(&["-out", "x.json", "-ttl", ttl]).code, 2, "{ttl}");
    }
    assert_eq!(new(&["-out", "y.json", "-subject", "absent"]).code, 2);

    let file = "challenge.dsse.json";
    let shown = scratch.modelbench(&["challenge", "show", file, "-pub", "me.pub.pem", "-json"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!((&shown["state"], &shown["signatureChecked"]), (&"open".into(), &true.into()));
    assert_eq!(shown["challenge"]["subject"]["name"], "libx.so");
    let unchecked = scratch.modelbench(&["challenge", "show", file]);
    assert_eq!(unchecked.code, 0, "{}", unchecked.stderr);
    assert!(unchecked.stdout.contains("NOT checked"), "{}", unchecked.stdout);
    assert_eq!(scratch.modelbench(&["challenge", "show", file, "-pub", "other.pub.pem"]).code, 7);
    assert_eq!(scratch.modelbench(&["waiver", "show", file]).code, 7);
    assert_eq!(scratch.modelbench(&["challenge", "show", "absent"]).code, 2);
}

#[test]
fn a_waiver_is_made_for_cases_that_exist() {
    let scratch = with_keys();
    let new = |cases: &str, issue: &str, ttl: &str| {
        let args = ["waiver", "new", "-cases", cases, "-backend", "vendor-x", "-device", "Vendor X2*"];
        let rest = ["-reason", "the f16 unit truncates", "-key", "me.pem", "-out", "w.json"];
        scratch.modelbench(&[args.as_slice(), &["-issue", issue, "-ttl", ttl], &rest].concat())
    };
    let issue = "https://example.org/issues/7";
    assert_eq!(new("r1/matmull/**", issue, "90d").code, 2, "no such cases");
    assert_eq!(new("r1/matmul/**", "see chat", "90d").code, 2);
    assert_eq!(new("r1/matmul/**", issue, "367d").code, 2);
    assert!(!scratch.path().join("w.json").exists());
    let made = new("r1/matmul/**", issue, "90d");
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(made.stdout.contains("excuses"), "{}", made.stdout);
    let shown = scratch.modelbench(&["waiver", "show", "w.json", "-pub", "me.pub.pem"]);
    assert_eq!(shown.code, 0, "{}", shown.stderr);
    for text in ["r1/matmul/**", "vendor-x on Vendor X2*", issue, "truncates", "holds, by the key"] {
        assert!(shown.stdout.contains(text), "{text}: {}", shown.stdout);
    }
    assert_eq!(scratch.modelbench(&["waiver", "show", "w.json", "-pub", "other.pub.pem"]).code, 7);
    let path = scratch.path().join("w.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"sig\":\"ME", "\"sig\":\"MF", 1)).unwrap();
    assert_eq!(scratch.modelbench(&["waiver", "show", "w.json", "-pub", "me.pub.pem"]).code, 7);
}

#[test]
fn a_second_run_is_compared_and_countersigned() {
    let scratch = with_keys();
    let run = |folder: &str, key: &str, backend: &str, seed: &str| {
        let args = ["-backend", backend, "-self-test", "-set", "smoke", "-seed", seed, "-key", key];
        scratch.modelbench(&[args.as_slice(), &["-out", folder]].concat()).code
    };
    assert_eq!(run("vendor", "me.pem", "candle", "1"), 0);
    assert_eq!(run("mine", "other.pem", "candle", "2"), 0);
    assert_eq!(run("broken", "other.pem", "mock:nan", "1"), 1);

    let same = scratch.modelbench(&["diff", "vendor", "vendor/row.dsse.json"]);
    assert_eq!(same.code, 0, "{}", same.stderr);
    assert!(same.stdout.contains("0 other outcomes, 0 with other bits"), "{}", same.stdout);
    let seeds = scratch.modelbench(&["diff", "vendor", "mine/results.jsonl"]);
    assert_eq!(seeds.code, 0, "{}{}", seeds.stdout, seeds.stderr);
    assert!(seeds.stdout.contains("seed   \"0x1\" -> \"0x2\""), "{}", seeds.stdout);
    let broken = scratch.modelbench(&["diff", "vendor", "broken", "-json"]);
    assert_eq!(broken.code, 1, "{}", broken.stderr);
    let broken: Value = serde_json::from_str(&broken.stdout).unwrap();
    assert_eq!(broken["sameOutcomes"], false);
    assert_eq!(broken["diff"]["outcomes"][0]["after"]["kind"], "mismatch");
    assert_eq!(scratch.modelbench(&["diff", "vendor", "absent"]).code, 2);

    let countersign = |rerun: &str, key: &str, public: &str| {
        scratch.modelbench(&["countersign", "vendor", rerun, "-key", key, "-pub", public])
    };
    for (rerun, key, public) in [
        ("vendor", "me.pem", "me.pub.pem"),
        ("vendor", "other.pem", "me.pub.pem"),
        ("mine", "other.pem", "other.pub.pem"),
        ("broken", "other.pem", "me.pub.pem"),
    ] {
        let done = countersign(rerun, key, public);
        assert_eq!(done.code, 7, "{rerun} {key} {public}: {}", done.stdout);
    }
    let made = countersign("mine", "other.pem", "me.pub.pem");
    assert_eq!(made.code, 0, "{}", made.stderr);
    let mut written =
        fs::read_dir(scratch.path().join("vendor")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(written.any(|name| name.to_string_lossy().starts_with("countersignature-")));
    assert_eq!(countersign("mine", "other.pem", "me.pub.pem").code, 2, "never overwritten");
    assert_eq!(scratch.modelbench(&["verify", "vendor", "-pub", "me.pub.pem"]).code, 0);
    // Whoever was given the verifier's key learns that the row was reproduced, and refuses one that was not.
    let by = |folder: &str, key: &str| {
        scratch.modelbench(&["verify", folder, "-pub", "me.pub.pem", "-countersigner", key])
    };
    let reproduced = by("vendor", "other.pub.pem");
    assert_eq!(reproduced.code, 0, "{}", reproduced.stderr);
    assert!(reproduced.stdout.contains("reproduced, mode ci"), "{}", reproduced.stdout);
    assert_eq!(by("vendor", "me.pub.pem").code, 7);
}
