//! A small honest run, for the tests of this crate and for the verifiers of other languages.
#![allow(dead_code, reason = "every test binary uses its own part of these builders")]

use std::collections::{BTreeMap, BTreeSet};

use modelbench_contract::{Cap, Class, DeviceInfo, DeviceKind, Identity, NumericProfile};
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{
    CaseRecord, FileDigest, Header, ModelRef, Quality, RESULTS_SCHEMA, Rung, SuiteRef,
};
use modelbench_evidence::results::{ResultsWriter, ids_digest};

pub(crate) const FINISHED: &str = "2026-11-30T10:13:01Z";

pub(crate) fn file(name: &str, digit: char) -> FileDigest {
    FileDigest { name: name.into(), sha256: digit.to_string().repeat(64) }
}

/// A header of a full run whose pins are those of `cases`.
pub(crate) fn header(cases: &[CaseRecord]) -> Header {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    Header {
        schema: RESULTS_SCHEMA.into(),
        kit_version: "0.1.0".into(),
        kit: file("modelbench", 'a'),
        backend_files: vec![file("libvendor_x.so", 'b')],
        backend: Identity {
            name: "vendor-x".into(),
            version: "1.4.2".into(),
            tier: "x200".into(),
            class: Class::Approx,
            caps: BTreeSet::from([Cap::UploadDtype]),
            numerics: NumericProfile::F32,
            device: DeviceInfo {
                kind: DeviceKind::Discrete,
                hardware: "Vendor X200".into(),
                driver: "vx 5.2".into(),
                runtime: "libvx 1.4.2".into(),
            },
        },
        suite: SuiteRef {
            set: "full".into(),
            digest: "c".repeat(64),
            is_kit: true,
            cases: cases.len() as u64,
            cases_digest: ids_digest(cases.iter().map(|case| case.id.as_str())),
            full_cases: cases.len() as u64,
        },
        model: ModelRef {
            name: "kjv".into(),
            sha256: "d".repeat(64),
            family: "llama".into(),
            // Above 2^53: a reader that makes a double of it would show another number.
            parameters: 9_007_199_254_740_993,
            shape: BTreeMap::from([("layers".into(), 4), ("hidden".into(), 128)]),
            golden: "stored".into(),
        },
        seed: "0x5eed".into(),
        mode: "certify".into(),
        filter: None,
        require_non_reference: true,
        environment: map(&[("os", "linux"), ("cpu", "2 × \"Xeon\"")]),
        sandbox: map(&[("network", "TCP denied")]),
        started: "2026-11-30T10:12:44Z".into(),
    }
}

/// A case that passed.
pub(crate) fn case(id: &str, subject: &str) -> CaseRecord {
    let first = id.split('/').next().expect("a first segment");
    CaseRecord {
        id: id.into(),
        rung: *Rung::ALL.iter().find(|rung| rung.as_str() == first).expect("a rung"),
        subject: subject.into(),
        proves: None,
        bits_probe: false,
        outcome: Outcome::Pass,
        verdict: Verdict::Ok,
        quality: Quality {
            elements: 64,
            bits_differ: 3,
            bits_compared: 64,
            worst: Some(0.406_25),
            p99: Some(0.25),
            bias: Some(-1e-3),
            inward: Some(0.5),
        },
        native: BTreeMap::from([(
            if subject.chars().all(|c| c.is_lowercase() || c == '_') { subject } else { "matmul" }.into(),
            2,
        )]),
        delegated: BTreeMap::new(),
        output_sha256: "e".repeat(64),
        notes: Vec::new(),
        numerics: None,
        ms: 1,
    }
}

/// The same case with another outcome and the verdict that belongs to it, for a backend with the sample's caps.
pub(crate) fn with_outcome(mut case: CaseRecord, outcome: Outcome) -> CaseRecord {
    case.verdict = Verdict::of(&outcome, &BTreeSet::from([Cap::UploadDtype]));
    case.outcome = outcome;
    case
}

/// A case that did not run, because its cap is not advertised.
pub(crate) fn not_applicable(id: &str, cap: Cap) -> CaseRecord {
    let mut skipped =
        with_outcome(case(id, cap.as_str()), Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } });
    skipped.proves = Some(cap);
    skipped.quality = Quality::default();
    skipped.native.clear();
    skipped
}

/// All cases of an honest run: a label of `Approx`.
pub(crate) fn cases() -> Vec<CaseRecord> {
    let mut probe = case("r1/matmul/bound/f32/out33-in193", "matmul");
    probe.bits_probe = true;
    let mut exact = case("r1/matmul/exact/f32/out257-in192", "matmul");
    exact.quality = Quality { elements: 257, bits_compared: 257, ..Quality::default() };
    let mut cap = case("r3/upload/narrow/f16", "UploadDtype");
    cap.proves = Some(Cap::UploadDtype);
    let mut forward = case("r2/forward/prefill/kjv", "attention");
    forward.notes.push("near-tie at token 7".into());
    forward.quality.worst = Some(0.75);
    vec![
        case("r0/identity/stable/once", "upload"),
        exact,
        probe,
        case("r1/rms_norm/bound/f32/n4097", "rms_norm"),
        forward,
        cap,
        not_applicable("r4/all_reduce/rank-order/f32", Cap::Collective),
    ]
}

/// The bytes of a record.
pub(crate) fn bytes(header: &Header, cases: &[CaseRecord]) -> Vec<u8> {
    let mut writer = ResultsWriter::new(Vec::new(), header).expect("a good header");
    for case in cases {
        writer.case(case).expect("a good case");
    }
    writer.finish(FINISHED).expect("a good footer").0
}
