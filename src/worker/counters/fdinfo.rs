//! DRM usage statistics: `/proc/<pid>/fdinfo/<fd>` as the kernel's document "DRM client usage stats" describes it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use modelbench_evidence::counters::Unit;

/// Largest file that is read; what drivers write is below 4 KiB.
const LONGEST: u64 = 1 << 16;

/// Who a DRM client is. The same client may be reached through several files and from several processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ClientKey {
    /// Name of the driver.
    pub(super) driver: String,
    /// PCI address, where the device has one.
    pub(super) pci: Option<String>,
    /// Unique within the device.
    pub(super) id: u64,
}

impl ClientKey {
    /// The device that the client has open, for people: `amdgpu 0000:03:00.0`.
    pub(super) fn device(&self) -> String {
        match &self.pci {
            Some(pci) => format!("{} {pci}", self.driver),
            None => self.driver.clone(),
        }
    }
}

/// What a client has used: name of the figure (`engine render`, `memory vram`) and its unit to the value.
pub(super) type Figures = BTreeMap<(String, Unit), u64>;

/// What the files of some processes say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Each client once.
    pub(super) clients: BTreeMap<ClientKey, Figures>,
    /// Files that could not be used, each with the reason.
    pub(super) refused: Vec<String>,
}

/// Reads the files of one process. `proc` is `/proc`, or a folder built like it. A process that has ended has none.
pub(super) fn read(proc: &Path, pid: i32, found: &mut Found) {
    let process = proc.join(pid.to_string());
    let entries = match std::fs::read_dir(process.join("fdinfo")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            found.refused.push(format!("process {pid}: its open files cannot be read: {error}"));
            return;
        }
    };
    for entry in entries.flatten() {
        let fd = entry.file_name();
        let mut bytes = Vec::new();
        let read = File::open(entry.path()).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
        // A file that was closed in between is no loss: whoever closed it uses it no more.
        if read.is_err() {
            continue;
        }
        let reason = match parse(&String::from_utf8_lossy(&bytes)) {
            Ok(Some((client, figures))) => {
                merge(found.clients.entry(client).or_default(), figures);
                continue;
            }
            Ok(None) => {
                let target = std::fs::read_link(process.join("fd").join(&fd)).unwrap_or_default();
                if !["/dev/dri", "/dev/accel"].iter().any(|nodes| target.starts_with(nodes)) {
                    continue;
                }
                format!("the driver of {} keeps no statistics", target.display())
            }
            Err(reason) => reason,
        };
        found.refused.push(format!("process {pid}, file {}: {reason}", fd.to_string_lossy()));
    }
}

/// Two views of one client differ only in when they were taken, so the larger figure is the later one. Memory is taken
/// the same way: of two readings a moment apart, either is right.
fn merge(known: &mut Figures, more: Figures) {
    for (name, value) in more {
        let entry = known.entry(name).or_default();
        *entry = (*entry).max(value);
    }
}

/// One file: `None` if it is no DRM device.
///
/// # Errors
/// A sentence if it is one and its text cannot be believed as a whole.
pub(super) fn parse(text: &str) -> Result<Option<(ClientKey, Figures)>, String> {
    let mut values = BTreeMap::new();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        if !key.starts_with("drm-") {
            continue;
        }
        if values.insert(key, value.trim()).is_some() {
            return Err(format!("{key:?} is there twice"));
        }
    }
    let Some(driver) = values.get("drm-driver") else {
        return if values.is_empty() { Ok(None) } else { Err("drm-driver is missing".to_owned()) };
    };
    let id = values.get("drm-client-id").ok_or_else(|| {
        format!("driver {driver:?} gives no drm-client-id, so that its figures could count twice")
    })?;
    let key = ClientKey {
        driver: name("drm-driver", driver)?,
        pci: values.get("drm-pdev").map(|pci| name("drm-pdev", pci)).transpose()?,
        id: number("drm-client-id", id)?,
    };
    let mut figures = Figures::new();
    for (key, value) in values {
        if let Some((figure, unit)) = figure_of(key)? {
            let value = match unit {
                Unit::Bytes => bytes(key, value)?,
                Unit::Ns => nanoseconds(key, value)?,
                _ => number(key, value)?,
            };
            figures.insert((figure, unit), value);
        }
    }
    Ok(Some((key, figures)))
}

/// Which figure a key stands for, if it is one that says something about work or memory.
fn figure_of(key: &str) -> Result<Option<(String, Unit)>, String> {
    // How many engines share a name, and how many cycles have passed altogether, busy or not.
    const NO_FIGURES: [&str; 2] = ["drm-engine-capacity-", "drm-total-cycles-"];
    const FIGURES: [(&str, &str, Unit); 5] = [
        ("drm-engine-", "engine", Unit::Ns),
        ("drm-cycles-", "engine", Unit::Cycles),
        ("drm-memory-", "memory", Unit::Bytes),
        ("drm-total-", "total memory", Unit::Bytes),
        ("drm-resident-", "resident memory", Unit::Bytes),
    ];
    if NO_FIGURES.iter().any(|prefix| key.starts_with(prefix)) {
        return Ok(None);
    }
    let figure =
        FIGURES.iter().find_map(|&(prefix, what, unit)| Some((key.strip_prefix(prefix)?, what, unit)));
    figure.map(|(of, what, unit)| Ok((format!("{what} {}", name(key, of)?), unit))).transpose()
}

/// A name goes into records and onto terminals, so it must be one plain word.
fn name(key: &str, text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if text.is_empty() || text.len() > 64 || !text.chars().all(plain) {
        return Err(format!(
            "{key:?}: {text:?} is no name: one word of letters, digits and -_.: was expected"
        ));
    }
    Ok(text.to_owned())
}

fn number(key: &str, text: &str) -> Result<u64, String> {
    // `parse` alone would take a plus sign.
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let value = digits.then(|| text.parse().ok()).flatten();
    value
        .ok_or_else(|| format!("{key:?}: a whole number below 2^64 with its unit was expected, not {text:?}"))
}

fn nanoseconds(key: &str, text: &str) -> Result<u64, String> {
    match text.strip_suffix("ns") {
        Some(digits) => number(key, digits.trim_end()),
        None => Err(format!("{key:?}: nanoseconds were expected, such as \"5 ns\", not {text:?}")),
    }
}

fn bytes(key: &str, text: &str) -> Result<u64, String> {
    let (digits, unit) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let shift = match unit.trim_start() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        other => {
            return Err(format!(
                "{key:?}: {other:?} is no unit of memory: KiB, MiB, GiB or none was expected"
            ));
        }
    };
    let value = number(key, digits)?.checked_mul(1 << shift);
    value.ok_or_else(|| format!("{key:?}: {text:?} is 2^64 bytes or more"))
}

#[cfg(test)]
mod tests;
