//! What a device counted for a worker between two readings, and what that says about where the work ran.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Who counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The kernel, per open DRM device (`/proc/<pid>/fdinfo`).
    Drm,
    /// NVIDIA's management library, per process.
    Nvml,
    /// The backend itself. Nobody verified it; it decides nothing.
    Reported,
}

impl Source {
    /// The name used in records and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Drm => "drm",
            Source::Nvml => "nvml",
            Source::Reported => "reported",
        }
    }
}

/// What the two numbers of a counter are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Nanoseconds that an engine was busy; only ever grows.
    Ns,
    /// Cycles that an engine was busy; only ever grows.
    Cycles,
    /// Bytes of device memory held at the moment of the reading.
    Bytes,
    /// Largest share of an engine that one sample since the first reading shows, in percent. `before` is 0, because
    /// samples from before the first reading do not count.
    Percent,
}

impl Unit {
    /// The name used in records and summaries.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Ns => "ns",
            Unit::Cycles => "cycles",
            Unit::Bytes => "bytes",
            Unit::Percent => "%",
        }
    }
}

/// One figure of one device at two moments, summed over the worker's processes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counter {
    /// Who counted.
    pub source: Source,
    /// Driver and PCI address, or the name that the management library gives: `amdgpu 0000:03:00.0`.
    pub device: String,
    /// What was counted: `engine compute`, `memory vram`, `sm utilisation`.
    pub name: String,
    /// At the first reading, in `unit`.
    pub before: u64,
    /// At the second reading, in `unit`.
    pub after: u64,
    /// What the two numbers are.
    pub unit: Unit,
}

impl Counter {
    /// How much more the second reading shows; 0 if it shows less.
    pub fn growth(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counter { source, device, name, before, after, unit } = self;
        write!(f, "{} {device} {name}: {before} to {after} {}", source.as_str(), unit.as_str())
    }
}

/// Everything that was counted for a worker between two readings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CounterReading {
    /// The figures, sorted by source, device and name.
    pub counters: Vec<Counter>,
    /// Device files that the worker holds and whose work none of the counters would show, each with the reason. While
    /// there is one, engines that stayed idle refute nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uncounted: Vec<String>,
    /// One sentence for each source, or part of one, that gave no figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<String>,
}

/// What a reading over a known load says about the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worked {
    /// An engine of a device was busy for the worker: the load, or a part of it, ran there.
    Busy {
        /// Engine time that was added, all engines together, in nanoseconds.
        ns: u64,
        /// Busy cycles that were added, all engines together; drivers count time, cycles or both.
        cycles: u64,
        /// Largest utilisation seen since the first reading, in percent.
        percent: u64,
    },
    /// The engines of the worker's devices are counted, and none of them did anything: the load ran elsewhere.
    Idle {
        /// Engine counters that stood still.
        engines: u64,
    },
    /// No engine is counted, but the worker holds more device memory than before. Fits the claim and shows no work.
    Memory {
        /// Bytes that were added, all memories together.
        bytes: u64,
    },
    /// Nothing was measured from which work, or its absence, would follow.
    Unavailable,
}

/// Judges a reading that was taken around a load known to keep a device busy. Figures that the backend reported decide
/// nothing, and neither does a unit that its source does not count in.
///
/// [`Worked::Idle`] speaks about all of the worker's DRM clients together. A driver that was only opened while devices
/// were being listed is one of them, so this says where the load did not run, not on which device it should have run.
pub fn worked(reading: &CounterReading) -> Worked {
    let of = |source: Source, unit: Unit| {
        reading.counters.iter().filter(move |counter| counter.source == source && counter.unit == unit)
    };
    let grown = |source, unit| {
        of(source, unit).fold(0u64, |sum, counter: &Counter| sum.saturating_add(counter.growth()))
    };
    let (ns, cycles) = (grown(Source::Drm, Unit::Ns), grown(Source::Drm, Unit::Cycles));
    let percent = of(Source::Nvml, Unit::Percent).map(Counter::growth).max().unwrap_or(0);
    if ns > 0 || cycles > 0 || percent > 0 {
        return Worked::Busy { ns, cycles, percent };
    }
    let engines = of(Source::Drm, Unit::Ns).chain(of(Source::Drm, Unit::Cycles)).count() as u64;
    if engines > 0 && reading.uncounted.is_empty() {
        return Worked::Idle { engines };
    }
    match grown(Source::Drm, Unit::Bytes).saturating_add(grown(Source::Nvml, Unit::Bytes)) {
        0 => Worked::Unavailable,
        bytes => Worked::Memory { bytes },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(source: Source, unit: Unit, before: u64, after: u64) -> Counter {
        let (device, name) = ("amdgpu 0000:03:00.0".to_owned(), "engine compute".to_owned());
        Counter { source, device, name, before, after, unit }
    }

    fn reading(counters: &[(Source, Unit, u64, u64)]) -> CounterReading {
        let counters = counters.iter().map(|&(s, u, before, after)| counter(s, u, before, after)).collect();
        CounterReading { counters, ..CounterReading::default() }
    }

    #[test]
    fn engine_time_cycles_and_utilisation_are_work() {
        use Worked::Busy;
        for (counters, want) in [
            (vec![(Source::Drm, Unit::Ns, 5, 9)], Busy { ns: 4, cycles: 0, percent: 0 }),
            (
                vec![(Source::Drm, Unit::Ns, 5, 9), (Source::Drm, Unit::Ns, 1, 2)],
                Busy { ns: 5, cycles: 0, percent: 0 },
            ),
            (vec![(Source::Drm, Unit::Cycles, 0, 7)], Busy { ns: 0, cycles: 7, percent: 0 }),
            (
                vec![(Source::Nvml, Unit::Percent, 0, 31), (Source::Nvml, Unit::Percent, 0, 90)],
                Busy { ns: 0, cycles: 0, percent: 90 },
            ),
            // One engine that worked outweighs another that did not.
            (
                vec![(Source::Drm, Unit::Ns, 8, 8), (Source::Nvml, Unit::Percent, 0, 1)],
                Busy { ns: 0, cycles: 0, percent: 1 },
            ),
            (
                vec![(Source::Drm, Unit::Ns, 0, u64::MAX), (Source::Drm, Unit::Ns, 0, u64::MAX)],
                Busy { ns: u64::MAX, cycles: 0, percent: 0 },
            ),
        ] {
            assert_eq!(worked(&reading(&counters)), want, "{counters:?}");
        }
    }

    #[test]
    fn engines_that_stand_still_are_idle_whatever_memory_does() {
        for counters in [
            vec![(Source::Drm, Unit::Ns, 5, 5)],
            vec![(Source::Drm, Unit::Ns, 5, 3)],
            vec![(Source::Drm, Unit::Cycles, 0, 0), (Source::Drm, Unit::Bytes, 0, 1 << 20)],
            vec![(Source::Drm, Unit::Ns, 0, 0), (Source::Reported, Unit::Ns, 0, 1_000_000)],
        ] {
            assert!(matches!(worked(&reading(&counters)), Worked::Idle { engines: 1 }), "{counters:?}");
        }
    }

    #[test]
    fn a_device_that_nobody_counts_forbids_the_word_idle() {
        let mut hidden = reading(&[(Source::Drm, Unit::Ns, 5, 5)]);
        hidden.uncounted.push("/dev/kfd: its queues are not in fdinfo".to_owned());
        assert_eq!(worked(&hidden), Worked::Unavailable);
        hidden.counters.push(counter(Source::Drm, Unit::Ns, 0, 1));
        assert_eq!(worked(&hidden), Worked::Busy { ns: 1, cycles: 0, percent: 0 });
    }

    #[test]
    fn memory_alone_is_no_work() {
        for (counters, want) in [
            (vec![(Source::Nvml, Unit::Bytes, 10, 30)], Worked::Memory { bytes: 20 }),
            (vec![(Source::Drm, Unit::Bytes, 10, 30)], Worked::Memory { bytes: 20 }),
            (vec![(Source::Drm, Unit::Bytes, 30, 10)], Worked::Unavailable),
            (vec![(Source::Nvml, Unit::Percent, 0, 0)], Worked::Unavailable),
            (vec![], Worked::Unavailable),
        ] {
            assert_eq!(worked(&reading(&counters)), want, "{counters:?}");
        }
    }

    #[test]
    fn what_the_backend_reports_and_units_of_others_decide_nothing() {
        for unit in [Unit::Ns, Unit::Cycles, Unit::Bytes, Unit::Percent] {
            assert_eq!(worked(&reading(&[(Source::Reported, unit, 0, 9)])), Worked::Unavailable, "{unit:?}");
        }
        for (source, unit) in
            [(Source::Nvml, Unit::Ns), (Source::Nvml, Unit::Cycles), (Source::Drm, Unit::Percent)]
        {
            assert_eq!(worked(&reading(&[(source, unit, 0, 9)])), Worked::Unavailable, "{source:?} {unit:?}");
        }
    }

    #[test]
    fn a_reading_survives_json_and_unknown_fields_do_not() {
        let mut full = reading(&[(Source::Drm, Unit::Ns, 5, u64::MAX), (Source::Nvml, Unit::Percent, 0, 7)]);
        full.unavailable.push("reported: nothing".to_owned());
        let text = serde_json::to_string(&full).expect("json");
        assert!(text.contains(r#""source":"drm""#) && text.contains(r#""unit":"percent""#), "{text}");
        assert_eq!(serde_json::from_str::<CounterReading>(&text).expect("reading"), full);
        let more = text.replacen(r#""unit""#, r#""colour":1,"unit""#, 1);
        assert!(serde_json::from_str::<CounterReading>(&more).is_err());
        assert_eq!(
            full.counters[0].to_string(),
            format!("drm amdgpu 0000:03:00.0 engine compute: 5 to {} ns", u64::MAX)
        );
    }
}
