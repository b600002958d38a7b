//! The conformance run: from flags to an exit code.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use modelbench_contract::Class;
use modelbench_evidence::gate::{self, GateVerdict};
use modelbench_evidence::keys::{self, PrivateKey};
use modelbench_evidence::label::{self, Label};
use modelbench_evidence::outcome::Verdict;
use modelbench_evidence::publish::{self, Published, ROW_FILE};
use modelbench_evidence::time;

use super::args::{RequiredLabel, RunArgs};
use super::failure::Failure;
use super::{exit, load, told};
use crate::report::{self, Progress, RecordSink, Style, Summary};
use crate::runner::{self, Candidate, Knowledge, Order, Plan, Ran, RunError, Sink};
use crate::suite::{self, Case};

pub(super) fn run(args: &RunArgs) -> Result<u8, Failure> {
    let candidate = args.candidate.candidate()?;
    let backend = candidate.backend.clone();
    told::check_mode(args)?;
    let suites = load::suites(args.suites.as_deref())?;
    let set = suites.set(&args.set)?;
    let full_cases = suites.set("full")?.file.cases;
    let mut cases = set.cases.clone();
    if let Some(pattern) = &args.filter {
        let filter = suite::glob(pattern)?;
        cases.retain(|case| filter.is_match(&case.id));
        if cases.is_empty() {
            let text = format!(
                "no case of set {} matches {pattern:?}; modelbench list cases shows their ids",
                set.name
            );
            return Err(Failure::message(exit::NOTHING, text));
        }
    }
    let model = runner::Subject::open(args.model.as_deref())?;
    let key = match &args.key {
        Some(path) => PrivateKey::load(path)?,
        None => keys::per_user_key(&config_dir()?)?,
    };
    let own = [runner::own_binary().map_err(|e| Failure::new(exit::NOTHING, e))?];
    let challenged = told::challenge(args.challenge.as_deref(), &backend, &own, &suites.digest)?;
    let expected = told::baseline(args, &backend, &suites.cases)?;
    let waivers = if args.waiver.is_empty() { Vec::new() } else { waivers(args, &candidate, &key, &cases)? };
    let folder = folder(args, &backend)?;

    let plan = Plan {
        candidate,
        set: &set,
        full_cases,
        suite_digest: suites.digest.clone(),
        suite_is_kit: suites.is_kit(),
        cases,
        order: Order::Seeded,
        filter: args.filter.clone(),
        knowledge: &mut Knowledge::new(model),
        seed: challenged.as_ref().map_or(args.seed, |challenged| challenged.seed),
        mode: args.mode,
        expected,
        waivers,
        retries: args.retries,
        challenge: challenged.map(|challenged| challenged.reference),
        require_non_reference: args.require_non_reference,
        require_hardware: args.require_hardware,
        enough_regressions: None,
    };
    let mut record = RecordSink::create(&folder)?;
    let mut bar = Progress::new();
    let watched = !args.quiet && !args.json && std::io::stderr().is_terminal();
    let finished = {
        let mut sinks: Vec<&mut dyn Sink> = vec![&mut record];
        if watched {
            sinks.push(&mut bar);
        }
        runner::run(plan, &mut sinks)
    };
    drop(bar);
    let Ran { header, cases, measured } = finished.map_err(|e| discard(&folder, e))?;
    let results = record.finish(&time::format(SystemTime::now())?)?;
    let row = match publish::write_run(&folder, &results, &key)? {
        Published::Row(row) => Some((row.row, row.keyid)),
        Published::ResultsOnly => None,
    };
    let gate = gate::decide(&header, &cases, measured.as_ref());
    let derived = label::derive(&header, &cases, &gate);
    let repro = repro_flags(args);
    let summary = Summary { header, cases, gate, derived, folder, row, repro };
    let code = exit_code(args, &summary);
    show(args, &summary, code)?;
    Ok(code)
}

/// Waivers for the backend on the device that it finds here.
fn waivers(
    args: &RunArgs,
    candidate: &Candidate,
    key: &PrivateKey,
    cases: &[Case],
) -> Result<Vec<String>, Failure> {
    let identity = candidate.identify().map_err(|e| Failure::new(exit::NOT_LOADED, e))?;
    let maintainers = told::maintainers(&args.maintainer)?;
    let signer = key.public_key().keyid();
    told::waivers(&args.waiver, &maintainers, &signer, &identity.name, &identity.device.hardware, cases)
}

/// Creates the run folder. One that already holds a run is refused, so that nothing is overwritten.
fn folder(args: &RunArgs, backend: &str) -> Result<PathBuf, Failure> {
    let folder = match &args.out {
        Some(dir) => dir.clone(),
        None => {
            let stamp = time::format(SystemTime::now())?.replace(':', "-");
            Path::new("reports/runs").join(format!("{stamp}-{}", backend.replace(':', "-")))
        }
    };
    for name in [ROW_FILE, modelbench_evidence::results::RESULTS_FILE] {
        if folder.join(name).exists() {
            let text = format!("{} already holds {name}; give another folder with -out", folder.display());
            return Err(Failure::message(exit::USAGE, text));
        }
    }
    std::fs::create_dir_all(&folder)
        .map_err(|e| Failure::message(exit::USAGE, format!("cannot create {}: {e}", folder.display())))?;
    Ok(folder)
}

/// A run that did not end leaves neither a row nor an empty folder.
fn discard(folder: &Path, error: RunError) -> Failure {
    let code = match &error {
        RunError::NotLoaded { .. } => exit::NOT_LOADED,
        RunError::Kit(_) | RunError::Sink(_) => exit::NOTHING,
    };
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.metadata().is_ok_and(|m| m.len() == 0) {
            // An empty unfinished record says nothing; failing to remove it loses nothing.
            let _ = std::fs::remove_file(entry.path());
        }
    }
    // Succeeds only if the folder is empty.
    let _ = std::fs::remove_dir(folder);
    Failure::new(code, error)
}

fn config_dir() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("XDG_CONFIG_HOME")
        .or_else(|| Some(set("HOME")?.join(".config")))
        .map(|dir| dir.join("modelbench"))
        .ok_or_else(|| {
            Failure::message(exit::USAGE, "neither HOME nor XDG_CONFIG_HOME is set; give a key with -key")
        })
}

fn repro_flags(args: &RunArgs) -> String {
    let mut flags = String::new();
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            flags.push_str(&format!(" -{name} {value}"));
        }
    };
    let path = |p: &Option<PathBuf>| p.as_ref().map(|p| format!("'{}'", p.display()));
    add("model", path(&args.model));
    add("suites", path(&args.suites));
    add("device", args.candidate.device.as_ref().map(|device| format!("'{device}'")));
    if args.candidate.self_test {
        flags.push_str(" -self-test");
    }
    flags
}

fn exit_code(args: &RunArgs, summary: &Summary) -> u8 {
    let failed = summary.derived.failed_cases();
    let gate_failed = summary.gate.required && summary.gate.verdict == GateVerdict::Failed;
    let applicable: u64 = summary.derived.rungs.iter().map(|rung| rung.applicable).sum();
    let ran: u64 = applicable - summary.derived.rungs.iter().map(|rung| rung.not_run).sum::<u64>();
    let missing = args.filter.is_none() && (summary.cases.len() as u64) < summary.header.suite.cases;
    if ran == 0 {
        exit::NOTHING
    } else if gate_failed {
        exit::GATE
    } else if missing {
        exit::INCOMPLETE
    } else if summary.cases.iter().any(|case| case.verdict == Verdict::UnexpectedPass) {
        // A list that is wrong would hide the next failure of its cases.
        exit::FAILED
    } else if args.filter.is_some() {
        // A filtered run has no label; it answers whether the chosen cases hold.
        if failed == 0 { exit::OK } else { exit::FAILED }
    } else {
        let require = args.require.map(|label| match label {
            RequiredLabel::Reference => Label::Reference,
            RequiredLabel::Approx => Label::Approx,
            RequiredLabel::Partial => Label::Partial,
        });
        let met = label::meets(summary.derived.accepted, require, &summary.header.suite.set, failed);
        if met { exit::OK } else { exit::FAILED }
    }
}

fn show(args: &RunArgs, summary: &Summary, code: u8) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let style = Style::detect();
    if args.json {
        writeln!(out, "{}", summary.json(code))
    } else if args.quiet {
        report::verdict(summary, &mut out, style)
    } else {
        report::print(summary, &mut out, style)?;
        if args.numerics {
            writeln!(out)?;
            report::print_numerics(summary, &mut out, style)?;
        }
        if summary.header.backend.class == Class::Reference && summary.gate.required {
            writeln!(out, "cpu-ref is the reference: it cannot show that it is not")?;
        }
        if code == exit::OK { Ok(()) } else { writeln!(out, "exit       {code}") }
    }
}
