//! Evidence: from the lines of a run to a signed support row, and back.
//!
//! The direction is always the same. [`results`] is the one record of a run; [`gate`] and [`label`] are pure
//! functions of it; [`row`] and [`statement`] render it; [`dsse`], [`bundle`] and [`keys`] sign it; [`publish`] writes
//! the files and [`verify`] walks the same way again and refuses on any difference. No label, count or verdict is ever
//! an input.
//!
//! What others say about a run is signed by them: a [`challenge`] by the verifier who wants fresh inputs (its
//! [`ledger`] lets each count once), a [`waiver`] by a maintainer, a countersignature ([`countersign`]) by who ran the
//! subject again. The run is also told in the words of others: [`testresult`] and [`vsa`]. [`diff`] says what changed
//! between two records.

pub mod bundle;
pub mod challenge;
pub mod claims;
pub mod companions;
pub mod counters;
pub mod countersign;
pub mod diff;
pub mod document;
pub mod dsse;
pub mod expected;
mod files;
pub mod folder;
pub mod gaps;
pub mod gate;
pub mod intoto;
pub mod json;
pub mod keys;
pub mod label;
pub mod ledger;
pub mod load;
pub mod measured;
mod measured_checks;
pub mod mode;
pub mod numerics;
pub mod outcome;
pub mod period;
pub mod pins;
pub mod publish;
pub mod record;
mod record_checks;
pub mod results;
pub mod row;
pub mod statement;
pub mod subjects;
pub mod testresult;
pub mod tier;
pub mod time;
pub mod tree;
pub mod ttl;
pub mod verify;
pub mod vsa;
pub mod waiver;
