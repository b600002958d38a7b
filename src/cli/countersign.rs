//! `modelbench countersign`: a verifier's word that it came to the same outcomes.

use std::io::Write;

use modelbench_evidence::countersign::{countersign, file_name};
use modelbench_evidence::document;
use modelbench_evidence::keys::{PrivateKey, PublicKey};
use modelbench_evidence::publish::ROW_FILE;
use modelbench_evidence::verify;

use super::args_attest::CountersignArgs;
use super::failure::Failure;
use super::{exit, load};

pub(super) fn run(args: &CountersignArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let key = PrivateKey::load(&args.key)?;
    let signer = PublicKey::load(&args.public)?;
    for path in [&args.row, &args.rerun] {
        if !path.exists() {
            let text = format!("{} does not exist; give a run folder or a row file", path.display());
            return Err(Failure::message(exit::USAGE, text));
        }
    }
    let pins = load::pins(&load::suites(None)?)?;
    let verified = |path, key: &PublicKey| {
        verify::verify(path, Some(key), Some(&pins)).map_err(|e| Failure::new(exit::REJECTED, e))
    };
    let row = verified(&args.row, &signer)?;
    let rerun = verified(&args.rerun, &key.public_key())?;
    let file = row.row.with_file_name(ROW_FILE);
    let envelope = countersign(&row, &document::load(&file)?, &rerun, &key)
        .map_err(|e| Failure::new(exit::REJECTED, e))?;
    let path = row.row.with_file_name(file_name(&rerun.keyid));
    document::save(&path, &envelope)?;
    let label = row.statement.predicate.label.as_str();
    writeln!(out, "countersignature  {}", path.display())?;
    writeln!(out, "row               {label}, signed by {}", row.keyid)?;
    writeln!(out, "second run        {label}, all {} cases ended alike", rerun.results.cases.len())?;
    writeln!(out, "verifier          {}", rerun.keyid)?;
    Ok(exit::OK)
}
