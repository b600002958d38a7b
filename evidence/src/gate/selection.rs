//! Selection: how the backend was chosen, and what it says it is.

use modelbench_contract::{Class, DeviceKind};

use super::{Witness, WitnessKind, WitnessVerdict};
use crate::record::Header;

/// The command line has no default backend and matches names exactly, so that a record exists at all says that the
/// backend was named.
pub(super) fn witness(header: &Header) -> Witness {
    let backend = &header.backend;
    let software = backend.device.kind == DeviceKind::Software;
    let device = if software {
        format!("; a software device: {}, tier {}", backend.device.hardware, backend.tier)
    } else {
        String::new()
    };
    let (verdict, claim) = match (backend.class, software && header.require_hardware) {
        (Class::Reference, _) => (WitnessVerdict::Contradiction, "class is Reference"),
        (Class::Approx, true) => (WitnessVerdict::Contradiction, "class is Approx; hardware is required"),
        (Class::Approx, false) => (WitnessVerdict::Neutral, "class is Approx"),
    };
    let detail = format!("{} was named; {claim}{device}", backend.name);
    Witness { kind: WitnessKind::Selection, verdict, detail }
}
