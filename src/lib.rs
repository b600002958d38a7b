//! The harness of modelbench: suites in, evidence out.
//!
//! `ARCHITECTURE.md` tells the life of a case. The command line is [`cli`]; everything else is a library that knows
//! neither flags nor exit codes.

pub mod bundled;
pub mod cli;
pub mod compare;
pub mod inputs;
pub mod kit;
pub mod model;
pub mod oracle;
pub mod report;
pub mod runner;
pub mod selftest;
pub mod suite;
pub mod worker;
