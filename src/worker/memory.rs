//! How much memory a worker holds, and the most that it held since a moment that the kit chooses.

use super::proc;

/// Looks at the memory of a worker's processes. The kernel keeps the peak, so that nothing is missed between looks.
#[derive(Debug, Clone, Copy)]
pub struct MemoryMeter {
    group: i32,
}

impl MemoryMeter {
    /// A meter for the process group that the worker leads.
    pub(super) fn new(leader: i32) -> MemoryMeter {
        MemoryMeter { group: leader }
    }

    /// Resident bytes of the worker's processes now. `None` where the operating system has no `/proc`.
    pub fn resident(self) -> Option<u64> {
        self.sum(|memory| memory.resident)
    }

    /// Most resident bytes since [`MemoryMeter::restart`], summed over the processes as if they had peaked together.
    pub fn peak(self) -> Option<u64> {
        self.sum(|memory| memory.peak)
    }

    /// Lets the peak begin at what is resident now. False if the kernel does not do that.
    pub fn restart(self) -> bool {
        let members = proc::family(self.group);
        !members.is_empty() && members.into_iter().all(proc::restart_peak)
    }

    fn sum(self, figure: impl Fn(proc::Memory) -> u64) -> Option<u64> {
        let members = proc::family(self.group);
        let found: Vec<u64> = members.into_iter().filter_map(proc::memory).map(figure).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_seen_after_it_is_over_and_forgotten_after_a_restart() {
        const MIB: u64 = 1 << 20;
        let own = std::process::id() as i32;
        let mut touched = vec![1u8; 256 << 20];
        std::hint::black_box(&mut touched);
        drop(touched);
        let held = |memory: proc::Memory| memory.peak.saturating_sub(memory.resident);
        let before = proc::memory(own).expect("own memory");
        assert!(held(before) > 128 * MIB, "{before:?}");
        assert!(proc::restart_peak(own));
        let after = proc::memory(own).expect("own memory");
        assert!(held(after) < 128 * MIB, "{before:?} {after:?}");
        assert_eq!(MemoryMeter::new(i32::MAX).resident(), None);
        assert!(!MemoryMeter::new(i32::MAX).restart());
    }
}
