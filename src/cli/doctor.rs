//! `modelbench doctor`: what is available here, what is missing, and how to get it.

use std::io::Write;

use super::failure::Failure;
use super::{exit, load};
use crate::bundled::Bundled;
use crate::kit;

pub(super) fn run(out: &mut impl Write) -> Result<u8, Failure> {
    writeln!(out, "modelbench {}  on {} {}", kit::VERSION, std::env::consts::OS, std::env::consts::ARCH)?;
    let suites = load::suites(None)?;
    let full = suites.set("full")?;
    writeln!(out, "ok         suites: full has {} cases, digest {}", full.cases.len(), suites.digest)?;
    let mut broken = false;
    for backend in Bundled::LISTED {
        match backend.probe() {
            Ok(device) => writeln!(out, "ok         backend {}: {device}", backend.name())?,
            Err(reason) => {
                broken = true;
                writeln!(out, "missing    backend {}: {reason}", backend.name())?;
            }
        }
    }
    if !cfg!(feature = "cuda") {
        writeln!(out, "missing    candle on CUDA: build with --features cuda (needs a CUDA toolkit)")?;
    }
    writeln!(out, "missing    device backends (Vulkan, CUDA): none is part of this version")?;
    for (measure, state) in crate::worker::sandbox_report() {
        writeln!(out, "sandbox    {measure}: {state}")?;
    }
    Ok(if broken { exit::NOT_LOADED } else { exit::OK })
}
