use std::fs;

use modelbench_evidence::counters::{Worked, worked};

use super::super::nvml::{DeviceReading, Reading, Sample};
use super::*;

/// A process: its fdinfo texts, and the targets of its open files.
type Process<'a> = (i32, &'a [&'a str], &'a [&'a str]);

fn no_nvml() -> Reading {
    Reading { at_us: 1_000, devices: Vec::new(), unavailable: vec!["no library".to_owned()] }
}

fn nvml(at_us: u64, bytes: Option<u64>, samples: &[(u64, u32)]) -> Reading {
    let samples = samples.iter().map(|&(at_us, sm_percent)| Sample { at_us, sm_percent }).collect();
    let device = DeviceReading { device: "NVIDIA X".to_owned(), bytes, samples, unavailable: Vec::new() };
    Reading { at_us, devices: vec![device], unavailable: Vec::new() }
}

fn snapshot(processes: &[Process<'_>], nvml: Reading) -> Snapshot {
    let root = tempfile::tempdir().expect("folder");
    for (pid, texts, targets) in processes {
        let process = root.path().join(pid.to_string());
        fs::create_dir_all(process.join("fdinfo")).expect("fdinfo");
        fs::create_dir_all(process.join("fd")).expect("fd");
        fs::write(process.join("maps"), "").expect("maps");
        for (index, text) in texts.iter().enumerate() {
            fs::write(process.join(format!("fdinfo/{}", index + 3)), text).expect("file");
        }
        for (index, target) in targets.iter().enumerate() {
            std::os::unix::fs::symlink(target, process.join(format!("fd/{}", index + 3))).expect("link");
        }
    }
    let pids: Vec<i32> = processes.iter().map(|(pid, ..)| *pid).collect();
    Snapshot::of(root.path(), &pids, nvml)
}

fn client(id: u32, compute_ns: u64, vram_kib: u64) -> String {
    format!(
        "drm-driver: amdgpu\ndrm-client-id: {id}\ndrm-pdev: 0000:03:00.0\ndrm-engine-compute: {compute_ns} ns\n\
         drm-memory-vram: {vram_kib} KiB\n"
    )
}

fn between(before: &[Process<'_>], after: &[Process<'_>]) -> CounterReading {
    snapshot(before, no_nvml()).until(&snapshot(after, no_nvml()))
}

fn lines(reading: &CounterReading) -> Vec<String> {
    reading.counters.iter().map(Counter::to_string).collect()
}

#[test]
fn clients_old_and_new_are_summed_device_by_device() {
    let (old, grown, new) = (client(1, 100, 4), client(1, 150, 2), client(2, 30, 8));
    let reading = between(&[(10, &[&old], &[])], &[(10, &[&grown], &[]), (11, &[&grown, &new], &[])]);
    assert_eq!(
        lines(&reading),
        [
            "drm amdgpu 0000:03:00.0 engine compute: 100 to 180 ns",
            "drm amdgpu 0000:03:00.0 memory vram: 4096 to 10240 bytes",
        ]
    );
    assert_eq!(worked(&reading), Worked::Busy { ns: 80, cycles: 0, percent: 0 });
    assert_eq!(reading.unavailable, ["nvml: no library"]);
    assert_eq!(reading.uncounted, Vec::<String>::new());
}

#[test]
fn a_client_whose_engine_stands_still_or_runs_backwards_is_idle() {
    let before = client(1, 100, 4);
    for ns in [100, 99] {
        let after = client(1, ns, 400);
        let reading = between(&[(10, &[&before], &[])], &[(10, &[&after], &["/dev/dri/renderD128"])]);
        assert_eq!(lines(&reading)[0], "drm amdgpu 0000:03:00.0 engine compute: 100 to 100 ns");
        assert_eq!(worked(&reading), Worked::Idle { engines: 1 });
    }
}

#[test]
fn a_client_that_was_closed_is_missed_and_accuses_nobody() {
    let gone = client(1, 100, 4);
    let reading = between(&[(10, &[&gone], &[])], &[(10, &[], &[])]);
    assert_eq!(reading.counters, []);
    assert_eq!(worked(&reading), Worked::Unavailable);
    assert!(reading.unavailable.iter().any(|why| why.contains("amdgpu 0000:03:00.0: a client was closed")));
    assert!(reading.unavailable.iter().any(|why| why.contains("none of the worker's 1 processes")));
}

#[test]
fn what_no_counter_shows_is_named_and_forbids_the_word_idle() {
    let still = client(1, 100, 4);
    let nouveau = "drm-driver: nouveau\ndrm-client-id: 5\ndrm-pdev: 0000:01:00.0\n";
    let broken = "drm-driver: xe\n";
    for (texts, target, names) in [
        (vec![still.as_str()], "/dev/kfd", "/dev/kfd"),
        (vec![&still], "/dev/nvidia0", "/dev/nvidia0"),
        (vec![&still], "/dev/never-heard-of", "/dev/never-heard-of"),
        (vec![&still, nouveau], "/dev/dri/renderD128", "nouveau 0000:01:00.0"),
        (vec![&still, broken], "/dev/dri/renderD128", "drm-client-id"),
    ] {
        let reading = between(&[(10, &[&still], &[])], &[(10, &texts, &[target])]);
        assert_eq!(reading.uncounted.len(), 1, "{reading:?}");
        assert!(reading.uncounted[0].contains(names), "{names}: {reading:?}");
        assert_eq!(worked(&reading), Worked::Unavailable, "{reading:?}");
    }
    // A device that was held at the first reading only may have finished the load by the second.
    let reading = between(&[(10, &[&still], &["/dev/kfd"])], &[(10, &[&still], &[])]);
    assert_eq!(worked(&reading), Worked::Unavailable, "{reading:?}");
}

#[test]
fn a_worker_without_processes_or_devices_is_unavailable() {
    let reading = between(&[], &[]);
    assert_eq!(worked(&reading), Worked::Unavailable);
    assert_eq!(reading.unavailable.len(), 2, "{reading:?}");
    let reading = between(&[(10, &["pos: 0\n"], &["/dev/null"])], &[(10, &["pos: 0\n"], &["/dev/null"])]);
    assert_eq!(worked(&reading), Worked::Unavailable);
    assert_eq!(reading.unavailable.len(), 2, "{reading:?}");
}

#[test]
fn samples_count_from_the_first_reading_on() {
    let worker: &[Process<'_>] = &[(10, &["pos: 0\n"], &["/dev/nvidia0", "/dev/nvidiactl"])];
    let before = snapshot(worker, nvml(5_000, Some(1 << 20), &[(4_000, 99)]));
    let stale = before.until(&snapshot(worker, nvml(9_000, Some(3 << 20), &[(4_000, 99), (5_000, 98)])));
    assert_eq!(lines(&stale), ["nvml NVIDIA X memory: 1048576 to 3145728 bytes"]);
    assert_eq!(worked(&stale), Worked::Memory { bytes: 2 << 20 });
    assert_eq!(stale.uncounted.len(), 2, "{stale:?}");

    let fresh = before.until(&snapshot(worker, nvml(9_000, None, &[(4_000, 99), (6_000, 40), (7_000, 55)])));
    assert_eq!(lines(&fresh), ["nvml NVIDIA X sm utilisation: 0 to 55 %"]);
    assert_eq!(worked(&fresh), Worked::Busy { ns: 0, cycles: 0, percent: 55 });
    assert_eq!(fresh.uncounted, Vec::<String>::new());

    let unknown = before.until(&snapshot(worker, nvml(9_000, None, &[])));
    assert_eq!(worked(&unknown), Worked::Unavailable);
    assert!(unknown.unavailable.iter().any(|why| why.contains("in a container")), "{unknown:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_meter_reads_a_live_process() {
    use std::os::unix::process::CommandExt;
    let mut sleep = std::process::Command::new("sleep");
    let mut child = sleep.arg("600").process_group(0).spawn().expect("sleep starts");
    let meter = Meter::new(child.id());
    let before = meter.read();
    let reading = before.until(&meter.read());
    assert_eq!(before.processes, 1);
    assert_eq!(reading.counters, []);
    assert_eq!(worked(&reading), Worked::Unavailable);
    assert!(reading.unavailable.iter().any(|why| why.starts_with("drm: none of the worker's 1 processes")));
    child.kill().expect("killed");
    child.wait().expect("reaped");
}
