//! `modelbench challenge`: a verifier's nonce, made and shown.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use modelbench_evidence::challenge::{Challenge, ChallengeError};
use modelbench_evidence::document;
use modelbench_evidence::keys::{PrivateKey, PublicKey};
use modelbench_evidence::record::FileDigest;
use serde_json::json;

use super::args_attest::{ChallengeCommand, NewChallenge, ShowArgs};
use super::exit;
use super::failure::Failure;

pub(super) fn run(command: &ChallengeCommand, out: &mut impl Write) -> Result<u8, Failure> {
    match command {
        ChallengeCommand::New(args) => new(args, out),
        ChallengeCommand::Show(args) => show(args, out),
    }
}

fn new(args: &NewChallenge, out: &mut impl Write) -> Result<u8, Failure> {
    let key = PrivateKey::load(&args.key)?;
    let (challenge, envelope) = Challenge::issue(digest(&args.subject)?, args.ttl, &key, SystemTime::now())?;
    document::save(&args.out, &envelope)?;
    writeln!(out, "challenge  {}", args.out.display())?;
    print(&challenge, out)?;
    Ok(exit::OK)
}

fn show(args: &ShowArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let rejected = |error: ChallengeError| Failure::new(exit::REJECTED, error);
    let key = args.public.as_deref().map(PublicKey::load).transpose()?;
    let envelope = document::load(&args.file)?;
    let challenge = match &key {
        Some(key) => Challenge::read(&envelope, key),
        None => Challenge::unverified(&envelope),
    }
    .map_err(rejected)?;
    let open = challenge.check_open(SystemTime::now());
    if args.json {
        let state = if open.is_ok() { "open" } else { "closed" };
        writeln!(
            out,
            "{}",
            json!({ "challenge": challenge, "signatureChecked": key.is_some(), "state": state })
        )?;
    } else {
        print(&challenge, out)?;
        writeln!(out, "signature  {}", signature(key.is_some()))?;
    }
    open.map_err(rejected)?;
    Ok(exit::OK)
}

/// What is known about the signature of a document that is shown.
pub(super) fn signature(checked: bool) -> &'static str {
    if checked {
        "holds, by the key that you gave"
    } else {
        "NOT checked: anybody could have written this; give the signer's key with -pub"
    }
}

fn print(challenge: &Challenge, out: &mut impl Write) -> io::Result<()> {
    let Challenge { nonce, subject, issued, expires, verifier, .. } = challenge;
    writeln!(out, "nonce      {nonce}")?;
    writeln!(out, "subject    {}   sha256 {}", subject.name, subject.sha256)?;
    writeln!(out, "open       {issued} to {expires}")?;
    writeln!(out, "verifier   {verifier}")
}

/// Name and digest of a file.
fn digest(path: &Path) -> Result<FileDigest, Failure> {
    let failed = |error: io::Error| {
        let text = format!("cannot read the subject {}: {error}; give a file of the backend", path.display());
        Failure::message(exit::USAGE, text)
    };
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    FileDigest::of(name, File::open(path).map_err(failed)?).map_err(failed)
}
