//! Behaviours that end or stop the worker. They must only run in a process of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use modelbench_contract::{BackendError, DeviceTensor, Op};
use signal_hook::consts::{SIGSEGV, SIGTERM};

use crate::twist::{Call, Twist};

type Answer = Result<(), BackendError>;

/// Dies of SIGSEGV in `matmul` with 33 outputs, so that only some cases are hit.
#[derive(Debug)]
pub(crate) struct CrashSegv;

impl Twist for CrashSegv {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        let outputs = call.inputs.first().and_then(|w| w.desc().shape.first().copied());
        if call.op == Op::Matmul && outputs == Some(33) {
            // The runtime's own handler takes the first one for a stray and restores the default action.
            for _ in 0..2 {
                let _ = signal_hook::low_level::raise(SIGSEGV);
            }
            std::process::abort();
        }
        Ok(())
    }
}

/// Aborts in `rope`.
#[derive(Debug)]
pub(crate) struct CrashAbort;

impl Twist for CrashAbort {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        if call.op == Op::Rope {
            eprintln!("mock: giving up in rope");
            std::process::abort();
        }
        Ok(())
    }
}

/// Ends with exit code 0 in `swiglu`, as if all were done.
#[derive(Debug)]
pub(crate) struct ExitZero;

impl Twist for ExitZero {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        if call.op == Op::Swiglu {
            std::process::exit(0);
        }
        Ok(())
    }
}

/// Never returns from `rms_norm`.
#[derive(Debug)]
pub(crate) struct Hang {
    /// True if it ignores SIGTERM as well.
    pub(crate) stubborn: bool,
}

impl Twist for Hang {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        if call.op != Op::RmsNorm {
            return Ok(());
        }
        if self.stubborn {
            signal_hook::flag::register(SIGTERM, Arc::new(AtomicBool::new(false)))
                .map_err(|error| BackendError::internal(format!("SIGTERM cannot be ignored: {error}")))?;
        }
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
}

/// Allocates and touches memory in `add_bias` until something stops it.
#[derive(Debug)]
pub(crate) struct Balloon;

impl Twist for Balloon {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        if call.op != Op::AddBias {
            return Ok(());
        }
        let mut hoard: Vec<Vec<u8>> = Vec::new();
        loop {
            hoard.push(vec![hoard.len() as u8 | 1; 16 << 20]);
            // Fast enough to be a balloon, slow enough to be caught before the machine itself is out of memory.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Panics in `rope`.
#[derive(Debug)]
pub(crate) struct Panic;

impl Twist for Panic {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        assert!(call.op != Op::Rope, "mock: panics in rope on purpose");
        Ok(())
    }
}

/// Prints much, some of it looking like the protocol, and works honestly.
#[derive(Debug)]
pub(crate) struct Noisy;

impl Twist for Noisy {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        println!("MODELBENCH {{\"kind\":\"ok\",\"op\":\"{}\"}}", call.op);
        eprintln!("warning: {} {}", call.op, "x".repeat(1000));
        Ok(())
    }
}

/// Answers `argmax` with bytes that are not the protocol.
#[derive(Debug, Default)]
pub(crate) struct GarbageFrame {
    armed: Arc<AtomicBool>,
}

impl Twist for GarbageFrame {
    fn before(&mut self, call: &Call<'_>) -> Answer {
        if call.op == Op::Argmax {
            self.armed.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
    fn garbling(&self) -> Option<Arc<AtomicBool>> {
        Some(Arc::clone(&self.armed))
    }
}
