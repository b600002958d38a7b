//! `modelbench doctor`: what is available here, what is missing, and how to get it.

use std::io::Write;

use super::failure::Failure;
use super::{exit, load};
use crate::bundled::Bundled;
use crate::kit;
use crate::worker::counters::{NvmlState, drm_nodes, nvml_state};
use crate::worker::{Environment, cpu_time_available};

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
    writeln!(out, "missing    CUDA backend of our own: not part of this version")?;
    for (measure, state) in crate::worker::sandbox_report() {
        writeln!(out, "sandbox    {measure}: {state}")?;
    }
    counters(out)?;
    interference(out)?;
    Ok(if broken { exit::NOT_LOADED } else { exit::OK })
}

/// What the gate could measure about the devices of this machine.
fn counters(out: &mut impl Write) -> Result<(), Failure> {
    let nodes = drm_nodes();
    for node in &nodes {
        writeln!(out, "counters   drm: {node}")?;
    }
    if nodes.is_empty() {
        writeln!(out, "missing    drm counters: no device in /dev/dri or /dev/accel")?;
    }
    match nvml_state() {
        NvmlState::Available { driver, devices } => {
            writeln!(out, "counters   nvml: driver {driver}: {}", devices.join(", "))?;
        }
        NvmlState::Unavailable { reason } => writeln!(out, "missing    nvml counters: {reason}")?,
    }
    if cpu_time_available() {
        writeln!(out, "counters   CPU time of workers: from /proc")?;
    } else {
        writeln!(out, "missing    CPU time of workers: no /proc")?;
    }
    Ok(())
}

/// What would be in the way of a certified run.
fn interference(out: &mut impl Write) -> Result<(), Failure> {
    let environment = Environment::from_host();
    for (what, state) in environment.interference() {
        writeln!(out, "interferes {what}: {state}")?;
    }
    for (what, state) in environment.remarks() {
        writeln!(out, "remark     {what}: {state}")?;
    }
    if environment.interference().is_empty() {
        writeln!(out, "ok         nothing found that interferes between a backend and its device")?;
    }
    Ok(())
}
