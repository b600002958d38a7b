//! `FusedAttn`: attention over a long KV without the score matrix, in one kernel or two.

use modelbench_contract::wire::{RemoteBackend, Transport};
use modelbench_contract::{
    AttentionSpec, Backend, Cap, DType, DeviceKind, HostTensor, KvConfig, KvStore, NumericProfile,
};

use super::{Lab, capacity, free, operand, upload};
use crate::compare::Want;
use crate::inputs::Operand;
use crate::oracle::{self, AttentionInput};
use crate::runner::finding::{CheckError, Finding};
use crate::runner::ops::allowance;
use crate::suite::Case;
use crate::worker::MemoryMeter;

/// Sizes of a case.
struct Sizes {
    rows: usize,
    held: usize,
    config: KvConfig,
    spec: AttentionSpec,
}

impl Sizes {
    fn new(case: &Case) -> Result<Sizes, CheckError> {
        let (rows, held, head_dim) = (case.size("rows")?, case.size("kv")?, case.size("head_dim")?);
        if rows == 0 || rows > held {
            return Err(case
                .invalid(format!("{rows} query rows over {held} positions: want 1 to all"))
                .into());
        }
        let config =
            KvConfig { layers: 1, kv_heads: case.size("kv_heads")?, head_dim, capacity: held, theta: 1e4 };
        Ok(Sizes { rows, held, config, spec: AttentionSpec::causal(case.size("group")?, head_dim) })
    }
    fn width(&self) -> usize {
        self.config.row_len() * self.spec.group
    }
    /// Bytes of the scores of every query head, row and position in f32.
    fn score_matrix(&self) -> u64 {
        (self.config.kv_heads * self.spec.group * self.rows * self.held * 4) as u64
    }
}

/// What one call cost.
struct Cost {
    /// Bytes by which the worker's memory rose at its highest; `None` if that cannot be measured.
    growth: Option<u64>,
    /// Bytes of device memory that are gone afterwards; `None` if the backend does not tell.
    device: Option<u64>,
    dispatches: Option<u64>,
}

/// Runs one large call and judges its values on some rows, its memory, and its dispatches.
pub(super) fn check<T: Transport>(
    case: &Case,
    remote: &mut RemoteBackend<T>,
    lab: Lab<'_>,
) -> Result<Finding, CheckError> {
    let sizes = Sizes::new(case)?;
    let most_bytes = case.limit("growth_mib", |limits| limits.growth_mib)?.saturating_mul(1 << 20);
    let most_dispatches = case.limit("dispatches", |limits| limits.dispatches)?;
    if sizes.score_matrix() <= most_bytes.saturating_mul(2) {
        let text = format!("a score matrix of {} bytes would hide behind the limit", sizes.score_matrix());
        return Err(case.invalid(text).into());
    }
    let row = sizes.config.row_len();
    let operands = [
        operand(case, lab.seed, "q", &[sizes.rows, sizes.width()])?,
        operand(case, lab.seed, "k", &[sizes.held, row])?,
        operand(case, lab.seed, "v", &[sizes.held, row])?,
    ];
    let mut finding = Finding::default();
    let (got, cost) = run(remote, &sizes, &operands, lab.memory)?;
    finding.output(&got);
    values(&mut finding, case, &sizes, &operands, &got, lab.profile)?;
    let kind = remote.device().kind;
    judge_cost(&mut finding, &cost, kind, (sizes.score_matrix(), most_bytes), most_dispatches);
    Ok(finding)
}

fn run<T: Transport>(
    remote: &mut RemoteBackend<T>,
    sizes: &Sizes,
    operands: &[Operand; 3],
    memory: Option<MemoryMeter>,
) -> Result<(Vec<f32>, Cost), CheckError> {
    let mut kv = remote.new_kv(&sizes.config)?;
    let [q, ..] = operands;
    let tensors = upload(remote, operands)?;
    let [query, key, value] = tensors.as_slice() else {
        return Err(CheckError::Kit("three operands".to_owned()));
    };
    KvStore::append(remote, &mut kv, 0, key, key, value, 0)?;
    // The first call may compile kernels and start threads: one with few rows takes that out of the measurement.
    let few = 2.min(sizes.rows);
    let first = HostTensor::from_f32(&[few, sizes.width()], &q.values[..few * sizes.width()])?;
    let first = remote.upload(&first, DType::F32)?;
    let warm = remote.attention(&first, &kv, 0, sizes.spec)?;
    remote.read(&warm)?;
    free(remote, [first, warm])?;
    remote.sync()?;

    let probes = remote.caps().contains(&Cap::CapacityProbe);
    let free_before = if probes { capacity::device(remote)?.free } else { None };
    let dispatched = remote.effort()?.dispatches;
    let resident = memory.and_then(|meter| if meter.restart() { meter.resident() } else { None });
    let out = remote.attention(query, &kv, 0, sizes.spec)?;
    remote.sync()?;
    let growth = memory.zip(resident).and_then(|(meter, was)| Some(meter.peak()?.saturating_sub(was)));
    let got = remote.read(&out)?;
    let dispatches = remote.effort()?.dispatches.zip(dispatched).map(|(now, was)| now.saturating_sub(was));
    let free_after = if probes { capacity::device(remote)?.free } else { None };
    let device = free_before.zip(free_after).map(|(was, now)| was.saturating_sub(now));
    free(remote, [out])?;
    remote.free_kv(kv)?;
    free(remote, tensors)?;
    remote.sync()?;
    let elements = sizes.rows * sizes.width();
    if got.len() != elements {
        return Err(CheckError::Kit(format!("{} values for {elements}", got.len())));
    }
    Ok((got, Cost { growth, device, dispatches }))
}

/// Judges the first, the second, the middle and the last row.
fn values(
    finding: &mut Finding,
    case: &Case,
    sizes: &Sizes,
    [q, k, v]: &[Operand; 3],
    got: &[f32],
    profile: &NumericProfile,
) -> Result<(), CheckError> {
    let (allowance, slack) = allowance(case)?;
    let (width, row) = (sizes.width(), sizes.config.row_len());
    if let Some(at) = got.iter().position(|value| !value.is_finite()) {
        finding.wrong.push(format!("[{at}] is {}", got[at]));
    }
    for p in std::collections::BTreeSet::from([0, 1.min(sizes.rows - 1), sizes.rows / 2, sizes.rows - 1]) {
        let seen = sizes.held - sizes.rows + 1 + p;
        let input = AttentionInput {
            q: &q.values[p * width..(p + 1) * width],
            keys: &k.values[..seen * row],
            values: &v.values[..seen * row],
            kv_heads: sizes.config.kv_heads,
            head_dim: sizes.config.head_dim,
        };
        let want = oracle::attention(&input, &sizes.spec, profile, &allowance)
            .map_err(|e| CheckError::Kit(format!("{}: {e}", case.id)))?;
        finding.judge(&format!("row {p}"), &Want::Bounded(want), &got[p * width..(p + 1) * width], slack);
    }
    Ok(())
}

/// Judges memory against the score matrix, and dispatches. On a device with its own memory the worker's memory shows
/// nothing, so that one of the other two figures must be there.
fn judge_cost(
    finding: &mut Finding,
    cost: &Cost,
    kind: DeviceKind,
    (matrix, most_bytes): (u64, u64),
    most_dispatches: u64,
) {
    let mut judge_growth = |growth: u64, whose: &str| {
        finding.require(growth <= most_bytes, || {
            format!(
                "{whose} grew by {growth} bytes in one call, {most_bytes} are allowed; the score matrix has {matrix}"
            )
        });
        finding.notes.push(format!("{whose} grew by {growth} bytes, the score matrix has {matrix}"));
    };
    if let Some(growth) = cost.growth {
        judge_growth(growth, "the worker's memory");
    }
    if let Some(growth) = cost.device {
        judge_growth(growth, "device memory");
    }
    match cost.dispatches {
        Some(0) => {
            finding.wrong.push("the backend reports no dispatch for a call that gave values".to_owned())
        }
        Some(count) => {
            finding.require(count <= most_dispatches, || {
                format!("{count} dispatches for one call; a fused one needs {most_dispatches} at most")
            });
            finding.notes.push(format!("{count} dispatches"));
        }
        None => finding.notes.push("the backend reports no dispatches; only memory is measured".to_owned()),
    }
    let own_memory = matches!(kind, DeviceKind::Discrete | DeviceKind::Virtual);
    if cost.dispatches.is_none() && cost.device.is_none() && (own_memory || cost.growth.is_none()) {
        let text = "nothing shows that attention is fused: the backend reports neither dispatches nor device memory, \
                    and the worker's memory does not tell";
        finding.mistrusted = Some(text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use modelbench_evidence::outcome::Outcome;

    fn outcome(
        growth: Option<u64>,
        device: Option<u64>,
        dispatches: Option<u64>,
        kind: DeviceKind,
    ) -> Outcome {
        let mut finding = Finding::default();
        judge_cost(&mut finding, &Cost { growth, device, dispatches }, kind, (1000, 100), 2);
        finding.outcome()
    }

    #[test]
    fn any_measured_figure_over_its_limit_is_wrong() {
        use DeviceKind::{Cpu, Discrete};
        assert_eq!(outcome(Some(100), None, None, Cpu), Outcome::Pass);
        assert_eq!(outcome(None, None, Some(2), Discrete), Outcome::Pass);
        assert_eq!(outcome(None, Some(7), None, Discrete), Outcome::Pass);
        for (growth, device, dispatches) in [
            (Some(101), None, Some(1)),
            (Some(1), Some(101), Some(1)),
            (Some(1), None, Some(3)),
            (Some(1), None, Some(0)),
        ] {
            let outcome = outcome(growth, device, dispatches, Cpu);
            assert!(
                matches!(outcome, Outcome::Mismatch { .. }),
                "{growth:?} {device:?} {dispatches:?}: {outcome:?}"
            );
        }
    }

    #[test]
    fn no_evidence_is_no_pass() {
        for (growth, kind) in [(None, DeviceKind::Cpu), (Some(1), DeviceKind::Discrete)] {
            assert!(matches!(outcome(growth, None, None, kind), Outcome::Mistrusted { .. }));
        }
    }
}
