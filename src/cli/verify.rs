//! `modelbench verify`: a row, and everything it rests on.

use std::io::Write;
use std::path::PathBuf;
use std::time::SystemTime;

use modelbench_evidence::challenge::Challenge;
use modelbench_evidence::claims::Posed;
use modelbench_evidence::countersign;
use modelbench_evidence::document;
use modelbench_evidence::keys::PublicKey;
use modelbench_evidence::ledger::Ledger;
use modelbench_evidence::verify::{self, Expectations, Signer, SuiteCheck, Verified};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::args::VerifyArgs;
use super::failure::{Failure, rejected};
use super::{exit, load, told};
use crate::runner;
use crate::suite::Suites;

pub(super) fn run(args: &VerifyArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let VerifyArgs { path, public, subjects, .. } = args;
    for (file, what) in std::iter::once((path.as_path(), "a run folder or a row file"))
        .chain(subjects.iter().map(|file| (file.as_path(), "the file that was tested")))
        .chain(args.challenge.iter().map(|file| (file.as_path(), "the challenge that you posed")))
    {
        if !file.exists() {
            let text = format!("{} does not exist; give {what}", file.display());
            return Err(Failure::message(exit::USAGE, text));
        }
    }
    let key =
        public.as_deref().map(PublicKey::load).transpose().map_err(|e| Failure::new(exit::REJECTED, e))?;
    let suites = load::suites(None)?;
    let pins = load::pins(&suites)?;
    let maintainers = told::maintainers(&args.maintainer)?;
    let posed = posed(args)?;
    let expected = Expectations {
        public_key: key.as_ref(),
        kit: Some(&pins),
        maintainers: &maintainers,
        challenge: posed.as_ref(),
        subjects,
        now: SystemTime::now(),
    };
    let verified =
        verify::verify_expecting(path, &expected).map_err(|e| Failure::message(exit::REJECTED, e))?;
    let row = &verified.statement.predicate;
    if verified.suite == SuiteCheck::OtherKit && row.label.is_more_than_partial() && !args.other_kit {
        let text = format!(
            "the row says {} on suites {}, this kit has {}: it cannot tell whether these are a kit's own; verify with the \
             kit that made the row, or accept it with -other-kit",
            row.label.as_str(),
            row.suite.digest,
            suites.digest
        );
        return Err(Failure::message(exit::REJECTED, text));
    }
    let challenge = answered(args, posed.as_ref(), &verified, &suites)?;
    let label = row.label.as_str();
    let assurance = assurance(args, &verified)?;
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
    if args.json {
        let line = json!({
            "verified": true, "label": label, "earned": row.earned_label, "assurance": assurance,
            "keyid": verified.keyid, "signer": signer, "suite": suite,
            "cases": verified.results.cases.len(), "row": verified.row,
            "subjects": verified.subjects.iter()
                .map(|s| json!({ "file": s.file, "names": s.names, "sha256": s.sha256 }))
                .collect::<Vec<_>>(),
            "unnamed": verified.unnamed, "challenge": challenge, "mode": verified.results.header.mode,
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
        writeln!(out, "challenge  {challenge}")?;
        write_subjects(&verified, out)?;
        if !verified.unnamed.is_empty() {
            let names = verified.unnamed.join(", ");
            writeln!(
                out,
                "unnamed    {names}: the row does not speak about these, and nobody vouches for them"
            )?;
        }
        let worth = if row.earned_label == row.label {
            String::new()
        } else {
            format!(": the run is worth {}, and no row of this mode says more", row.earned_label.as_str())
        };
        writeln!(out, "{label:<10} {assurance}, mode {}{worth}", row.mode.as_str())?;
    }
    Ok(exit::OK)
}

/// Who vouches for the row: its signer alone, or also every verifier whose key the caller gave.
fn assurance(args: &VerifyArgs, verified: &Verified) -> Result<&'static str, Failure> {
    if args.countersigner.is_empty() {
        return Ok("self-tested");
    }
    let row = document::load(&verified.row).map_err(|e| Failure::message(exit::REJECTED, e))?;
    for path in &args.countersigner {
        let key = PublicKey::load(path).map_err(|e| Failure::new(exit::REJECTED, e))?;
        let file = verified.row.with_file_name(countersign::file_name(&key.keyid()));
        let envelope = document::load(&file).map_err(rejected(&file))?;
        countersign::open(&envelope, &key, verified, &row).map_err(rejected(&file))?;
    }
    Ok("reproduced")
}

/// The challenge that the caller posed, which must be signed by the caller's own key.
fn posed(args: &VerifyArgs) -> Result<Option<Posed>, Failure> {
    let (Some(path), Some(key)) = (&args.challenge, &args.challenge_key) else { return Ok(None) };
    let key = PublicKey::load(key).map_err(|e| Failure::new(exit::REJECTED, e))?;
    let bytes = document::load(path).map_err(rejected(path))?;
    let challenge = Challenge::read(&bytes, &key).map_err(rejected(path))?;
    Ok(Some(Posed { challenge, sha256: hex::encode(Sha256::digest(&bytes)) }))
}

/// Computes the answers to the challenge again and lets its nonce count for this row alone; says what was found.
fn answered(
    args: &VerifyArgs,
    posed: Option<&Posed>,
    verified: &Verified,
    suites: &Suites,
) -> Result<String, Failure> {
    let Some(posed) = posed else {
        return Ok(match &verified.results.header.challenge {
            None => "none: whoever made the run chose its inputs".to_owned(),
            Some(challenge) => format!(
                "of {}, not checked: whoever posed it can, with -challenge and -challenge-key",
                challenge.verifier
            ),
        });
    };
    let done =
        runner::recompute(&verified.results, suites).map_err(|e| Failure::message(exit::REJECTED, e))?;
    let beside = args.challenge.as_ref().map(|path| {
        let mut name = path.clone().into_os_string();
        name.push(".used");
        PathBuf::from(name)
    });
    if let Some(path) = args.ledger.clone().or(beside) {
        let row = hex::encode(Sha256::digest(verified.statement.to_bytes()?));
        Ledger::new(&path).claim(&posed.challenge, &row, SystemTime::now()).map_err(rejected(&path))?;
    }
    Ok(format!(
        "answered: {} digests and {} sets of values computed again and equal, of {} cases that passed",
        done.digests, done.values, done.passed
    ))
}

fn write_subjects(verified: &Verified, out: &mut impl Write) -> std::io::Result<()> {
    if verified.subjects.is_empty() {
        let listed = verified.statement.subject.iter().map(|s| s.name.as_str()).collect::<Vec<_>>();
        return writeln!(
            out,
            "subjects   not compared with any file: the row is about {}; give the file itself with -subject",
            listed.join(", ")
        );
    }
    for subject in &verified.subjects {
        let (names, file) = (subject.names.join(", "), subject.file.display());
        writeln!(out, "subjects   {file} is {names}, sha256 {}", subject.sha256)?;
    }
    Ok(())
}
