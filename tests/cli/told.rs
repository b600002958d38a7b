//! What a run is told beforehand: its mode, known failures, retries, waivers, a challenge.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, SystemTime};

use modelbench_evidence::challenge::Challenge;
use modelbench_evidence::expected::Rules;
use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::measured::{Measured, Reading, TierCase};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::publish::write_run;
use modelbench_evidence::record::FileDigest;
use modelbench_evidence::results::{Results, ResultsWriter};
use modelbench_evidence::tier;
use serde_json::Value;

use super::run::{Done, Scratch};

/// Keys of a vendor, a verifier and a maintainer.
fn with_keys() -> Scratch {
    let scratch = Scratch::new();
    for name in ["vendor.pem", "verifier.pem", "maintainer.pem"] {
        assert_eq!(scratch.modelbench(&["keygen", "-out", name]).code, 0);
    }
    scratch
}

/// A challenge for the program under test, made some time ago.
fn challenge(scratch: &Scratch, name: &str, subject: FileDigest, age: Duration) {
    let key = PrivateKey::load(&scratch.path().join("verifier.pem")).unwrap();
    let hour = Duration::from_secs(3600);
    let (_, envelope) = Challenge::issue(subject, hour, &key, SystemTime::now() - age).unwrap();
    fs::write(scratch.path().join(name), envelope).unwrap();
}

fn program() -> FileDigest {
    let file = fs::File::open(env!("CARGO_BIN_EXE_modelbench")).unwrap();
    FileDigest::of("modelbench", file).unwrap()
}

fn signed(scratch: &Scratch, folder: &str, args: &[&str]) -> Done {
    let all = [&["-out", folder, "-key", "vendor.pem", "-set", "smoke"], args].concat();
    let mut done = scratch.modelbench(&all);
    done.folder = scratch.path().join(folder);
    done
}

fn verify(scratch: &Scratch, folder: &str, args: &[&str]) -> Done {
    scratch.modelbench(&[&["verify", folder, "-pub", "vendor.pub.pem"], args].concat())
}

const POSED: [&str; 4] = ["-challenge", "c.json", "-challenge-key", "verifier.pub.pem"];

#[test]
fn a_certificate_says_more_than_partial_and_answers_its_challenge_once() {
    let scratch = with_keys();
    challenge(&scratch, "c.json", program(), Duration::ZERO);
    let certify = ["-backend", "candle", "-mode", "certify", "-require-non-reference", "-key", "vendor.pem"];
    let done = scratch.modelbench(&[&certify[..], &["-challenge", "c.json", "-out", "one"]].concat());
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("(Approx, mode certify"), "{}", done.stdout);
    assert!(scratch.path().join("one/vsa.dsse.json").exists());
    let held = verify(&scratch, "one", &POSED);
    assert_eq!(held.code, 0, "{}", held.stderr);
    assert!(held.stdout.contains("challenge  answered: "), "{}", held.stdout);
    assert!(held.stdout.lines().any(|line| line.starts_with("Approx ")), "{}", held.stdout);
    // The same row again is the same answer; another row with the nonce is a second one.
    assert_eq!(verify(&scratch, "one", &POSED).code, 0);
    let again = signed(&scratch, "two", &["-backend", "candle", "-challenge", "c.json"]);
    assert_eq!(again.code, 0, "{}", again.stderr);
    let used = verify(&scratch, "two", &POSED);
    assert_eq!(used.code, 7, "{}", used.stdout);
    assert!(used.stderr.contains("used"), "{}", used.stderr);
    // A certificate without the summary that it earned is half of the evidence.
    fs::remove_file(scratch.path().join("one/vsa.dsse.json")).unwrap();
    assert_eq!(verify(&scratch, "one", &[]).code, 7);
}

#[test]
fn a_certificate_excludes_every_softening() {
    let scratch = with_keys();
    challenge(&scratch, "c.json", program(), Duration::ZERO);
    let refused = |args: &[&str], code: i32, part: &str| {
        let done =
            scratch.modelbench(&[&["-backend", "candle", "-mode", "certify", "-out", "out"], args].concat());
        assert_eq!(done.code, code, "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
        assert!(!scratch.path().join("out").exists());
    };
    refused(&[], 2, "needs -challenge");
    let with = |args: &[&'static str]| [&["-challenge", "c.json"], args].concat();
    refused(&with(&["-filter", "r1/**"]), 2, "-filter");
    refused(&with(&["-retries", "1"]), 2, "-retries");
    refused(&with(&["-set", "smoke"]), 2, "-set");
    refused(&with(&["-expected", "e.toml"]), 2, "-expected");
    refused(&with(&["-suites", "."]), 2, "-suites");
    refused(&with(&["-seed", "7"]), 2, "--seed");
    let preloaded = std::process::Command::new(env!("CARGO_BIN_EXE_modelbench"))
        .args(with(&["-backend", "candle", "-mode", "certify"]))
        .current_dir(scratch.path())
        .env("XDG_CONFIG_HOME", scratch.path())
        .env_remove("LD_LIBRARY_PATH")
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_somebody")
        .output()
        .unwrap();
    assert_eq!(preloaded.status.code(), Some(4));
    let text = String::from_utf8(preloaded.stderr).unwrap();
    assert!(text.contains("VK_INSTANCE_LAYERS") && text.contains("VK_LAYER_somebody"), "{text}");
}

#[test]
fn a_challenge_must_be_open_and_for_this_backend() {
    let scratch = with_keys();
    challenge(&scratch, "old.json", program(), Duration::from_secs(7200));
    challenge(&scratch, "foreign.json", FileDigest::of("libx.so", &b"code"[..]).unwrap(), Duration::ZERO);
    challenge(&scratch, "c.json", program(), Duration::ZERO);
    challenge(&scratch, "other.json", program(), Duration::ZERO);
    for (file, part) in [("old.json", "expired"), ("foreign.json", "libx.so"), ("absent.json", "absent.json")]
    {
        let done = signed(&scratch, "out", &["-backend", "candle", "-challenge", file]);
        assert_eq!(done.code, 7, "{file}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert_eq!(signed(&scratch, "one", &["-backend", "candle", "-challenge", "c.json"]).code, 0);
    assert_eq!(signed(&scratch, "none", &["-backend", "candle"]).code, 0);
    let other = |challenge: &str, key: &str, folder: &str| {
        verify(&scratch, folder, &["-challenge", challenge, "-challenge-key", key])
    };
    for (file, key, folder, part) in [
        ("other.json", "verifier.pub.pem", "one", "nonce"),
        ("c.json", "maintainer.pub.pem", "one", "signed by"),
        ("c.json", "verifier.pub.pem", "none", "no challenge"),
    ] {
        let done = other(file, key, folder);
        assert_eq!(done.code, 7, "{file} {key} {folder}: {}", done.stdout);
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    assert!(verify(&scratch, "one", &[]).stdout.contains("not checked"));
    // A verifier who also signs the row vouches for himself.
    let own = [
        "-backend",
        "candle",
        "-challenge",
        "c.json",
        "-key",
        "verifier.pem",
        "-set",
        "smoke",
        "-out",
        "own",
    ];
    assert_eq!(scratch.modelbench(&own).code, 0);
    let own = scratch.modelbench(&[&["verify", "own", "-pub", "verifier.pub.pem"], &POSED[..]].concat());
    assert_eq!(own.code, 7, "{}", own.stdout);
}

/// The record of a run in which every failure became a pass, with all that follows from it.
fn forged(results: &Results) -> Vec<u8> {
    let mut cases = results.cases.clone();
    let rules = Rules::of(&results.header).unwrap();
    for case in &mut cases {
        if !matches!(case.outcome, Outcome::Pass | Outcome::NotRun { .. }) {
            case.outcome = Outcome::Pass;
            case.quality.worst = case.quality.worst.map(|_| 0.5);
            case.quality.p99 = case.quality.p99.map(|_| 0.5);
        }
        case.verdict = rules.verdict(&case.id, &case.outcome);
    }
    let Some(Measured { tier: Reading::Measured(was), .. }) = &results.measured else { panic!("a tier") };
    let mut measured = results.measured.clone().unwrap();
    let asked = tier::select(&was.nonce, &cases).into_iter().map(|id| {
        was.cases.iter().find(|case| case.id == id).cloned().unwrap_or_else(|| TierCase {
            id: id.to_owned(),
            outcome: Outcome::Pass,
            output_sha256: cases.iter().find(|case| case.id == id).unwrap().output_sha256.clone(),
            values: None,
        })
    });
    let asked = asked.collect();
    measured.tier = Reading::Measured(modelbench_evidence::measured::Tier { cases: asked, ..was.clone() });
    let mut writer = ResultsWriter::new(Vec::new(), &results.header).unwrap();
    cases.iter().for_each(|case| writer.case(case).unwrap());
    writer.measured(&measured).unwrap();
    writer.finish(&results.footer.finished).unwrap().0
}

#[test]
fn a_forger_with_the_vendors_key_is_refused_under_a_challenge() {
    let scratch = with_keys();
    challenge(&scratch, "c.json", program(), Duration::ZERO);
    let args = ["-self-test", "-backend", "mock:drops-tail", "-challenge", "c.json"];
    let broken = signed(&scratch, "true", &args);
    assert_eq!(broken.code, 1, "{}{}", broken.stdout, broken.stderr);
    assert_eq!(verify(&scratch, "true", &POSED).code, 0, "an honest row about a broken backend holds");
    let results = Results::parse(&fs::read(broken.folder.join("results.jsonl")).unwrap()).unwrap();
    let folder = scratch.path().join("forged");
    fs::create_dir(&folder).unwrap();
    let key = PrivateKey::load(&scratch.path().join("vendor.pem")).unwrap();
    write_run(&folder, &forged(&results), &key).unwrap();
    let alone = verify(&scratch, "forged", &[]);
    assert_eq!(alone.code, 0, "the forger did it well: {}", alone.stderr);
    let refused = verify(&scratch, "forged", &POSED);
    assert_eq!(refused.code, 7, "{}", refused.stdout);
    assert!(refused.stderr.contains("output_sha256 is"), "{}", refused.stderr);
}

#[test]
fn known_failures_are_expected_and_a_stale_list_fails() {
    let scratch = with_keys();
    let args = ["-self-test", "-backend", "mock:drops-tail"];
    let broken = signed(&scratch, "plain", &args);
    assert_eq!(broken.code, 1);
    let failing: Vec<(String, String)> = broken
        .cases()
        .into_iter()
        .filter(|(_, outcome, line)| outcome != "pass" && line["verdict"] == "regression")
        .map(|(id, outcome, _)| (id, outcome))
        .collect();
    assert!(!failing.is_empty());
    let entry = |cases: &str, outcome: &str| {
        format!(
            "[[expect]]\ncases = \"{cases}\"\noutcome = \"{outcome}\"\nreason = \"the tail is not read\"\n\
             issue = \"https://example.org/7\"\n"
        )
    };
    let list = |name: &str, text: &str| fs::write(scratch.path().join(name), text).unwrap();
    let all: String = failing.iter().map(|(id, outcome)| entry(id, outcome)).collect();
    list("all.toml", &all);
    let known = signed(&scratch, "known", &[&args[..], &["-expected", "all.toml"]].concat());
    assert_eq!(known.code, 0, "{}{}", known.stdout, known.stderr);
    assert!(known.stdout.contains("expected-failure"), "{}", known.stdout);
    assert!(known.stdout.lines().any(|line| line.starts_with("PARTIAL ")), "{}", known.stdout);
    assert_eq!(verify(&scratch, "known", &[]).code, 0);
    let passing = "r0/contract/identity";
    list("stale.toml", &(all.clone() + &entry(passing, "mismatch")));
    let stale = signed(&scratch, "stale", &[&args[..], &["-expected", "stale.toml"]].concat());
    assert_eq!(stale.code, 1, "{}", stale.stdout);
    assert!(stale.stdout.contains("correct the list"), "{}", stale.stdout);
    for (text, part) in [
        (entry("r1/nothing/**", "mismatch"), "matches no case"),
        (entry(passing, "pass"), "outcome"),
        (entry(passing, "mismatch").replace("https", "ftp"), "issue"),
        ("[[expect]]\ncases = 1\n".to_owned(), "bad.toml"),
    ] {
        list("bad.toml", &text);
        let bad = signed(&scratch, "bad", &[&args[..], &["-expected", "bad.toml"]].concat());
        assert_eq!(bad.code, 2, "{}", bad.stderr);
        assert!(bad.stderr.contains(part), "{part}: {}", bad.stderr);
    }
    // A list that lies where it is looked for is used without being named.
    fs::create_dir(scratch.path().join("expected")).unwrap();
    list("expected/candle.toml", &entry(passing, "mismatch"));
    let usual = signed(&scratch, "usual", &["-backend", "candle"]);
    assert_eq!(usual.code, 1, "{}", usual.stdout);
}

#[test]
fn a_retry_is_shown_as_a_retry() {
    let scratch = with_keys();
    // It is another backend after twenty calls, and itself again in a fresh worker.
    let args = ["-self-test", "-backend", "mock:changing-identity", "-filter", "r0/contract/round-trip/**"];
    assert_eq!(signed(&scratch, "once", &args).code, 1);
    let twice = signed(&scratch, "twice", &[&args[..], &["-retries", "1"]].concat());
    assert_eq!(twice.code, 0, "{}{}", twice.stdout, twice.stderr);
    let tried: BTreeSet<String> = twice
        .cases()
        .iter()
        .filter_map(|(_, outcome, line)| {
            let tries = line["tries"].as_array()?;
            assert_eq!((outcome.as_str(), tries), ("pass", &vec![Value::from("error")]));
            Some(line["id"].to_string())
        })
        .collect();
    assert!(!tried.is_empty());
    assert!(twice.stdout.contains("retried: "), "{}", twice.stdout);
}

#[test]
fn a_waiver_excuses_and_stays_in_the_row() {
    let scratch = with_keys();
    let args = ["-self-test", "-backend", "mock:drops-tail"];
    let waive = |backend: &str, key: &str, out: &str| {
        let made = scratch.modelbench(&[
            "waiver",
            "new",
            "-cases",
            "**",
            "-backend",
            backend,
            "-device",
            "*",
            "-issue",
            "https://example.org/1",
            "-reason",
            "known",
            "-ttl",
            "30d",
            "-key",
            key,
            "-out",
            out,
        ]);
        assert_eq!(made.code, 0, "{}", made.stderr);
    };
    waive("mock:drops-tail", "maintainer.pem", "w.json");
    waive("candle", "maintainer.pem", "foreign.json");
    waive("mock:drops-tail", "vendor.pem", "own.json");
    let run = |folder: &str, waiver: &str, maintainer: &str| {
        signed(&scratch, folder, &[&args[..], &["-waiver", waiver, "-maintainer", maintainer]].concat())
    };
    for (waiver, maintainer, part) in [
        ("foreign.json", "maintainer.pub.pem", "candle"),
        ("own.json", "vendor.pub.pem", "cannot waive"),
        ("w.json", "verifier.pub.pem", "does not count"),
    ] {
        let done = run("bad", waiver, maintainer);
        assert_eq!(done.code, 7, "{waiver}: {}", done.stderr);
        assert!(done.stderr.contains(part), "{part}: {}", done.stderr);
    }
    let waived = run("waived", "w.json", "maintainer.pub.pem");
    assert_eq!(waived.code, 0, "{}{}", waived.stdout, waived.stderr);
    assert!(waived.stdout.contains("waived: "), "{}", waived.stdout);
    assert!(waived.stdout.lines().any(|line| line.starts_with("PARTIAL ")), "{}", waived.stdout);
    assert_eq!(verify(&scratch, "waived", &["-maintainer", "maintainer.pub.pem"]).code, 0);
    let untrusted = verify(&scratch, "waived", &[]);
    assert_eq!(untrusted.code, 7, "{}", untrusted.stdout);
    assert!(untrusted.stderr.contains("waivers[0]"), "{}", untrusted.stderr);
}
