//! Takes rights away from a worker, as far as the kernel can, and says honestly what was not possible.

use std::collections::BTreeMap;
use std::path::Path;

/// What holds a worker in: measure by measure, what the kernel gave or why it did not.
pub type SandboxReport = BTreeMap<String, String>;

/// Restricts the calling thread, and every thread it starts afterwards: writes only below `scratch` and to devices,
/// no TCP, no signals to other processes, no core dumps. Call it before any thread is started.
///
/// Never fails: a measure that the kernel cannot give is reported as not available, because a kit that refuses to run
/// on an older kernel would help nobody, and one that stays silent would lie.
pub(super) fn confine(scratch: &Path) -> SandboxReport {
    let mut report = SandboxReport::new();
    report.insert("core dumps".to_owned(), no_core_dumps());
    confine_further(scratch, &mut report);
    report
}

/// What a worker would get here, tried out in a thread that ends afterwards; this process stays as it is.
pub fn sandbox_report() -> SandboxReport {
    let trial = std::thread::spawn(|| {
        let mut report = SandboxReport::new();
        confine_further(&std::env::temp_dir(), &mut report);
        report
    });
    let mut report = trial.join().unwrap_or_default();
    report.insert("core dumps".to_owned(), "off in workers".to_owned());
    report
}

fn no_core_dumps() -> String {
    use rustix::process::{Resource, Rlimit, setrlimit};
    match setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) }) {
        Ok(()) => "off".to_owned(),
        Err(error) => format!("not available: {error}"),
    }
}

#[cfg(not(target_os = "linux"))]
fn confine_further(_scratch: &Path, report: &mut SandboxReport) {
    for measure in ["filesystem", "network", "signals", "no-new-privs"] {
        report.insert(measure.to_owned(), "not available: Linux only".to_owned());
    }
}

#[cfg(target_os = "linux")]
fn confine_further(scratch: &Path, report: &mut SandboxReport) {
    landlocked::confine(scratch, report);
}

#[cfg(target_os = "linux")]
mod landlocked {
    use std::path::{Path, PathBuf};

    use landlock::{
        ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, LandlockStatus, RestrictionStatus,
        Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, path_beneath_rules,
    };

    use super::SandboxReport;

    /// The newest rights that are asked for; an older kernel gives fewer, a newer one no more.
    const FS_ABI: ABI = ABI::V5;
    const NET_ABI: ABI = ABI::V4;
    const SCOPE_ABI: ABI = ABI::V6;

    /// Devices and shared memory that accelerators are driven through.
    const WRITABLE: &[&str] = &["/dev/null", "/dev/dri", "/dev/kfd", "/dev/dxg", "/dev/udmabuf", "/dev/shm"];

    pub(super) fn confine(scratch: &Path, report: &mut SandboxReport) {
        match restrict(scratch) {
            Ok(status) => describe(&status, report),
            Err(error) => {
                for measure in ["filesystem", "network", "signals", "no-new-privs"] {
                    report.insert(measure.to_owned(), format!("not available: {error}"));
                }
            }
        }
    }

    fn restrict(scratch: &Path) -> Result<RestrictionStatus, RulesetError> {
        let writes = AccessFs::from_write(FS_ABI);
        let mut writable: Vec<PathBuf> = WRITABLE.iter().map(PathBuf::from).collect();
        writable.push(scratch.to_owned());
        writable.extend(nvidia_devices());
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(writes)?
            .handle_access(AccessNet::from_all(NET_ABI))?
            .scope(Scope::from_all(SCOPE_ABI))?
            .create()?
            .add_rules(path_beneath_rules(writable, writes))?
            .restrict_self()
    }

    /// `/dev/nvidia0`, `/dev/nvidiactl`, `/dev/nvidia-uvm`, `/dev/nvidia-caps` and whatever else the driver has.
    fn nvidia_devices() -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir("/dev") else { return Vec::new() };
        let is_nvidia = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("nvidia"))
        };
        entries.flatten().map(|entry| entry.path()).filter(is_nvidia).collect()
    }

    fn describe(status: &RestrictionStatus, report: &mut SandboxReport) {
        let abi = match &status.landlock {
            LandlockStatus::Available { effective_abi, .. } => *effective_abi,
            LandlockStatus::NotEnabled => {
                return unavailable("landlock is not enabled in this kernel", status, report);
            }
            LandlockStatus::NotImplemented => {
                return unavailable("this kernel has no landlock", status, report);
            }
        };
        if status.ruleset == RulesetStatus::NotEnforced {
            return unavailable("landlock did not take the rules", status, report);
        }
        let version = abi as i32;
        let ioctl = if abi >= ABI::V5 { "" } else { "; device ioctls not covered" };
        let truncate = if abi >= ABI::V3 { "" } else { "; truncation not covered" };
        let mut say = |measure: &str, text: String| report.insert(measure.to_owned(), text);
        say(
            "filesystem",
            format!(
                "writes only to scratch and accelerator devices (landlock abi {version}){ioctl}{truncate}"
            ),
        );
        say(
            "network",
            match abi >= NET_ABI {
                true => "TCP denied; UDP not covered".to_owned(),
                false => format!("not available: landlock abi {version}, needs 4"),
            },
        );
        say(
            "signals",
            match abi >= SCOPE_ABI {
                true => "none to other processes; no abstract sockets of others".to_owned(),
                false => format!("not available: landlock abi {version}, needs 6"),
            },
        );
        say("no-new-privs", no_new_privs(status));
    }

    fn unavailable(why: &str, status: &RestrictionStatus, report: &mut SandboxReport) {
        for measure in ["filesystem", "network", "signals"] {
            report.insert(measure.to_owned(), format!("not available: {why}"));
        }
        report.insert("no-new-privs".to_owned(), no_new_privs(status));
    }

    fn no_new_privs(status: &RestrictionStatus) -> String {
        if status.no_new_privs { "set".to_owned() } else { "not available: the kernel refused it".to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_the_sandbox_out_leaves_this_process_free() {
        let report = sandbox_report();
        assert!(report.contains_key("filesystem"), "{report:?}");
        let outside = tempfile::tempdir().expect("folder");
        assert!(std::fs::write(outside.path().join("a"), "x").is_ok());
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_ok());
    }

    /// Whatever the kernel has, the report must agree with what a confined thread can really do.
    #[cfg(target_os = "linux")]
    #[test]
    fn the_report_agrees_with_what_a_confined_thread_can_do() {
        let scratch = tempfile::tempdir().expect("scratch");
        let outside = tempfile::tempdir().expect("outside");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listener");
        let address = listener.local_addr().expect("address");
        let (inner, outer) = (scratch.path().to_owned(), outside.path().to_owned());
        let confined = std::thread::spawn(move || {
            let report = confine(&inner);
            let inside = std::fs::write(inner.join("a"), "x").is_ok();
            let outside = std::fs::write(outer.join("a"), "x").is_ok();
            let tcp = std::net::TcpStream::connect(address).is_ok();
            let readable = std::fs::read("/proc/self/stat").is_ok();
            (report, inside, outside, tcp, readable)
        });
        let (report, inside, outside, tcp, readable) = confined.join().expect("thread");
        assert!(inside, "the scratch folder must stay writable");
        assert!(readable, "reading must stay allowed");
        for (measure, escaped) in [("filesystem", outside), ("network", tcp)] {
            let promised = !report[measure].starts_with("not available");
            assert_ne!(promised, escaped, "{measure}: {}", report[measure]);
        }
        for measure in ["core dumps", "filesystem", "network", "signals", "no-new-privs"] {
            assert!(report.contains_key(measure), "{measure} is not in {report:?}");
        }
    }
}
