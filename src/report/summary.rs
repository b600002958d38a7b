//! What a finished run amounts to, gathered once for every way of showing it.

use std::path::PathBuf;

use modelbench_contract::DeviceKind;
use modelbench_evidence::gate::Gate;
use modelbench_evidence::label::Derived;
use modelbench_evidence::outcome::Verdict;
use modelbench_evidence::record::{CaseRecord, Header};
use serde_json::{Value, json};

/// A finished run.
#[derive(Debug)]
pub struct Summary {
    /// First line of the record.
    pub header: Header,
    /// Its cases.
    pub cases: Vec<CaseRecord>,
    /// The gate's answer.
    pub gate: Gate,
    /// Label, counts, gaps.
    pub derived: Derived,
    /// Where the results are.
    pub folder: PathBuf,
    /// The signed row and the fingerprint of its key; a filtered run has none.
    pub row: Option<(PathBuf, String)>,
    /// Flags that a repro line must repeat, such as the model.
    pub repro: String,
}

impl Summary {
    /// Cases that refute or fail to support the claim.
    pub fn failures(&self) -> impl Iterator<Item = &CaseRecord> {
        self.cases.iter().filter(|case| matches!(case.verdict, Verdict::Regression | Verdict::UnexpectedPass))
    }

    /// The command that runs one case alone.
    pub fn repro_line(&self, case: &str) -> String {
        let Header { backend, seed, .. } = &self.header;
        format!("modelbench -backend {} -filter '{case}' -seed {seed}{}", backend.name, self.repro)
    }

    /// What the label is about.
    pub fn scope(&self) -> String {
        let Header { model, suite, backend, .. } = &self.header;
        let place = match backend.device.kind {
            DeviceKind::Cpu => "cpu".to_owned(),
            kind => format!("{kind:?}").to_lowercase(),
        };
        format!("{} on {}, {place}, {} @ {}", backend.name, model.name, suite.set, short(&suite.digest))
    }

    /// The whole summary as one JSON object, with exit code.
    pub fn json(&self, exit: u8) -> Value {
        let rungs: Vec<Value> = self
            .derived
            .rungs
            .iter()
            .map(|r| {
                json!({
                    "rung": r.rung.as_str(), "title": r.title, "total": r.total, "applicable": r.applicable,
                    "passed": r.passed, "failed": r.failed, "unsupported": r.unsupported,
                    "delegated": r.delegated, "notRun": r.not_run, "expected": r.expected, "waived": r.waived,
                    "worst": r.worst.as_ref().map(|(ratio, case)| json!({ "ratio": ratio, "case": case })),
                })
            })
            .collect();
        let failures: Vec<Value> = self
            .failures()
            .map(|case| json!({ "id": case.id, "outcome": case.outcome, "again": self.repro_line(&case.id) }))
            .collect();
        json!({
            "label": self.derived.earned.as_str(), "rowLabel": self.derived.label.as_str(),
            "mode": self.header.mode, "exit": exit, "backend": self.header.backend,
            "model": self.header.model, "suite": self.header.suite, "seed": self.header.seed,
            "rungs": rungs, "gate": self.gate, "gaps": self.derived.gaps, "failures": failures,
            "results": self.folder.join("results.jsonl"), "row": self.row.as_ref().map(|(path, _)| path),
            "key": self.row.as_ref().map(|(_, key)| key), "numerics": super::numerics::json(self),
        })
    }
}

/// The first and last digits of a digest.
pub fn short(digest: &str) -> String {
    match (digest.get(..6), digest.get(digest.len().saturating_sub(2)..)) {
        (Some(head), Some(tail)) => format!("{head}…{tail}"),
        _ => digest.to_owned(),
    }
}
