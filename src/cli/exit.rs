//! Exit codes, each with one meaning.

/// The label is as required.
pub(super) const OK: u8 = 0;
/// Conformance failed, or the label is below what `-require` asks for.
pub(super) const FAILED: u8 = 1;
/// Usage: a flag, an unknown backend, a bad suite or model.
pub(super) const USAGE: u8 = 2;
/// The non-reference gate failed.
pub(super) const GATE: u8 = 3;
/// Nothing ran, or not enough evidence was gathered.
pub(super) const NOTHING: u8 = 4;
/// The run is incomplete: cases are missing.
pub(super) const INCOMPLETE: u8 = 5;
/// The backend could not be loaded.
pub(super) const NOT_LOADED: u8 = 6;
/// A signature or a piece of evidence was rejected.
pub(super) const REJECTED: u8 = 7;
/// What `--help` prints.
pub(super) const HELP: &str = "\
Exit codes:
  0   the label is as required
  1   conformance failed, or the label is below -require
  2   usage: a flag, an unknown backend or set, a bad suite or model
  3   the non-reference gate failed
  4   nothing ran, or not enough evidence
  5   the run is incomplete: cases are missing
  6   the backend could not be loaded
  7   a signature or a piece of evidence was rejected
  128+n  ended by signal n";
