//! What a run is told beforehand: a challenge, waivers, known failures. Everything is checked before anything runs.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use modelbench_evidence::challenge::Challenge;
use modelbench_evidence::claims::Posed;
use modelbench_evidence::document;
use modelbench_evidence::expected::{Expectation, case_glob};
use modelbench_evidence::keys::PublicKey;
use modelbench_evidence::mode::Mode;
use modelbench_evidence::record::{ChallengeRef, FileDigest};
use modelbench_evidence::waiver::{Asked, Waiver};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::args::RunArgs;
use super::exit;
use super::failure::{Failure, rejected};
use crate::suite::Case;
use crate::worker::Environment;

/// Folder of the baselines, by default.
const BASELINES: &str = "expected";

/// A challenge and the seed that follows from it.
pub(super) struct Challenged {
    pub(super) reference: ChallengeRef,
    pub(super) seed: u64,
}

/// Refuses what a certificate excludes, by flag.
pub(super) fn check_mode(args: &RunArgs) -> Result<(), Failure> {
    if args.mode == Mode::Ci {
        return Ok(());
    }
    let excluded = [
        ("-filter", args.filter.is_some(), "every case runs"),
        ("-retries", args.retries > 0, "no case is tried again"),
        ("-expected", args.expected.is_some(), "no failure is expected"),
        ("-suites", args.suites.is_some(), "the suites are the kit's own"),
        ("-set", args.set != "full", "the set is full"),
    ];
    if let Some((flag, _, why)) = excluded.into_iter().find(|(_, given, _)| *given) {
        let text = format!("{flag} cannot be used with -mode certify: {why} in a certificate");
        return Err(Failure::message(exit::USAGE, text));
    }
    if args.challenge.is_none() {
        let text = "-mode certify needs -challenge FILE, a verifier's nonce (modelbench challenge new -h): who makes \
                    the run must not choose its inputs";
        return Err(Failure::message(exit::USAGE, text));
    }
    let environment = Environment::from_host();
    let interference = environment.interference();
    if let Some((name, value)) = interference.iter().next() {
        let text = format!(
            "-mode certify refuses this environment: {name} = {value} can stand between the backend and its device \
             ({} such in all; modelbench doctor lists them); unset it and run again",
            interference.len()
        );
        return Err(Failure::message(exit::NOTHING, text));
    }
    Ok(())
}

/// Opens the challenge: open now, and for one of the backend's files.
pub(super) fn challenge(
    path: Option<&Path>,
    backend: &str,
    backend_files: &[FileDigest],
    suite_digest: &str,
) -> Result<Option<Challenged>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let bytes = document::load(path).map_err(rejected(path))?;
    // Whether the verifier's signature holds is the verifier's question; the run only says which nonce it answered.
    let challenge = Challenge::unverified(&bytes).map_err(rejected(path))?;
    challenge.check_open(SystemTime::now()).map_err(rejected(path))?;
    challenge.check_subject(backend_files).map_err(rejected(path))?;
    let seed = challenge.seed(backend, backend_files, suite_digest).map_err(rejected(path))?;
    let posed = Posed { challenge, sha256: hex::encode(Sha256::digest(&bytes)) };
    Ok(Some(Challenged { reference: posed.reference(), seed }))
}

/// Reads waivers; each must be signed by one of the given maintainers, be about the backend and its device, and excuse a
/// case of the run.
pub(super) fn waivers(
    files: &[PathBuf],
    maintainers: &[PublicKey],
    row_keyid: &str,
    backend: &str,
    device: &str,
    cases: &[Case],
) -> Result<Vec<String>, Failure> {
    let mut envelopes = Vec::with_capacity(files.len());
    for path in files {
        let bytes = document::load(path).map_err(rejected(path))?;
        let asked = Asked { maintainers, row_keyid, backend, device };
        let waiver = Waiver::open(&bytes, &asked, SystemTime::now()).map_err(rejected(path))?;
        waiver.matched(cases.iter().map(|case| case.id.as_str())).map_err(rejected(path))?;
        envelopes.push(String::from_utf8(bytes).map_err(rejected(path))?);
    }
    Ok(envelopes)
}

/// Public keys of maintainers.
pub(super) fn maintainers(files: &[PathBuf]) -> Result<Vec<PublicKey>, Failure> {
    files.iter().map(|path| PublicKey::load(path).map_err(|e| Failure::new(exit::REJECTED, e))).collect()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Baseline {
    expect: Vec<Expectation>,
}

/// Known failures: of the given file, or of `expected/<backend>.toml` if that is there. In mode certify there are none.
pub(super) fn baseline(args: &RunArgs, backend: &str, cases: &[Case]) -> Result<Vec<Expectation>, Failure> {
    let usual = Path::new(BASELINES).join(format!("{backend}.toml"));
    let path = match (&args.expected, args.mode) {
        (Some(path), _) => path.clone(),
        (None, Mode::Ci) if usual.exists() => usual,
        (None, _) => return Ok(Vec::new()),
    };
    let usage = |text: String| Failure::message(exit::USAGE, format!("{}: {text}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|e| usage(e.to_string()))?;
    let Baseline { expect } = toml::from_str(&text).map_err(|e| usage(e.to_string()))?;
    for (i, entry) in expect.iter().enumerate() {
        let wrong = |text: String| usage(format!("expect[{i}]: {text}"));
        entry.check().map_err(|e| wrong(e.to_string()))?;
        let glob = case_glob(&entry.cases).map_err(|e| wrong(format!("cases: {e}")))?;
        // A smaller set or a filter may leave cases out, but they must exist.
        if !cases.iter().any(|case| glob.is_match(&case.id)) {
            let text = format!("{:?} matches no case of the suites: correct or remove it", entry.cases);
            return Err(wrong(text));
        }
    }
    Ok(expect)
}
