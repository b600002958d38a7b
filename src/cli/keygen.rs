//! `modelbench keygen`: a key pair of one's own.

use std::io::Write;
use std::path::Path;

use modelbench_evidence::keys;

use super::exit;
use super::failure::Failure;

pub(super) fn run(path: &Path, out: &mut impl Write) -> Result<u8, Failure> {
    let public = keys::keygen(path)?;
    writeln!(out, "private key   {}   (mode 0600; it signs rows, keep it)", path.display())?;
    writeln!(out, "public key    {}   (give it to whoever verifies)", keys::public_path(path).display())?;
    writeln!(out, "fingerprint   {}", public.keyid())?;
    Ok(exit::OK)
}
