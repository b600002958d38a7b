//! A small honest run, for the tests of this crate and for the verifiers of other languages.
#![allow(dead_code, reason = "every test binary uses its own part of these builders")]

use std::collections::{BTreeMap, BTreeSet};

use modelbench_contract::{Cap, Class, DeviceInfo, DeviceKind, Identity, NumericProfile};
use modelbench_evidence::challenge;
use modelbench_evidence::counters::{Counter, CounterReading, Source, Unit};
use modelbench_evidence::expected::Rules;
use modelbench_evidence::measured::{Load, Measured, Reading, Tier, TierCase, Watermark};
use modelbench_evidence::mode::Mode;
use modelbench_evidence::outcome::{NotRun, Outcome, Verdict};
use modelbench_evidence::record::{
    CaseRecord, ChallengeRef, FileDigest, Header, ModelRef, Quality, RESULTS_SCHEMA, Rung, SuiteRef,
};
use modelbench_evidence::results::{ResultsWriter, ids_digest};
use modelbench_evidence::tier;
use modelbench_evidence::tree::{self, Foretold, Product, ProductTree, Tree};
use sha2::Digest as _;

/// A nonce of a verifier.
pub(crate) const NONCE: &str = "5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed";
pub(crate) const FINISHED: &str = "2026-11-30T10:13:01Z";

pub(crate) fn file(name: &str, digit: char) -> FileDigest {
    FileDigest { name: name.into(), sha256: digit.to_string().repeat(64) }
}

/// A header of a full run whose pins are those of `cases`.
pub(crate) fn header(cases: &[CaseRecord]) -> Header {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    };
    let (files, suite) = ([file("libvendor_x.so", 'b')], "c".repeat(64));
    let seed =
        challenge::seed(NONCE, &challenge::backend_digest("vendor-x", &files), &suite).expect("a seed");
    Header {
        schema: RESULTS_SCHEMA.into(),
        kit_version: "0.1.0".into(),
        kit: file("modelbench", 'a'),
        backend_files: files.into(),
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
            digest: suite,
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
        seed: format!("{seed:#x}"),
        mode: Mode::Certify,
        filter: None,
        expected: Vec::new(),
        waivers: Vec::new(),
        retries: 0,
        require_non_reference: true,
        require_hardware: false,
        challenge: Some(ChallengeRef {
            nonce: NONCE.into(),
            sha256: "f".repeat(64),
            verifier: "SHA256:verifier".into(),
            expires: "2026-12-01T10:00:00Z".into(),
        }),
        interference: BTreeMap::new(),
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
        tries: Vec::new(),
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
    let rules = Rules::new(&BTreeSet::from([Cap::UploadDtype]), &[], []).expect("rules");
    case.verdict = rules.verdict(&case.id, &outcome);
    if let Outcome::Delegated { ops } = &outcome {
        case.delegated = ops.iter().map(|op| (op.clone(), 1)).collect();
    }
    case.outcome = outcome;
    case
}

/// A case that did not run: nothing is known about it.
pub(crate) fn not_run(id: &str, subject: &str, outcome: Outcome) -> CaseRecord {
    let mut skipped = with_outcome(case(id, subject), outcome);
    skipped.quality = Quality::default();
    skipped.native.clear();
    skipped.output_sha256 = hex::encode(sha2::Sha256::digest([]));
    skipped
}

/// A case that did not run, because its cap is not advertised.
pub(crate) fn not_applicable(id: &str, cap: Cap) -> CaseRecord {
    let mut skipped = not_run(id, cap.as_str(), Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } });
    skipped.proves = Some(cap);
    skipped
}

/// All cases of an honest run: a label of `Approx`.
pub(crate) fn cases() -> Vec<CaseRecord> {
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
        case("r1/matmul/bound/f32/out33-in193", "matmul"),
        case("r1/rms_norm/bound/f32/n4097", "rms_norm"),
        forward,
        cap,
        not_applicable("r4/all_reduce/rank-order/f32", Cap::Collective),
    ]
}

/// One term after the other, the last first: nobody's order but the sample's.
pub(crate) fn reverse(k: usize) -> Tree {
    (0..k).rev().map(Tree::leaf).reduce(|sum, term| Tree::join(sum, [term])).expect("a term")
}

/// Ordinary results that all have the bits which the order gives, with fused products.
pub(crate) const FORETOLD: Foretold = Foretold { results: 192, rounded: 3, fused: 192, wide: 20, cut: 3 };

/// The trees of a product for the lengths that the kit probes.
pub(crate) fn trees(product: Product, tree: impl Fn(usize) -> Tree) -> Vec<tree::Measured> {
    let found = |k: usize| ProductTree {
        product,
        k: k as u64,
        tree: tree(k).to_string(),
        foretold: (k > 128).then_some(FORETOLD),
    };
    [8, 17, 64, 200, 201, 256].map(|k| tree::Measured::Tree(found(k))).into()
}

/// What an honest discrete device shows.
pub(crate) fn measured(header: &Header, cases: &[CaseRecord]) -> Measured {
    let nonce = header.challenge.as_ref().map_or(NONCE, |challenge| &challenge.nonce);
    let asked = tier::select(nonce, cases).into_iter().map(|id| TierCase {
        id: id.to_owned(),
        outcome: Outcome::Pass,
        output_sha256: "e".repeat(64),
        values: None,
    });
    let engine = Counter {
        source: Source::Drm,
        device: "amdgpu 0000:03:00.0".into(),
        name: "engine compute".into(),
        before: 5,
        after: 500_000,
        unit: Unit::Ns,
    };
    Measured {
        order: Reading::Measured(
            [trees(Product::Matmul, reverse), trees(Product::BatchedMatmul, reverse)].concat(),
        ),
        load: Reading::Measured(Load {
            calls: 10,
            multiplications: 1 << 26,
            worker_cpu_ns: 20_000_000,
            reference_cpu_ns: 1_300_000_000,
            wrong: None,
        }),
        counters: Reading::Measured(CounterReading { counters: vec![engine], ..CounterReading::default() }),
        watermark: Reading::Measured(Watermark {
            asked: BTreeMap::from([("matmul".to_owned(), 3)]),
            served: BTreeMap::new(),
            found: BTreeMap::new(),
        }),
        tier: Reading::Measured(Tier {
            nonce: nonce.to_owned(),
            seed: tier::seed(nonce, header).expect("a seed"),
            cases: asked.collect(),
        }),
    }
}

/// Lets the run answer another challenge: the nonce begins with `digits`.
pub(crate) fn answer(header: &mut Header, digits: &str) {
    let nonce = format!("{digits}{}", &NONCE[digits.len()..]);
    header.challenge.as_mut().expect("a challenge").nonce = nonce;
}

/// The bytes of a record; the seed is the one that the challenge gives.
pub(crate) fn bytes(header: &Header, cases: &[CaseRecord]) -> Vec<u8> {
    let mut header = header.clone();
    if let Some(challenge) = &header.challenge {
        header.seed = tier::seed(&challenge.nonce, &header).expect("a seed");
    }
    let header = &header;
    let mut writer = ResultsWriter::new(Vec::new(), header).expect("a good header");
    for case in cases {
        writer.case(case).expect("a good case");
    }
    if header.filter.is_none() {
        writer.measured(&measured(header, cases)).expect("good measurements");
    }
    writer.finish(FINISHED).expect("a good footer").0
}
