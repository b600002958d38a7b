//! `modelbench diff`: what changed between two runs.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;

use modelbench_contract::Cap;
use modelbench_evidence::diff::{self, Change, Diff, RatioChange};
use modelbench_evidence::load::{self, LoadError};
use modelbench_evidence::results::{Results, ResultsError};
use serde_json::json;

use super::args_attest::DiffArgs;
use super::exit;
use super::failure::Failure;

/// Lines of one kind that are printed; `-json` has them all.
const SHOWN: usize = 20;

pub(super) fn run(args: &DiffArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let (first, second) = (open(&args.first)?, open(&args.second)?);
    let found = diff::diff(&first, &second)?;
    if args.json {
        let line = json!({
            "sameOutcomes": found.same_outcomes(), "first": first.sha256, "second": second.sha256, "diff": found,
        });
        writeln!(out, "{line}")?;
    } else {
        for (name, path, results) in [("first", &args.first, &first), ("second", &args.second, &second)] {
            let (backend, set) = (&results.header.backend, &results.header.suite.set);
            writeln!(out, "{name:<10} {} {}, {set}   {}", backend.name, backend.version, path.display())?;
        }
        print(&found, out)?;
    }
    Ok(if found.same_outcomes() { exit::OK } else { exit::FAILED })
}

fn open(path: &Path) -> Result<Results, Failure> {
    load::results(path).map_err(|error| {
        let code = match &error {
            LoadError::Read { .. } => exit::USAGE,
            LoadError::Results { source: ResultsError::Incomplete { .. }, .. } => exit::INCOMPLETE,
            _ => exit::REJECTED,
        };
        Failure::new(code, error)
    })
}

fn print(found: &Diff, out: &mut impl Write) -> io::Result<()> {
    let inputs = if found.same_inputs {
        "the same seed, suites and model"
    } else {
        "other seed, suites or model: other bits and errors are to be expected"
    };
    writeln!(out, "inputs     {inputs}")?;
    let change = |Change { path, before, after }: &Change| format!("{path}   {before} -> {after}");
    list(out, "claim", &found.claims, change)?;
    let caps = |sign: char, caps: &[Cap]| -> Vec<String> {
        caps.iter().map(|cap| format!("{sign}{}", cap.as_str())).collect()
    };
    list(out, "cap", &[caps('+', &found.caps_added), caps('-', &found.caps_removed)].concat(), Clone::clone)?;
    list(out, "header", &found.header, change)?;
    list(out, "gone", &found.only_first, Clone::clone)?;
    list(out, "new", &found.only_second, Clone::clone)?;
    list(out, "outcome", &found.outcomes, |o| {
        format!("{}   {} -> {}", o.id, o.before.as_str(), o.after.as_str())
    })?;
    list(out, "bits", &found.bits, Clone::clone)?;
    list(out, "error", &found.ratios, |RatioChange { id, before, after, factor }| {
        let ratio = |ratio: &Option<f64>| ratio.map_or_else(|| "none".to_owned(), |r| format!("{r:.3}"));
        let factor = factor.map_or_else(String::new, |factor| format!("   x{factor:.2}"));
        format!("{id}   {} -> {} of its bound{factor}", ratio(before), ratio(after))
    })?;
    let verdict = if found.same_outcomes() { "the same outcomes" } else { "other outcomes" };
    let counts = format!(
        "{} cases of one side, {} other outcomes, {} with other bits, {} with another error",
        found.only_first.len() + found.only_second.len(),
        found.outcomes.len(),
        found.bits.len(),
        found.ratios.len()
    );
    writeln!(out, "{verdict}: {counts}")
}

/// Prints the first items of a list, and says how many more there are.
fn list<T, D: Display>(
    out: &mut impl Write,
    title: &str,
    items: &[T],
    text: impl Fn(&T) -> D,
) -> io::Result<()> {
    for item in items.iter().take(SHOWN) {
        writeln!(out, "{title:<10} {}", text(item))?;
    }
    if items.len() > SHOWN {
        writeln!(out, "{title:<10} … {} more; -json lists them all", items.len() - SHOWN)?;
    }
    Ok(())
}
