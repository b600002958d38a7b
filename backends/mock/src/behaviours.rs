//! The list of behaviours.

use modelbench_contract::Cap;

use crate::twist::{Honest, Twist};
use crate::{delegating, fatal, liars, numeric, shapes};

/// A behaviour that [`Mock::by_name`](crate::Mock::by_name) knows.
#[derive(Debug)]
pub struct Behaviour {
    /// Its name, without the prefix `mock:`.
    pub name: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    /// True if it may end or stop the process it runs in.
    pub fatal: bool,
    pub(crate) make: fn() -> Box<dyn Twist>,
}

const fn safe(name: &'static str, about: &'static str, make: fn() -> Box<dyn Twist>) -> Behaviour {
    Behaviour { name, about, fatal: false, make }
}

const fn fatal(name: &'static str, about: &'static str, make: fn() -> Box<dyn Twist>) -> Behaviour {
    Behaviour { name, about, fatal: true, make }
}

pub(crate) const BEHAVIOURS: &[Behaviour] = &[
    safe("honest", "computes everything by its own arithmetic, within bounds", || Box::new(Honest)),
    fatal("crash-segv", "dies of SIGSEGV in matmul with 33 outputs", || Box::new(fatal::CrashSegv)),
    fatal("crash-abort", "aborts in rope", || Box::new(fatal::CrashAbort)),
    fatal("exit-zero", "ends with exit code 0 in swiglu", || Box::new(fatal::ExitZero)),
    fatal("hang", "never returns from rms_norm", || Box::new(fatal::Hang { stubborn: false })),
    fatal("hang-sigterm", "never returns from rms_norm and ignores SIGTERM", || {
        Box::new(fatal::Hang { stubborn: true })
    }),
    fatal("balloon", "allocates and touches memory in add_bias until it is stopped", || {
        Box::new(fatal::Balloon)
    }),
    fatal("panic", "panics in rope", || Box::new(fatal::Panic)),
    safe("garbage-frame", "answers argmax with bytes that are not the protocol", || {
        Box::new(fatal::GarbageFrame::default())
    }),
    safe("noisy", "prints much to stdout and stderr and works honestly", || Box::new(fatal::Noisy)),
    safe("wrong-shape", "gives swiglu results one element too many per row", || Box::new(shapes::WrongShape)),
    safe("short-read", "reads one value too few of rms_norm results", || Box::new(shapes::ShortRead)),
    safe("off-by-one-element", "shifts the results of products by one element", || {
        Box::new(shapes::OffByOneElement)
    }),
    safe("drops-tail", "leaves the last element of every row of a product at zero", || {
        Box::new(shapes::DropsTail)
    }),
    safe("input-modified", "matmul changes its input x", || Box::new(shapes::InputModified::default())),
    safe("stale-output", "rope gives the result of the call before", || {
        Box::new(shapes::StaleOutput::default())
    }),
    safe("flaky", "refuses every tenth call", || Box::new(shapes::Flaky::default())),
    safe("nan", "puts one NaN into the results of products", || Box::new(numeric::Nan)),
    safe("huge-element", "puts one finite 1e30 into the results of products", || {
        Box::new(numeric::HugeElement)
    }),
    safe("low-precision", "keeps 8 bits of products and declares f32", || Box::new(numeric::LowPrecision)),
    safe("gelu-for-silu", "computes GELU where SiLU is asked for", || Box::new(numeric::GeluForSilu)),
    safe("eps-outside-root", "adds eps outside the root of rms_norm", || Box::new(numeric::EpsOutsideRoot)),
    safe("interleaved-rope", "rotates neighbours instead of halves", || Box::new(numeric::InterleavedRope)),
    safe("ignores-mask", "attention ignores the causal mask", || Box::new(numeric::IgnoresMask)),
    safe("ignores-scale", "attention leaves the scale out", || Box::new(numeric::IgnoresScale)),
    safe("argmax-last", "argmax gives the last maximum", || Box::new(numeric::ArgmaxLast)),
    safe("evict-keeps-keys", "evict keeps the old keys of survivors", || Box::new(numeric::EvictKeepsKeys)),
    safe("nondeterministic", "products differ from call to call and determinism is declared", || {
        Box::new(numeric::Nondeterministic::default())
    }),
    safe("returns-reference-bits", "hands every op to cpu-ref and claims Approx", || {
        Box::new(delegating::ReturnsReferenceBits)
    }),
    safe("delegates-everything", "has residency and nothing else", || {
        Box::new(delegating::DelegatesEverything)
    }),
    safe("delegates-matmul", "lacks matmul and batched_matmul", || Box::new(delegating::DelegatesMatmul)),
    safe("delegates-swiglu", "lacks swiglu", || Box::new(delegating::DelegatesSwiglu)),
    safe("lies-about-upload-dtype", "advertises UploadDtype and keeps f32 values", || {
        Box::new(liars::AboutUploadDtype)
    }),
    safe("lies-about-device-memory", "advertises DeviceMemory and gives host views", || {
        Box::new(liars::AboutCap(Cap::DeviceMemory))
    }),
    safe("lies-about-collective", "advertises Collective and has none", || {
        Box::new(liars::AboutCap(Cap::Collective))
    }),
    safe("lies-about-class", "claims Reference and is not", || Box::new(liars::AboutClass)),
    safe("lies-about-device", "claims a discrete accelerator and uses the CPU", || {
        Box::new(liars::AboutDevice)
    }),
    safe("changing-identity", "has another tier and cap after twenty calls", || {
        Box::new(liars::ChangingIdentity)
    }),
];
