//! The binary from the outside: what it prints, which files it leaves, how it exits.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod attest;
mod caps;
mod evidence;
mod faults;
mod fingerprint;
mod gate;
mod numerics;
mod repeat;
mod run;
mod selftest;
mod told;
mod usage;
