//! `modelbench verify`: a row, and everything it rests on.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use modelbench_evidence::keys::PublicKey;
use modelbench_evidence::verify::{self, KitPins, Signer, SuiteCheck};
use serde_json::json;

use super::failure::Failure;
use super::{exit, load};

pub(super) fn run(
    path: &Path,
    public: Option<&Path>,
    as_json: bool,
    out: &mut impl Write,
) -> Result<u8, Failure> {
    let key = public.map(PublicKey::load).transpose().map_err(|e| Failure::new(exit::REJECTED, e))?;
    let suites = load::suites(None)?;
    let mut sets = BTreeMap::new();
    for name in suites.set_names() {
        let file = suites.set(&name)?.file;
        sets.insert(name, (file.cases, file.digest));
    }
    let pins = KitPins { suite_digest: suites.digest.clone(), sets };
    if !path.exists() {
        let text = format!("{} does not exist; give a run folder or a row file", path.display());
        return Err(Failure::message(exit::USAGE, text));
    }
    let verified =
        verify::verify(path, key.as_ref(), Some(&pins)).map_err(|e| Failure::new(exit::REJECTED, e))?;
    let predicate = serde_json::to_value(&verified.statement)?;
    let label = predicate["predicate"]["label"].as_str().unwrap_or_default().to_owned();
    let signer = match verified.signer {
        Signer::Given => "the key that you gave",
        Signer::SelfContained => {
            "the key beside the row: nobody vouches for it; give the signer's key with -pub"
        }
    };
    let suite = match verified.suite {
        SuiteCheck::Pinned => "this kit's, complete",
        SuiteCheck::OtherKit => {
            "of another version of the kit: its cases were not checked against a known list"
        }
        SuiteCheck::Foreign => "NOT the kit's own, as the row itself says",
        SuiteCheck::NotAsked => "not checked",
    };
    if as_json {
        let line = json!({
            "verified": true, "label": label, "keyid": verified.keyid, "signer": signer, "suite": suite,
            "cases": verified.results.cases.len(), "row": verified.row,
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "verified   {}", verified.row.display())?;
        writeln!(out, "signer     {}   {signer}", verified.keyid)?;
        writeln!(out, "suites     {suite}")?;
        writeln!(
            out,
            "results    {} cases; counts, verdicts, gate and label re-derived",
            verified.results.cases.len()
        )?;
        writeln!(out, "{label:<10} self-tested")?;
    }
    Ok(exit::OK)
}
