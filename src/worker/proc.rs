//! What the kernel tells about processes in `/proc`. Every answer is `None` where there is no such file system.

use std::collections::BTreeSet;
use std::fs;

use rustix::process::Signal;

/// The figures of `/proc/<pid>/stat` that the kit uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Parent process.
    pub(super) parent: i32,
    /// Process group.
    pub(super) group: i32,
    /// CPU time of the process and of its children that it has waited for, in clock ticks.
    pub(super) ticks: u64,
    /// Resident memory in pages, shared pages included.
    pub(super) resident_pages: u64,
}

/// Reads `/proc/<pid>/stat`; also works for a process that has exited and has not been reaped.
pub(super) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The fields of proc_pid_stat(5) from the third on. The name in the second may hold spaces and parentheses, so they are
/// counted from the last `)`.
fn fields(text: &str) -> Option<Vec<&str>> {
    Some(text.rsplit_once(')')?.1.split_ascii_whitespace().collect())
}

fn parse_stat(text: &str) -> Option<Stat> {
    let fields = fields(text)?;
    let field = |number: usize| fields.get(number - 3);
    let times = parse_times(text)?;
    Some(Stat {
        parent: field(4)?.parse().ok()?,
        group: field(5)?.parse().ok()?,
        ticks: times.own.checked_add(times.children)?,
        resident_pages: field(24)?.parse().ok()?,
    })
}

/// CPU time of a process in clock ticks, user and system together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// All its threads, those that have ended too; user and system are each rounded down.
    pub(super) own: u64,
    /// Its children that have ended and that it has waited for, and theirs.
    pub(super) children: u64,
}

/// Reads the CPU times of `/proc/<pid>/stat`.
pub(super) fn times(pid: i32) -> Option<Times> {
    parse_times(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_times(text: &str) -> Option<Times> {
    let fields = fields(text)?;
    let sum = |first: usize| {
        let of = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        of(first)?.checked_add(of(first + 1)?)
    };
    Some(Times { own: sum(14)?, children: sum(16)? })
}

/// The figures of `/proc/<pid>/status` that the kit uses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Memory {
    /// Resident now.
    pub(super) resident: u64,
    /// Most that was resident since the process began, or since [`restart_peak`].
    pub(super) peak: u64,
}

/// Reads `/proc/<pid>/status`.
pub(super) fn memory(pid: i32) -> Option<Memory> {
    parse_memory(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_memory(text: &str) -> Option<Memory> {
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
    };
    Some(Memory { resident: bytes("VmRSS")?, peak: bytes("VmHWM")? })
}

/// Lets the kernel count a process's peak from now on; false if it does not.
pub(super) fn restart_peak(pid: i32) -> bool {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").is_ok()
}

/// Every process, with its figures.
fn all() -> Vec<(i32, Stat)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// Processes of a worker: its group, and all their descendants, in whatever group those are.
pub(super) fn family(leader: i32) -> Vec<i32> {
    family_of(leader, &all())
}

/// As [`family`], and with them the processes whose parents have ended and that `heir` has inherited, unless they are
/// its own `children`: whoever lets go of a process does not get rid of it.
pub(super) fn family_and_orphans(leader: i32, heir: i32, children: &BTreeSet<i32>) -> Vec<i32> {
    let all = all();
    let mut found = family_of(leader, &all);
    if found.is_empty() {
        return found;
    }
    for (pid, stat) in &all {
        if stat.parent == heir && !children.contains(pid) {
            found.extend(family_of(*pid, &all));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn family_of(leader: i32, all: &[(i32, Stat)]) -> Vec<i32> {
    let mut members: BTreeSet<i32> = all
        .iter()
        .filter(|(pid, stat)| *pid == leader || stat.group == leader)
        .map(|(pid, _)| *pid)
        .collect();
    loop {
        let before = members.len();
        let born = all.iter().filter(|(_, stat)| members.contains(&stat.parent)).map(|(pid, _)| *pid);
        let born: Vec<i32> = born.collect();
        members.extend(born);
        if members.len() == before {
            return members.into_iter().collect();
        }
    }
}

/// Seconds of CPU time for clock ticks.
pub(super) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / rustix::param::clock_ticks_per_second().max(1) as f64
}

/// Bytes of so many pages.
pub(super) fn bytes(pages: u64) -> u64 {
    pages.saturating_mul(rustix::param::page_size() as u64)
}

/// The name of a signal, `signal 34` and the like for those without one.
pub(super) fn signal_name(signal: i32) -> String {
    const NAMES: [(Signal, &str); 18] = [
        (Signal::HUP, "SIGHUP"),
        (Signal::INT, "SIGINT"),
        (Signal::QUIT, "SIGQUIT"),
        (Signal::ILL, "SIGILL"),
        (Signal::TRAP, "SIGTRAP"),
        (Signal::ABORT, "SIGABRT"),
        (Signal::BUS, "SIGBUS"),
        (Signal::FPE, "SIGFPE"),
        (Signal::KILL, "SIGKILL"),
        (Signal::USR1, "SIGUSR1"),
        (Signal::SEGV, "SIGSEGV"),
        (Signal::USR2, "SIGUSR2"),
        (Signal::PIPE, "SIGPIPE"),
        (Signal::ALARM, "SIGALRM"),
        (Signal::TERM, "SIGTERM"),
        (Signal::XCPU, "SIGXCPU"),
        (Signal::XFSZ, "SIGXFSZ"),
        (Signal::SYS, "SIGSYS"),
    ];
    let name = NAMES.iter().find(|(known, _)| known.as_raw() == signal);
    name.map_or_else(|| format!("signal {signal}"), |&(_, name)| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_do_not_shift_the_fields() {
        let text = "42 (a) R 9 9 (b) S 1 77 77 0 -1 4194560 1 0 0 0 10 20 3 4 20 0 1 0 5 999 250 18446 1 1";
        assert_eq!(parse_stat(text), Some(Stat { parent: 1, group: 77, ticks: 37, resident_pages: 250 }));
        assert_eq!(parse_times(text), Some(Times { own: 30, children: 7 }));
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "Name:\tVmRSS: 1 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        assert_eq!(parse_memory(text), Some(Memory { resident: 1 << 20, peak: 2 << 20 }));
        for text in ["", "VmHWM: 1 kB", "VmHWM: 1 kB\nVmRSS: x kB", "VmHWM: 1\nVmRSS: 1 kB"] {
            assert_eq!(parse_memory(text), None, "{text}");
        }
    }

    #[test]
    fn short_and_odd_lines_are_refused() {
        for text in ["", "1 (x", "1 (x) R 1 2", "1 (x) R 1 z 1 0 -1 0 1 0 0 0 1 2 3 4 20 0 1 0 5 9 250"] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
        for text in [
            "",
            "1 (x",
            "1 (x) R 4 5 6 7 8 9 10 11 12 13 14 15 16",
            "1 (x) R 4 5 6 7 8 9 10 11 12 13 14 15 -1 2",
        ] {
            assert_eq!(parse_times(text), None, "{text}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_found() {
        let pid = std::process::id() as i32;
        let own = stat(pid).expect("own stat");
        assert!(own.resident_pages > 0);
        assert!(family(own.group).contains(&pid) || family(pid).contains(&pid));
        assert_eq!(stat(i32::MAX), None);
    }

    #[test]
    fn descendants_in_other_groups_and_orphans_belong_to_the_worker() {
        let process =
            |pid: i32, parent: i32, group: i32| (pid, Stat { parent, group, ticks: 0, resident_pages: 0 });
        let all = [
            process(10, 1, 10),
            process(20, 10, 20),
            process(21, 20, 20),
            process(30, 21, 30),
            process(31, 30, 31),
            process(40, 10, 40),
        ];
        assert_eq!(family_of(20, &all), [20, 21, 30, 31]);
        assert_eq!(family_of(40, &all), [40]);
        assert_eq!(family_of(99, &all), [0i32; 0]);
    }

    #[test]
    fn signals_have_their_names() {
        assert_eq!(signal_name(11), "SIGSEGV");
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(31), "SIGSYS");
        assert_eq!(signal_name(34), "signal 34");
        assert_eq!(signal_name(0), "signal 0");
    }
}
