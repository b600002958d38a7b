//! CPU time and device counters: where the work of a known load was done.

use modelbench_contract::DeviceKind;

use super::{Witness, WitnessKind, WitnessVerdict, reading, without_place};
use crate::counters::{self, Counter, Worked};
use crate::measured::{Load, Measured, Reading};

/// CPU time of cpu-ref below which the load says nothing, in nanoseconds.
pub const LOAD_NS: u64 = 1_000_000_000;

pub(super) fn cpu_time(device: DeviceKind, measured: Option<&Measured>) -> Witness {
    let kind = WitnessKind::CpuTime;
    let load = match about_the_place(kind, device, measured, |measured| &measured.load) {
        Ok(load) => load,
        Err(witness) => return witness,
    };
    let Load { calls, multiplications, worker_cpu_ns: worker, reference_cpu_ns: reference, wrong } = load;
    let figures = format!(
        "{} of CPU for {calls} products of {multiplications} multiplications that cost cpu-ref {}",
        seconds(*worker),
        seconds(*reference)
    );
    let (verdict, detail) = match wrong {
        Some(wrong) => (WitnessVerdict::Contradiction, format!("the load was not done: {wrong}; {figures}")),
        None if *reference < LOAD_NS => {
            (WitnessVerdict::NotMeasured, format!("too little work to tell: {figures}"))
        }
        None if *worker > reference / 2 => {
            (WitnessVerdict::Contradiction, format!("a CPU did the work: {figures}"))
        }
        None if *worker < reference / 10 => (WitnessVerdict::Positive, figures),
        None => (WitnessVerdict::Neutral, figures),
    };
    Witness { kind, verdict, detail }
}

/// A part of the measurements that speaks about the place of the work, for a device where that is a question.
fn about_the_place<'a, T>(
    kind: WitnessKind,
    device: DeviceKind,
    measured: Option<&'a Measured>,
    part: impl FnOnce(&'a Measured) -> &'a Reading<T>,
) -> Result<&'a T, Witness> {
    match without_place(device) {
        Some(why) => Err(Witness { kind, verdict: WitnessVerdict::NotApplicable, detail: why.to_owned() }),
        None => reading(kind, measured, part),
    }
}

fn seconds(ns: u64) -> String {
    format!("{:.2} s", ns as f64 / 1e9)
}

pub(super) fn counters(device: DeviceKind, measured: Option<&Measured>) -> Witness {
    let kind = WitnessKind::Counters;
    // A driver of a software device that only lists devices opens real ones too, and they stay idle.
    let reading = match about_the_place(kind, device, measured, |measured| &measured.counters) {
        Ok(reading) => reading,
        Err(witness) => return witness,
    };
    let figures = reading.counters.iter().map(Counter::to_string).collect::<Vec<_>>().join("; ");
    let (verdict, detail) = match counters::worked(reading) {
        Worked::Busy { .. } => (WitnessVerdict::Positive, figures),
        Worked::Idle { .. } => {
            (WitnessVerdict::Contradiction, format!("the device was idle during the load: {figures}"))
        }
        Worked::Memory { .. } => (WitnessVerdict::Neutral, format!("memory alone shows no work: {figures}")),
        Worked::Unavailable => {
            let why: Vec<&str> =
                reading.unavailable.iter().chain(&reading.uncounted).map(String::as_str).collect();
            (WitnessVerdict::NotMeasured, format!("unavailable: {}", why.join("; ")))
        }
    };
    Witness { kind, verdict, detail }
}
