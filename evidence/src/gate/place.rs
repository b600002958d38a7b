//! CPU time and device counters: where the work of a known load was done.

use modelbench_contract::DeviceKind;

use super::{NO_MEASUREMENTS, Witness, WitnessKind, WitnessVerdict, not_measured};
use crate::counters::{self, Counter, Worked};
use crate::measured::{Load, Measured, Reading};

/// CPU time of cpu-ref below which the load says nothing, in nanoseconds.
pub const LOAD_NS: u64 = 1_000_000_000;

pub(super) fn cpu_time(device: DeviceKind, measured: Option<&Measured>) -> Witness {
    let kind = WitnessKind::CpuTime;
    let not_applicable =
        |why: &str| Witness { kind, verdict: WitnessVerdict::NotApplicable, detail: why.to_owned() };
    match device {
        DeviceKind::Cpu => return not_applicable("the device is a CPU"),
        DeviceKind::Software => return not_applicable("the device is a program that runs on the CPU"),
        DeviceKind::Integrated | DeviceKind::Discrete | DeviceKind::Virtual => {}
    }
    let load = match measured.map(|measured| &measured.load) {
        None => return not_measured(kind, NO_MEASUREMENTS),
        Some(Reading::NotMeasured(why)) => return not_measured(kind, why),
        Some(Reading::Measured(load)) => load,
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

fn seconds(ns: u64) -> String {
    format!("{:.2} s", ns as f64 / 1e9)
}

pub(super) fn counters(device: DeviceKind, measured: Option<&Measured>) -> Witness {
    let kind = WitnessKind::Counters;
    // A driver that only lists its devices opens real ones too, and they stay idle.
    let why = match device {
        DeviceKind::Cpu => Some("the device is a CPU"),
        DeviceKind::Software => Some("the device is a program that runs on the CPU"),
        DeviceKind::Integrated | DeviceKind::Discrete | DeviceKind::Virtual => None,
    };
    if let Some(why) = why {
        return Witness { kind, verdict: WitnessVerdict::NotApplicable, detail: why.to_owned() };
    }
    let reading = match measured.map(|measured| &measured.counters) {
        None => return not_measured(kind, NO_MEASUREMENTS),
        Some(Reading::NotMeasured(why)) => return not_measured(kind, why),
        Some(Reading::Measured(reading)) => reading,
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
