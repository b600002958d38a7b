//! `modelbench list`: backends, suites, cases.

use std::io::Write;

use serde_json::json;

use super::args::{ListArgs, Listed};
use super::failure::Failure;
use super::load;
use crate::bundled::Bundled;
use crate::suite;

pub(super) fn run(args: &ListArgs, out: &mut impl Write) -> Result<u8, Failure> {
    match args.what {
        Listed::Backends => backends(args.json, out)?,
        Listed::Suites => suites(args, out)?,
        Listed::Cases => return cases(args, out),
    }
    Ok(super::exit::OK)
}

fn backends(as_json: bool, out: &mut impl Write) -> Result<(), Failure> {
    for backend in Bundled::LISTED {
        if as_json {
            writeln!(
                out,
                "{}",
                json!({ "name": backend.name(), "about": backend.about(), "source": "bundled" })
            )?;
        } else {
            writeln!(out, "{:<10} {}", backend.name(), backend.about())?;
        }
    }
    Ok(())
}

fn suites(args: &ListArgs, out: &mut impl Write) -> Result<(), Failure> {
    let suites = load::suites(args.suites.as_deref())?;
    for (path, why) in &suites.purposes {
        let (rung, stem) = (&path[..2], path[3..].trim_end_matches(".toml"));
        let count = suites.cases.iter().filter(|c| c.rung.as_str() == rung && c.family == stem).count();
        if args.json {
            writeln!(out, "{}", json!({ "suite": path, "cases": count, "why": why }))?;
        } else {
            writeln!(out, "{path:<26} {count:>5} cases  {why}")?;
        }
    }
    for name in suites.set_names() {
        let set = suites.set(&name)?;
        if args.json {
            writeln!(
                out,
                "{}",
                json!({ "set": name, "cases": set.file.cases, "digest": set.file.digest, "why": set.file.why })
            )?;
        } else {
            writeln!(out, "set {name:<22} {:>5} cases  {}", set.file.cases, set.file.why)?;
        }
    }
    if !args.json {
        writeln!(out, "digest {}", suites.digest)?;
    }
    Ok(())
}

fn cases(args: &ListArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let suites = load::suites(args.suites.as_deref())?;
    let set = suites.set(&args.set)?;
    let filter = args.filter.as_deref().map(suite::glob).transpose()?;
    let mut listed = 0;
    for case in set.cases.iter().filter(|case| filter.as_ref().is_none_or(|f| f.is_match(&case.id))) {
        listed += 1;
        if args.json {
            let group = &case.group;
            let line = json!({
                "id": case.id, "rung": case.rung.as_str(), "check": group.check, "params": case.params(),
                "input": group.input, "tolerance": group.tolerance, "proves": group.proves,
                "file": case.file, "line": case.line, "accepts": case.accepts,
            });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "{}", case.id)?;
        }
    }
    if listed == 0 {
        eprintln!("error: no case of set {} matches {}", args.set, args.filter.as_deref().unwrap_or("**"));
        return Ok(super::exit::NOTHING);
    }
    Ok(super::exit::OK)
}
