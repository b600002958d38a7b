//! CPU time, to the nanosecond where the kernel gives it.

use std::fs;

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

use super::launch::launched;
use super::proc::{self, Times};

/// Most readings of a group whose members change while they are read, before the last one has to do.
const ATTEMPTS: usize = 4;

/// A reading of CPU time, user and system together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    /// Nanoseconds used so far.
    pub ns: u64,
    /// The reading is at most this many nanoseconds below the truth.
    pub resolution_ns: u64,
}

/// What the processes of the worker `leader` have used so far: its group with all descendants, and processes that this
/// program inherited because nobody else waits for them; all their threads, those that have ended too, and all children
/// that have ended and that one of them waited for. `None` if there is no such process or the operating system has no
/// `/proc`. With several workers at a time an inherited process counts for each of them.
///
/// A process whose parent never waits for it takes its share along when it ends, so a later reading may be smaller. When a thread ends, its exact figure gives way to the coarser one of its process, so a later reading may
/// be smaller by up to the resolution.
pub fn cpu_time(leader: u32) -> Option<CpuTime> {
    let group = i32::try_from(leader).ok()?;
    let mut members = sorted_members(group);
    // A child that ends between two looks would count twice or not at all: once as itself, once as waited for.
    for _ in 0..ATTEMPTS {
        let sum = sum_of(&members);
        let still = sorted_members(group);
        if members == still {
            return sum;
        }
        members = still;
    }
    sum_of(&members)
}

/// True if [`cpu_time`] can answer here.
pub fn cpu_time_available() -> bool {
    i32::try_from(std::process::id()).is_ok_and(|own| of_process(own).is_some())
}

/// What this process has used so far, all its threads together, without its children.
pub fn own_cpu_time() -> CpuTime {
    let resolution_ns = nanoseconds(clock_getres(ClockId::ProcessCPUTime)).max(1);
    CpuTime { ns: nanoseconds(clock_gettime(ClockId::ProcessCPUTime)), resolution_ns }
}

fn nanoseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

fn sorted_members(leader: i32) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    proc::family_and_orphans(leader, own, &launched())
}

fn sum_of(members: &[i32]) -> Option<CpuTime> {
    let mut found = members.iter().filter_map(|&pid| of_process(pid)).peekable();
    found.peek()?;
    Some(found.fold(CpuTime { ns: 0, resolution_ns: 0 }, |sum, one| CpuTime {
        ns: sum.ns.saturating_add(one.ns),
        resolution_ns: sum.resolution_ns.saturating_add(one.resolution_ns),
    }))
}

fn of_process(pid: i32) -> Option<CpuTime> {
    // The threads first: one that ends in between is then still in the times of the process.
    let threads = threads_ns(pid);
    let times = proc::times(pid)?;
    Some(combine(threads, times, tick_ns()))
}

/// Joins two views of a process. The scheduler's figures are exact and know only the threads that live; the times of
/// the process know all of them, in whole ticks, user and system each rounded down.
fn combine(threads: Option<u64>, times: Times, tick: u64) -> CpuTime {
    let ticks = |count: u64| count.saturating_mul(tick);
    let rounded = ticks(times.own);
    let own = threads.unwrap_or(0).max(rounded);
    let own_missing = rounded.saturating_add(ticks(2)).saturating_sub(own).max(1);
    let children_missing = if times.children == 0 { 0 } else { ticks(2) };
    CpuTime {
        ns: own.saturating_add(ticks(times.children)),
        resolution_ns: own_missing.saturating_add(children_missing),
    }
}

/// Nanoseconds that the living threads of a process have run, if the kernel keeps these figures.
fn threads_ns(pid: i32) -> Option<u64> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ran = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("schedstat")).ok());
    ran.filter_map(|text| run_time(&text)).reduce(u64::saturating_add)
}

/// The first field of a `schedstat` file: time on the CPU in nanoseconds.
fn run_time(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn tick_ns() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: u64 = 10_000_000;

    fn times(own: u64, children: u64) -> Times {
        Times { own, children }
    }

    #[test]
    fn the_larger_of_two_views_counts_and_the_rest_is_the_resolution() {
        // Exact figures of living threads, inside the two ticks that rounding may have cut.
        let exact = combine(Some(75_000_000), times(6, 0), TICK);
        assert_eq!(exact, CpuTime { ns: 75_000_000, resolution_ns: 5_000_000 });
        // Threads that have ended: only the ticks know.
        let ended = combine(Some(1_000), times(50, 0), TICK);
        assert_eq!(ended, CpuTime { ns: 50 * TICK, resolution_ns: 2 * TICK });
        let coarse = combine(None, times(3, 0), TICK);
        assert_eq!(coarse, CpuTime { ns: 3 * TICK, resolution_ns: 2 * TICK });
        let children = combine(Some(5), times(0, 7), TICK);
        assert_eq!(children, CpuTime { ns: 7 * TICK + 5, resolution_ns: 4 * TICK - 5 });
        assert_eq!(combine(Some(u64::MAX), times(1, u64::MAX), TICK).ns, u64::MAX);
    }

    #[test]
    fn a_schedstat_line_gives_its_first_field() {
        assert_eq!(run_time("74664237 68066136 165\n"), Some(74_664_237));
        for text in ["", "x 1 2", "-5 1 2", "99999999999999999999 0 0"] {
            assert_eq!(run_time(text), None, "{text}");
        }
    }

    #[test]
    fn the_time_of_this_process_grows_with_work_in_other_threads() {
        let before = own_cpu_time();
        let worker = std::thread::spawn(move || {
            // Ends by what it measures, not after a number of rounds that an optimiser or a busy machine could change.
            while own_cpu_time().ns < before.ns + 3_000_000 {
                std::hint::black_box((0..1000u64).sum::<u64>());
            }
        });
        worker.join().expect("thread");
        assert!(own_cpu_time().ns >= before.ns + 3_000_000);
        assert!(before.resolution_ns > 0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod group_tests {
    use std::io::{Read, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// A shell in a group of its own that answers a line when its script has run.
    fn shell(script: &str) -> Child {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        command.spawn().expect("sh starts")
    }

    fn line(child: &mut Child) {
        let mut byte = [0u8; 1];
        child.stdout.as_mut().expect("piped").read_exact(&mut byte).expect("the script answers");
    }

    fn end(mut child: Child) {
        child.stdin.take().expect("piped").write_all(b"\n").expect("the script waits for a line");
        child.wait().expect("the script ends");
    }

    #[test]
    fn burning_processes_are_seen_and_never_run_backwards() {
        let mut child = shell(
            "(while :; do :; done) & a=$!; (while :; do :; done) & b=$!; echo; read x; kill $a $b; wait",
        );
        line(&mut child);
        let mut last = cpu_time(child.id()).expect("a reading");
        // Two loops run until they are told to end, so the time grows however busy the machine is.
        let goal = last.ns + 100_000_000;
        while last.ns < goal {
            std::thread::yield_now();
            let next = cpu_time(child.id()).expect("a reading");
            assert!(next.ns >= last.ns, "{last:?} {next:?}");
            last = next;
        }
        end(child);
    }

    #[test]
    fn children_that_ended_still_count() {
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut child = shell(&format!("({count}); echo; read x"));
        line(&mut child);
        let id = child.id();
        let mut group = proc::family(id as i32);
        assert_eq!(group.pop(), Some(id as i32));
        assert!(group.is_empty(), "the counting child has ended and was waited for: {group:?}");
        let own = of_process(id as i32).expect("a reading");
        let children = proc::times(id as i32).expect("times").children;
        assert!(children > 0, "300000 rounds of a shell loop take more than a clock tick");
        assert!(own.ns >= children * tick_ns(), "{own:?} {children}");
        end(child);
    }

    /// The process clock knows every thread exactly, so it must bracket what is put together from `/proc`.
    #[test]
    fn the_clock_of_the_process_agrees_while_threads_run_and_after_they_ended() {
        let own = std::process::id() as i32;
        // Other tests of this process have children, which its clock leaves out.
        let read = || {
            let threads = threads_ns(own);
            let times = proc::times(own).expect("own times");
            combine(threads, Times { children: 0, ..times }, tick_ns())
        };
        let look = || (own_cpu_time().ns, read(), own_cpu_time().ns);
        let mut looks = Vec::new();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let start = own_cpu_time().ns;
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        std::hint::black_box((0..1000u64).sum::<u64>());
                    }
                });
            }
            while own_cpu_time().ns < start + 100_000_000 {
                std::thread::sleep(std::time::Duration::from_millis(5));
                looks.push(look());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        looks.push(look());
        for (low, read, high) in looks {
            assert!(read.ns + read.resolution_ns >= low, "{low} {read:?}");
            assert!(read.ns <= high, "{read:?} {high}");
        }
    }

    #[test]
    fn nobody_has_no_time() {
        assert_eq!(cpu_time(i32::MAX as u32), None);
        assert_eq!(cpu_time(u32::MAX), None);
    }
}
