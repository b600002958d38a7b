//! `modelbench waiver`: a maintainer's excuse, made and shown.

use std::io::{self, Write};
use std::time::SystemTime;

use modelbench_evidence::document;
use modelbench_evidence::keys::{PrivateKey, PublicKey};
use modelbench_evidence::waiver::{Terms, Waiver, WaiverError};
use serde_json::json;

use super::args_attest::{NewWaiver, ShowArgs, WaiverCommand};
use super::challenge::signature;
use super::failure::Failure;
use super::{exit, load};

pub(super) fn run(command: &WaiverCommand, out: &mut impl Write) -> Result<u8, Failure> {
    match command {
        WaiverCommand::New(args) => new(args, out),
        WaiverCommand::Show(args) => show(args, out),
    }
}

fn new(args: &NewWaiver, out: &mut impl Write) -> Result<u8, Failure> {
    let terms = Terms {
        cases: args.cases.clone(),
        backend: args.backend.clone(),
        device: args.device.clone(),
        issue: args.issue.clone(),
        reason: args.reason.clone(),
    };
    let key = PrivateKey::load(&args.key)?;
    let (waiver, envelope) = Waiver::sign(terms, args.ttl, &key, SystemTime::now())?;
    // A misspelt glob shows here, not when somebody wonders why the waiver does nothing.
    let full = load::suites(args.suites.as_deref())?.set("full")?;
    let matched = waiver.matched(full.cases.iter().map(|case| case.id.as_str()))?;
    document::save(&args.out, &envelope)?;
    writeln!(out, "waiver     {}", args.out.display())?;
    print(&waiver, out)?;
    writeln!(out, "excuses    {matched} of the {} cases of full", full.cases.len())?;
    Ok(exit::OK)
}

fn show(args: &ShowArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let rejected = |error: WaiverError| Failure::new(exit::REJECTED, error);
    let key = args.public.as_deref().map(PublicKey::load).transpose()?;
    let envelope = document::load(&args.file)?;
    let waiver = match &key {
        Some(key) => Waiver::read(&envelope, key),
        None => Waiver::unverified(&envelope),
    }
    .map_err(rejected)?;
    let open = waiver.check_open(SystemTime::now());
    if args.json {
        let state = if open.is_ok() { "open" } else { "closed" };
        let Waiver { terms, issued, expires, maintainer, .. } = &waiver;
        let line = json!({
            "terms": terms, "issued": issued, "expires": expires, "maintainer": maintainer,
            "signatureChecked": key.is_some(), "state": state,
        });
        writeln!(out, "{line}")?;
    } else {
        print(&waiver, out)?;
        writeln!(out, "signature  {}", signature(key.is_some()))?;
    }
    open.map_err(rejected)?;
    Ok(exit::OK)
}

fn print(waiver: &Waiver, out: &mut impl Write) -> io::Result<()> {
    let Waiver { terms, issued, expires, maintainer, .. } = waiver;
    writeln!(out, "cases      {}", terms.cases)?;
    writeln!(out, "backend    {} on {}", terms.backend, terms.device)?;
    writeln!(out, "issue      {}", terms.issue)?;
    writeln!(out, "reason     {}", terms.reason)?;
    writeln!(out, "holds      {issued} to {expires}")?;
    writeln!(out, "maintainer {maintainer}")
}
