//! From the record of a run to its row.

use std::collections::BTreeMap;

use super::{
    ASSURANCE, BackendRow, CapacityRow, CapacityState, CapsRow, DigestRow, EvidenceRow, FallbackRow,
    HardwareRow, ModelRow, ParityRow, Predicate, RungRow, SuiteRow, WorstRow,
};
use crate::json::decimal;
use crate::label::{self, Derived};
use crate::record::CaseRecord;
use crate::results::{RESULTS_FILE, Results};
use crate::time::{self, TimeError};
use crate::{gate, numerics};

impl Predicate {
    /// Derives the row from a record: gate, label, counts and all.
    ///
    /// # Errors
    /// [`TimeError`] if the record's end is not a time; a record from [`Results::parse`] never has that.
    pub fn of(results: &Results) -> Result<Predicate, TimeError> {
        let Results { header, cases, measured, footer, sha256 } = results;
        let gate = gate::decide(header, cases, measured.as_ref());
        let derived = label::derive(header, cases, &gate);
        let Derived { label, earned, gaps, rungs, highest_rung, .. } = derived;
        let Derived { caps_proven, caps_unproven, ops_proven, .. } = derived;
        let unknown = || CapacityState { state: "unknown".to_owned() };
        let (backend, suite, model) = (&header.backend, &header.suite, &header.model);
        Ok(Predicate {
            label,
            earned_label: earned,
            correctness_class: backend.class,
            assurance: ASSURANCE.to_owned(),
            highest_rung,
            kit_version: header.kit_version.clone(),
            backend: BackendRow {
                id: backend.name.clone(),
                version: backend.version.clone(),
                tier: backend.tier.clone(),
            },
            caps: CapsRow {
                required: Vec::new(),
                declared: backend.caps.iter().copied().collect(),
                proven: caps_proven,
                unproven: caps_unproven,
            },
            numerics: numerics::infer(backend.numerics, cases),
            hardware: HardwareRow {
                kind: backend.device.kind,
                name: backend.device.hardware.clone(),
                driver: backend.device.driver.clone(),
                runtime: backend.device.runtime.clone(),
            },
            model: ModelRow {
                name: model.name.clone(),
                sha256: model.sha256.clone(),
                family: model.family.clone(),
                parameters: model.parameters.to_string(),
                shape: texts(&model.shape),
                golden: model.golden.clone(),
            },
            capacity: CapacityRow { device: unknown(), host: unknown() },
            parity: parity(cases, &rungs),
            fallback: FallbackRow {
                target: "cpu-ref".to_owned(),
                policy: "the host runs missing ops on cpu-ref, counts them and gives no credit for them"
                    .to_owned(),
                delegated: texts(&gate::total_ops(cases.iter().map(|case| &case.delegated))),
            },
            gate,
            rungs: rungs.into_iter().map(RungRow::from).collect(),
            ops_proven,
            gaps,
            fence: None,
            waivers: header.waivers.clone(),
            suite: SuiteRow {
                set: suite.set.clone(),
                digest: suite.digest.clone(),
                is_kit: suite.is_kit,
                cases: suite.cases.to_string(),
                cases_digest: suite.cases_digest.clone(),
                full_cases: suite.full_cases.to_string(),
                seed: header.seed.clone(),
            },
            challenge: header.challenge.clone(),
            expected: header.expected.clone(),
            retries: u64::from(header.retries),
            environment: header.environment.clone(),
            interference: header.interference.clone(),
            sandbox: header.sandbox.clone(),
            started_on: header.started.clone(),
            finished_on: footer.finished.clone(),
            valid_until: time::valid_until(&footer.finished)?,
            mode: header.mode,
            evidence: vec![EvidenceRow {
                name: RESULTS_FILE.to_owned(),
                digest: DigestRow { sha256: sha256.clone() },
                media_type: "application/x-ndjson".to_owned(),
            }],
        })
    }
}

fn texts(counts: &BTreeMap<String, u64>) -> BTreeMap<String, String> {
    counts.iter().map(|(name, count)| (name.clone(), count.to_string())).collect()
}

fn parity(cases: &[CaseRecord], rungs: &[label::RungCount]) -> ParityRow {
    let worst = rungs.iter().filter_map(|rung| rung.worst.as_ref()).max_by(|a, b| a.0.total_cmp(&b.0));
    // 128 bits hold the sum of any number of 64-bit counts that a file can list.
    let sum = |count: fn(&CaseRecord) -> u64| {
        cases.iter().map(|case| u128::from(count(case))).sum::<u128>().to_string()
    };
    ParityRow {
        reference: "cpu-ref".to_owned(),
        worst_error_over_bound: worst.map(|(error, _)| decimal(*error)),
        worst_case: worst.map(|(_, case)| case.clone()),
        elements_compared: sum(|case| case.quality.elements),
        bits_compared: sum(|case| case.quality.bits_compared),
        bits_differ: sum(|case| case.quality.bits_differ),
    }
}

impl From<label::RungCount> for RungRow {
    fn from(count: label::RungCount) -> RungRow {
        RungRow {
            rung: count.rung,
            title: count.title.to_owned(),
            total: count.total,
            applicable: count.applicable,
            passed: count.passed,
            failed: count.failed,
            unsupported: count.unsupported,
            delegated: count.delegated,
            not_run: count.not_run,
            expected: count.expected,
            waived: count.waived,
            worst: count.worst.map(|(error, case)| WorstRow { error_over_bound: decimal(error), case }),
        }
    }
}
