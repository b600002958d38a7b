//! Two looks at the counters of a worker, and their difference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use modelbench_evidence::counters::{Counter, CounterReading, Source, Unit};

use super::super::proc;
use super::fdinfo::{self, Found};
use super::handles;
use super::nvml::{self, Nvml};

/// Reads the counters of a worker's processes.
#[derive(Debug)]
pub struct Meter {
    group: i32,
    proc: PathBuf,
    nvml: Nvml,
}

impl Meter {
    /// A meter for the process group that the worker `pid` leads. Loads NVIDIA's library if there is one.
    pub fn new(pid: u32) -> Meter {
        Meter {
            group: i32::try_from(pid).unwrap_or(i32::MAX),
            proc: PathBuf::from("/proc"),
            nvml: Nvml::load(),
        }
    }

    /// What was counted so far. Utilisation comes in samples of up to a second, so leave a second of rest between the
    /// first reading and a load, and between a load and the second reading.
    pub fn read(&self) -> Snapshot {
        let members = proc::family(self.group);
        Snapshot::of(&self.proc, &members, self.nvml.read(&members))
    }
}

/// What was counted up to one moment.
#[derive(Debug)]
pub struct Snapshot {
    processes: usize,
    drm: Found,
    devices: BTreeSet<String>,
    unknown: BTreeSet<String>,
    nvml: nvml::Reading,
}

/// Figures by source, device, name and unit: sums of `before` and `after`.
type Sums = BTreeMap<(Source, String, String, Unit), (u64, u64)>;

impl Snapshot {
    fn of(proc: &Path, members: &[i32], nvml: nvml::Reading) -> Snapshot {
        let mut snapshot = Snapshot {
            processes: members.len(),
            drm: Found::default(),
            devices: BTreeSet::new(),
            unknown: BTreeSet::new(),
            nvml,
        };
        for &pid in members {
            fdinfo::read(proc, pid, &mut snapshot.drm);
            match handles::held(proc, pid) {
                Ok(devices) => snapshot.devices.extend(devices),
                Err(reason) => {
                    snapshot.unknown.insert(reason);
                }
            }
        }
        snapshot
    }

    /// What was counted between this reading and a later one of the same meter.
    pub fn until(&self, later: &Snapshot) -> CounterReading {
        let mut sums = Sums::new();
        let mut unavailable = BTreeSet::new();
        self.add_drm(later, &mut sums, &mut unavailable);
        self.add_nvml(later, &mut sums, &mut unavailable);
        let counters = sums
            .into_iter()
            .map(|((source, device, name, unit), (before, after))| Counter {
                source,
                device,
                name,
                before,
                after,
                unit,
            })
            .collect::<Vec<_>>();
        let uncounted = self.uncounted(later, &counters).into_iter().collect();
        CounterReading { counters, uncounted, unavailable: unavailable.into_iter().collect() }
    }

    fn add_drm(&self, later: &Snapshot, sums: &mut Sums, unavailable: &mut BTreeSet<String>) {
        let refused = self.drm.refused.iter().chain(&later.drm.refused);
        unavailable.extend(refused.map(|reason| format!("drm: {reason}")));
        for client in self.drm.clients.keys().filter(|client| !later.drm.clients.contains_key(client)) {
            let device = client.device();
            unavailable.insert(format!("drm: {device}: a client was closed between the readings"));
        }
        match (later.processes, later.drm.clients.len()) {
            (0, _) => {
                unavailable.insert("drm: the worker has no processes, or there is no /proc".to_owned());
            }
            (processes, 0) => {
                let what = format!("drm: none of the worker's {processes} processes has a device open");
                unavailable.insert(format!("{what} that is counted"));
            }
            _ => {}
        }
        for (client, after) in &later.drm.clients {
            // A client that was opened in between began at zero, and so did an engine that was not listed before.
            let before = self.drm.clients.get(client);
            let names: BTreeSet<_> =
                before.into_iter().flatten().chain(after).map(|(name, _)| name).collect();
            for name in names {
                let old = before.and_then(|before| before.get(name)).copied().unwrap_or(0);
                let new = after.get(name).copied().unwrap_or(0);
                // Drivers may fall behind for a moment; the kernel's document asks readers to keep the larger value.
                let new = if matches!(name.1, Unit::Ns | Unit::Cycles) { new.max(old) } else { new };
                add(sums, (Source::Drm, client.device(), name.0.clone(), name.1), old, new);
            }
        }
    }

    fn add_nvml(&self, later: &Snapshot, sums: &mut Sums, unavailable: &mut BTreeSet<String>) {
        let reasons = self.nvml.unavailable.iter().chain(&later.nvml.unavailable);
        unavailable.extend(reasons.map(|reason| format!("nvml: {reason}")));
        for device in &later.nvml.devices {
            let name = &device.device;
            unavailable.extend(device.unavailable.iter().map(|reason| format!("nvml: {name}: {reason}")));
            let before = self.nvml.devices.iter().find(|before| before.device == *name);
            if let Some(new) = device.bytes {
                let old = before.and_then(|before| before.bytes).unwrap_or(0);
                add(sums, (Source::Nvml, name.clone(), "memory".to_owned(), Unit::Bytes), old, new);
            }
            let fresh = device.samples.iter().filter(|sample| sample.at_us > self.nvml.at_us);
            if let Some(most) = fresh.map(|sample| u64::from(sample.sm_percent)).max() {
                let key = (Source::Nvml, name.clone(), "sm utilisation".to_owned(), Unit::Percent);
                add(sums, key, 0, most);
            }
            if device.bytes.is_none() && device.samples.is_empty() && device.unavailable.is_empty() {
                unavailable.insert(format!(
                    "nvml: {name}: the driver knows none of the worker's processes (in a container it may know them \
                     by other numbers)"
                ));
            }
        }
    }

    /// What the worker holds and no counter would show.
    fn uncounted(&self, later: &Snapshot, counters: &[Counter]) -> BTreeSet<String> {
        let mut uncounted: BTreeSet<String> = self.unknown.union(&later.unknown).cloned().collect();
        let sampled = counters.iter().any(|counter| counter.unit == Unit::Percent);
        for path in self.devices.union(&later.devices) {
            if path.starts_with("/dev/nvidia") && sampled {
                continue;
            }
            if !path.starts_with("/dev/dri/") && !path.starts_with("/dev/accel/") {
                uncounted.insert(format!("{path}: work through it is not in the figures"));
            }
        }
        for (client, figures) in self.drm.clients.iter().chain(&later.drm.clients) {
            if !figures.keys().any(|(_, unit)| matches!(unit, Unit::Ns | Unit::Cycles)) {
                uncounted.insert(format!("{}: its driver lists no engines", client.device()));
            }
        }
        let refused = self.drm.refused.iter().chain(&later.drm.refused);
        uncounted.extend(refused.cloned());
        uncounted
    }
}

fn add(sums: &mut Sums, key: (Source, String, String, Unit), before: u64, after: u64) {
    let sum = sums.entry(key).or_default();
    sum.0 = sum.0.saturating_add(before);
    sum.1 = sum.1.saturating_add(after);
}

#[cfg(test)]
mod tests;
