//! `results.jsonl` is read strictly: what is not exactly the writer's text is refused by line, field and value.

use std::collections::{BTreeMap, BTreeSet};

use modelbench_contract::Cap;
use modelbench_evidence::expected::Rules;
use modelbench_evidence::measured::{Measured, Reading, Tier};
use modelbench_evidence::mode::Mode;
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{CaseRecord, Header};
use modelbench_evidence::results::{Results, ResultsError, ResultsWriter};
use modelbench_evidence::tree::{self, Product, ProductTree};
use sha2::{Digest, Sha256};

mod sample;

fn honest() -> String {
    let cases = sample::cases();
    String::from_utf8(sample::bytes(&sample::header(&cases), &cases)).expect("text")
}

/// Replaces text above the footer and makes the footer fit again, as a careful forger would.
fn edited(from: &str, to: &str) -> Vec<u8> {
    let text = honest();
    assert!(text.contains(from), "{from}");
    refooted(&text.replacen(from, to, 1))
}

fn refooted(text: &str) -> Vec<u8> {
    let body = text.trim_end().rsplit_once('\n').expect("several lines").0.to_owned() + "\n";
    let cases = body.lines().filter(|line| line.starts_with("{\"line\":\"case\"")).count();
    let digest = hex::encode(Sha256::digest(&body));
    let finished = sample::FINISHED;
    (body
        + &format!(
            "{{\"line\":\"footer\",\"cases\":{cases},\"sha256\":\"{digest}\",\"finished\":\"{finished}\"}}\n"
        ))
        .into_bytes()
}

#[track_caller]
fn refused(bytes: &[u8], parts: &[&str]) {
    let error = Results::parse(bytes).expect_err("a refusal").to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn a_record_reads_back_as_written_with_every_outcome() {
    let mut cases = sample::cases();
    let detail = || "got 1 \"want\" 2\nä".to_owned();
    for (i, outcome) in [
        Outcome::Mismatch { detail: detail() },
        Outcome::Error { detail: detail() },
        Outcome::Unsupported { detail: detail() },
        Outcome::Delegated { ops: vec!["rope".into()] },
        Outcome::Crash { cause: "SIGSEGV".into(), op: Some("rope".into()), stderr: detail() },
        Outcome::Timeout { op: None, after: "5 s".into(), stderr: String::new() },
        Outcome::Mistrusted { detail: detail() },
        Outcome::NotRun { why: NotRun::Kit { reason: detail() } },
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("r1/rope/other/n{i}");
        cases.push(match outcome {
            Outcome::NotRun { .. } => sample::not_run(&id, "rope", outcome),
            outcome => sample::with_outcome(sample::case(&id, "rope"), outcome),
        });
    }
    let header = sample::header(&cases);
    let bytes = sample::bytes(&header, &cases);
    let results = Results::parse(&bytes).expect("a good record");
    assert_eq!((&results.header, &results.cases), (&header, &cases));
    assert_eq!(results.sha256, hex::encode(Sha256::digest(&bytes)));
    assert_eq!(results.footer.cases, cases.len() as u64);
    assert_eq!(honest().as_bytes(), refooted(&honest()), "the forger's footer is the writer's");
}

#[test]
fn an_interrupted_run_is_incomplete_wherever_it_stopped() {
    let text = honest();
    let ends: Vec<usize> = (0..text.len()).step_by(101).chain([text.len() - 1]).collect();
    for end in ends {
        let error = Results::parse(&text.as_bytes()[..end]).expect_err("no record");
        assert!(matches!(error, ResultsError::Incomplete { .. }), "{end}: {error}");
    }
}

#[test]
fn no_byte_may_differ() {
    let bytes = honest().into_bytes();
    // A parse of the whole for each byte takes time: a third of them must do, and of the long line of measurements fewer.
    let text = honest();
    let begin = text.find("{\"line\":\"measured\"").expect("measurements");
    let end = text.rfind("{\"line\":\"footer\"").expect("a footer");
    for at in (0..begin).step_by(3).chain((begin..end).step_by(61)).chain(end..bytes.len()) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let finished = honest().rfind(sample::FINISHED).expect("the end time");
        // The end time is covered by the digest in the row alone: nothing in the file repeats it.
        if (finished..finished + sample::FINISHED.len()).contains(&at) {
            continue;
        }
        assert!(Results::parse(&changed).is_err(), "byte {at}");
    }
}

#[test]
fn lines_have_their_places() {
    let text = honest();
    let lines: Vec<&str> = text.lines().collect();
    let join = |lines: &[&str]| (lines.join("\n") + "\n").into_bytes();
    let n = lines.len();
    refused(&join(&lines[1..]), &["line 1", "case line", "expected a header"]);
    refused(&join(&[&[lines[0]], &lines[..]].concat()), &["line 2", "header line"]);
    refused(&join(&[&lines[..], &[lines[n - 1]]].concat()), &["nothing after the footer"]);
    refused(
        &join(&[&lines[..n - 2], &[lines[n - 1]]].concat()),
        &["found a footer line", "expected a measured line"],
    );
    refused(
        &refooted(&text.replacen(lines[2], &format!("{}\n{}", lines[2], lines[2]), 1)),
        &["line 4", "already recorded at line 3", "r1/matmul/exact"],
    );
    let swapped = [&lines[..1], &[lines[2], lines[1]], &lines[3..]].concat();
    refused(&join(&swapped), &["sha256 is", "the digest of the lines above"]);
    refused(b"", &["without a header"]);
    refused(b"\n", &["line 1"]);
}

#[test]
fn keys_are_known_and_single() {
    refused(&edited("\"ms\":1}", "\"ms\":1,\"extra\":1}"), &["line 2", "unknown field `extra`"]);
    refused(&edited("\"ms\":1}", "\"ms\":1,\"ms\":1}"), &["line 2", "\"ms\" appears twice"]);
    refused(&edited("{\"upload\":2}", "{\"upload\":2,\"upload\":2}"), &["line 2", "appears twice"]);
    refused(
        &edited("{\"kind\":\"pass\"}", "{\"kind\":\"pass\",\"x\":1}"),
        &["line 2", "edited after the run"],
    );
    refused(&edited("\"line\":\"case\"", "\"line\":\"cases\""), &["line 2", "unknown variant `cases`"]);
    refused(&edited("{\"line\":\"case\"", "[{\"line\":\"case\""), &["line 2"]);
    refused(&edited("\"ms\":1}", "\"ms\":1} "), &["line 2", "byte"]);
    refused(&edited("\"worst\":0.40625", "\"worst\":0.406250"), &["line 2", "found \"0,"]);
    refused(&edited("\"os\":\"linux\"", "\"os\":\"l\\u0069nux\""), &["line 1", "edited after the run"]);
}

#[test]
fn a_verdict_is_the_one_that_its_outcome_gives() {
    refused(
        &edited("{\"kind\":\"pass\"}", "{\"kind\":\"mismatch\",\"detail\":\"\"}"),
        &["line 2", "verdict is ok", "expected regression"],
    );
    refused(&edited("\"verdict\":\"ok\"", "\"verdict\":\"waived\""), &["verdict is waived", "expected ok"]);
    // Saying that a proof does not apply needs the cap to be absent, and the case to be its proof.
    refused(
        &edited("\"caps\":[\"UploadDtype\"]", "\"caps\":[\"UploadDtype\",\"Collective\"]"),
        &["line 8", "verdict is not-applicable", "expected regression"],
    );
    refused(
        &edited("\"proves\":\"Collective\",", ""),
        &["line 8", "proves is absent", "expected Collective"],
    );
    refused(&edited("\"proves\":\"Collective\"", "\"proves\":\"Async\""), &["proves is Async"]);
}

#[test]
fn fields_are_what_they_say() {
    refused(&edited("\"rung\":\"r0\"", "\"rung\":\"r1\""), &["line 2", "rung is r1", "\"r0\""]);
    refused(
        &edited("urn:modelbench:results:v1", "urn:modelbench:results:v2"),
        &["line 1", "schema", "v2", "v1"],
    );
    refused(&edited(&"b".repeat(64), &"B".repeat(64)), &["backend_files[0].sha256", "lower-case hex"]);
    refused(&edited("libvendor_x.so", "../vendor"), &["backend_files[0].name", "plain file name"]);
    refused(&edited("\"libvendor_x.so\"", "\"modelbench\""), &["backend_files[0].sha256", "its own name"]);
    refused(&edited("\"vendor-x\"", "\"Vendor X\""), &["backend.name"]);
    refused(&edited("\"started\":\"2026", "\"started\":\"26"), &["line 1", "started"]);
    refused(&edited("\"full_cases\":7", "\"full_cases\":8"), &["suite.cases is 7", "full_cases = 8"]);
    let seed = sample::header(&sample::cases()).seed;
    let zeros = seed.replacen("0x", "0x0", 1);
    refused(&edited(&seed, &zeros), &["line 1", &format!("seed is \"{zeros}\""), "leading zeros"]);
    refused(&edited(&seed, "24301"), &["seed is \"24301\""]);
    refused(&edited(&seed, "0x7"), &["seed is 0x7", &seed, "which the challenge"]);
    refused(
        &edited("\"mode\":\"certify\"", "\"mode\":\"full\""),
        &["line 1", "unknown variant `full`", "`ci`", "`certify`"],
    );
    refused(&edited("\"golden\":\"stored\"", "\"golden\":\"\""), &["model.golden is \"\"", "computed"]);
    refused(&edited("\"bits_differ\":3", "\"bits_differ\":65"), &["quality.bits_differ is 65", "64"]);
    refused(&edited("{\"upload\":2}", "{\"matmul2\":2}"), &["native is \"matmul2\""]);
}

/// What the writer says about one case of the sample, changed.
#[track_caller]
fn impossible(change: impl FnOnce(&mut CaseRecord), parts: &[&str]) {
    let mut case = sample::case("r1/rope/bound/n8", "rope");
    change(&mut case);
    let rules = Rules::new(&BTreeSet::from([Cap::UploadDtype]), &[], []).expect("rules");
    case.verdict = rules.verdict(&case.id, &case.outcome);
    let mut writer = ResultsWriter::new(Vec::new(), &sample::header(&[])).expect("a good header");
    let error = writer.case(&case).expect_err("a refusal").to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn what_cannot_be_at_the_same_time_is_refused() {
    let help = || BTreeMap::from([("rope".to_owned(), 1)]);
    let delegated = |ops: &[&str]| Outcome::Delegated { ops: ops.iter().map(|op| (*op).into()).collect() };
    impossible(|c| c.delegated = help(), &["delegated is [\"rope\"]", "nothing in a pass"]);
    impossible(|c| c.outcome = delegated(&[]), &["outcome.ops is []", "at least one"]);
    impossible(|c| c.outcome = delegated(&["rope"]), &["outcome.ops is [\"rope\"]", "at least one: []"]);
    impossible(
        |c| (c.outcome, c.delegated) = (delegated(&["rope", "swiglu"]), help()),
        &["outcome.ops is [\"rope\", \"swiglu\"]", "at least one: [\"rope\"]"],
    );
    impossible(|c| c.quality.elements = 0, &["quality.worst is 0.40625", "quality.elements is 0"]);
    impossible(|c| c.quality.worst = Some(-0.5), &["quality.worst is -0.5", "at least 0"]);
    impossible(|c| c.quality.p99 = Some(0.5), &["quality.p99 is 0.5", "quality.worst, which is 0.40625"]);
    impossible(|c| c.quality.worst = None, &["quality.p99 is 0.25", "which is absent"]);
    impossible(|c| c.quality.worst = Some(1.5), &["quality.worst is 1.5", "at most 1, the bound"]);
    impossible(|c| c.native.clear(), &["native is []", "at least one call of \"rope\""]);
    impossible(|c| c.quality.inward = Some(1.5), &["quality.inward is 1.5", "at most 1"]);
    impossible(|c| c.output_sha256.truncate(63), &["output_sha256", "64 lower-case hex"]);
    impossible(|c| c.native.extend([("matmul".to_owned(), 0)]), &["native.matmul is 0", "at least 1"]);
    let crash =
        |op: &str| Outcome::Crash { cause: "SIGSEGV".into(), op: Some(op.into()), stderr: String::new() };
    impossible(|c| c.outcome = crash("mat"), &["outcome.op is \"mat\"", "an op of the contract"]);
    let late =
        |op: &str| Outcome::Timeout { op: Some(op.into()), after: "5 s".into(), stderr: String::new() };
    impossible(|c| c.outcome = late("mat"), &["outcome.op is \"mat\""]);
}

#[test]
fn measurements_are_those_that_the_kit_makes() {
    let cases = sample::cases();
    let header = sample::header(&cases);
    let refusal = |change: fn(&mut Measured)| {
        let mut writer = ResultsWriter::new(Vec::new(), &header).expect("a good header");
        cases.iter().for_each(|case| writer.case(case).expect("a good case"));
        let mut measured = sample::measured(&header, &cases);
        change(&mut measured);
        writer.measured(&measured).expect_err("a refusal").to_string()
    };
    let long = refusal(|all| {
        let tree = sample::reverse(257);
        let found = ProductTree { product: Product::Matmul, k: 257, tree: tree.to_string(), foretold: None };
        all.order = Reading::Measured(vec![tree::Measured::Tree(found)]);
    });
    assert!(long.contains("order.k is 257, expected at most 256"), "{long}");
    let twice = refusal(|all| {
        if let Reading::Measured(found) = &mut all.order {
            found.push(found[0].clone());
        }
    });
    assert!(twice.contains("order is"), "{twice}");
    let unknown = refusal(|all| {
        if let Reading::Measured(watermark) = &mut all.watermark {
            watermark.found.insert("matmull".into(), 1);
        }
    });
    assert!(unknown.contains("watermark.found is \"matmull\""), "{unknown}");
    for change in [
        (|tier: &mut Tier| tier.nonce = "0".repeat(64)) as fn(&mut Tier),
        |tier| tier.seed = "0x1".into(),
        |tier| drop(tier.cases.pop()),
        |tier| tier.cases.reverse(),
        |tier| tier.cases[0].output_sha256.clear(),
    ] {
        let mut writer = ResultsWriter::new(Vec::new(), &header).expect("a good header");
        cases.iter().for_each(|case| writer.case(case).expect("a good case"));
        let mut measured = sample::measured(&header, &cases);
        let Reading::Measured(tier) = &mut measured.tier else { panic!("the sample is measured") };
        change(tier);
        let error = writer.measured(&measured).expect_err("a refusal").to_string();
        assert!(error.contains("tier."), "{error}");
    }
    let mut late = header.clone();
    late.challenge.as_mut().expect("a challenge").expires = "2026-11-30T10:12:43Z".into();
    let error = ResultsWriter::new(Vec::new(), &late).expect_err("a refusal").to_string();
    assert!(error.contains("challenge.expires is 2026-11-30T10:12:43Z"), "{error}");
}

#[test]
fn a_case_that_did_not_run_has_no_results() {
    let stopped = || Outcome::NotRun { why: NotRun::Kit { reason: "stopped".into() } };
    let did_not_run = |change: fn(&mut CaseRecord), field: &str| {
        impossible(
            |case| {
                *case = sample::not_run("r1/rope/bound/n8", "rope", stopped());
                change(case);
            },
            &[field, "the case did not run"],
        );
    };
    did_not_run(|c| c.native.extend([("rope".to_owned(), 1)]), "native is [\"rope\"]");
    did_not_run(|c| c.delegated.extend([("rope".to_owned(), 1)]), "delegated is [\"rope\"]");
    did_not_run(|c| c.notes.push("near-tie".into()), "notes is [\"near-tie\"]");
    did_not_run(|c| c.quality.elements = 1, "quality is Quality { elements: 1");
    did_not_run(|c| c.output_sha256 = "e".repeat(64), "output_sha256 is eee");
}

#[test]
fn a_wrong_answer_may_be_infinitely_far_off() {
    // The infinite ratio is left out, so that the largest finite one may be below the 99th percentile of another part.
    let mut wrong = sample::case("r1/rope/bound/n8", "rope");
    wrong = sample::with_outcome(wrong, Outcome::Mismatch { detail: "got inf".into() });
    wrong.quality.worst = None;
    let mut writer = ResultsWriter::new(Vec::new(), &sample::header(&[])).expect("a good header");
    writer.case(&wrong).expect("it can be");
}

#[test]
fn a_run_does_not_end_before_it_starts() {
    refused(
        &edited("\"started\":\"2026-11-30T10:12:44Z\"", "\"started\":\"2026-11-30T10:13:02Z\""),
        &["line 10", "finished is 2026-11-30T10:13:01Z", "2026-11-30T10:13:02Z or later"],
    );
    let filtered = || Header { filter: Some("r1/**".into()), mode: Mode::Ci, ..sample::header(&[]) };
    let writer = |header: &Header| ResultsWriter::new(Vec::new(), header).expect("a good header");
    assert!(writer(&filtered()).finish("2026-11-30T10:12:43Z").is_err());
    assert!(writer(&filtered()).finish(sample::FINISHED).is_ok());
    let unmeasured = writer(&sample::header(&[])).finish(sample::FINISHED).expect_err("nothing measured");
    assert!(matches!(unmeasured, ResultsError::Order { found: "footer", .. }), "{unmeasured}");
}

#[test]
fn the_writer_refuses_what_the_reader_would_refuse() {
    let header = sample::header(&[]);
    let mut writer = ResultsWriter::new(Vec::new(), &header).expect("a good header");
    let good = sample::case("r1/rope/bound/n8", "rope");
    writer.case(&good).expect("a good case");
    assert!(matches!(writer.case(&good), Err(ResultsError::Duplicate { line: 3, first: 2, .. })));
    let mut wrong = sample::case("r1/rope/bound/n9", "rope");
    wrong.verdict = Verdict::Waived;
    assert!(matches!(writer.case(&wrong), Err(ResultsError::Field { line: 3, .. })));
    let mut infinite = sample::case("r1/rope/bound/n10", "rope");
    infinite.quality.worst = Some(f64::INFINITY);
    let error = writer.case(&infinite).expect_err("JSON has no infinity").to_string();
    assert!(error.contains("quality.worst is inf"), "{error}");
    let mut skipped = sample::not_applicable("r3/async/x", Cap::Async);
    skipped.proves = None;
    assert!(writer.case(&skipped).is_err());
    writer.measured(&sample::measured(&header, std::slice::from_ref(&good))).expect("good measurements");
    assert!(matches!(writer.case(&infinite), Err(ResultsError::Order { found: "case", .. })));
    let (bytes, digest) = writer.finish(sample::FINISHED).expect("the good case alone");
    let results = Results::parse(&bytes).expect("a good record");
    assert_eq!((results.cases, results.sha256), (vec![good], digest));
    let mut bad = header;
    bad.backend_files.clear();
    assert!(ResultsWriter::new(Vec::new(), &bad).is_err());
}
