//! The order in which the backend adds up products.

use modelbench_contract::NumericProfile;
use modelbench_evidence::measured::Reading;
use modelbench_evidence::tree::Measured;

use super::super::finding::CheckError;
use super::super::fingerprint;
use crate::inputs::Stream;
use crate::worker::Worker;

/// Probes every product.
pub(super) fn measure(
    worker: &mut Worker,
    profile: &NumericProfile,
    stream: &Stream,
) -> Result<Reading<Vec<Measured>>, CheckError> {
    let seed = stream.bits(0);
    match fingerprint::measure(worker.remote(), profile, seed, &fingerprint::drawn(seed)) {
        Ok(found) => Ok(Reading::Measured(found)),
        Err(gone) => Ok(Reading::NotMeasured(gone.to_string())),
    }
}
