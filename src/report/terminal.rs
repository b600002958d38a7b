//! A finished run for people.

use std::io::{self, Write};

use modelbench_contract::DeviceKind;
use modelbench_evidence::gaps::GapKind;
use modelbench_evidence::gate::{GateVerdict, WitnessVerdict};
use modelbench_evidence::label::RungCount;
use modelbench_evidence::outcome::{Outcome, Verdict};
use modelbench_evidence::record::{CaseRecord, Header, Rung};

use super::style::{Paint, Style};
use super::summary::{Summary, short};

/// Failures shown in full; the others are counted and lie in the record.
const SHOWN: usize = 12;

/// Prints the table, the gate, the failures, the label and where the row is.
///
/// # Errors
/// Whatever the writer says.
pub fn print(summary: &Summary, out: &mut impl Write, style: Style) -> io::Result<()> {
    head(summary, out)?;
    table(summary, out, style)?;
    failures(summary, out, style)?;
    gate(summary, out, style)?;
    verdict(summary, out, style)
}

/// Prints the label, the gaps and where the row is.
///
/// # Errors
/// Whatever the writer says.
pub fn verdict(summary: &Summary, out: &mut impl Write, style: Style) -> io::Result<()> {
    let label = summary.derived.earned;
    let good = label.is_more_than_partial();
    let paint = if good { Paint::Good } else { Paint::Bad };
    writeln!(out, "{} {}", style.paint(paint, &format!("{:<10}", label.as_str())), claim(summary))?;
    for gap in summary.derived.gaps.iter().filter(|gap| gap.kind != GapKind::Mode) {
        let told = gap.kind.is_excused() || gap.kind == GapKind::UnexpectedPass;
        let known = if told { format!("{}: ", gap.kind.as_str()) } else { String::new() };
        writeln!(out, "gap        {}: {known}{}", gap.id, gap.detail)?;
    }
    match &summary.row {
        Some((path, key)) => {
            let row = summary.derived.label;
            let mode = summary.header.mode.as_str();
            writeln!(
                out,
                "row        {}   ({}, mode {mode}, self-tested, key {key})",
                path.display(),
                row.as_str()
            )?;
            if row != label {
                writeln!(
                    out,
                    "           -mode certify with a verifier's -challenge publishes {}",
                    label.as_str()
                )?;
            }
            Ok(())
        }
        None => {
            writeln!(out, "results    {}   (no row: a filtered run claims nothing)", summary.folder.display())
        }
    }
}

fn claim(summary: &Summary) -> String {
    let scope = summary.scope();
    match summary.derived.earned.as_str() {
        "Reference" => format!("bit-equal to cpu-ref: {scope}"),
        "Approx" => format!("approximate-parity conformant: {scope}"),
        "PARTIAL" => format!("proven in part: {scope}"),
        _ => format!("nothing is claimed: {scope}"),
    }
}

fn head(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let header = &summary.header;
    let backend = &header.backend;
    let kind = match backend.device.kind {
        DeviceKind::Cpu => "cpu".to_owned(),
        DeviceKind::Software => "software device".to_owned(),
        kind => format!("{kind:?}").to_lowercase(),
    };
    writeln!(
        out,
        "backend    {} {} ({}, tier {})  on  {kind}: {}",
        backend.name,
        backend.version,
        backend.class.as_str(),
        backend.tier,
        backend.device.hardware
    )?;
    writeln!(out, "numerics   {}", super::numerics::head(summary))?;
    let model = &header.model;
    let layers = model.shape.get("layers").copied().unwrap_or(0);
    writeln!(
        out,
        "model      {} ({}, {layers} layers, {} parameters, {} golden)",
        model.name, model.family, model.parameters, model.golden
    )?;
    let suite = &header.suite;
    let kit = if suite.is_kit { "" } else { "  NOT the kit's" };
    writeln!(
        out,
        "suites     {} @ {}{kit}, {} cases   seed {}",
        suite.set,
        short(&suite.digest),
        suite.cases,
        header.seed
    )?;
    for told in told(header) {
        writeln!(out, "told       {told}")?;
    }
    writeln!(out)
}

/// What the run was told beforehand and what surrounds it, as far as that changes what its results mean.
fn told(header: &Header) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(challenge) = &header.challenge {
        told.push(format!("the challenge of {}, nonce {}", challenge.verifier, short(&challenge.nonce)));
    }
    if !header.expected.is_empty() {
        told.push(format!("{} entries in the list of known failures", header.expected.len()));
    }
    if !header.waivers.is_empty() {
        told.push(format!("{} waivers", header.waivers.len()));
    }
    if header.retries > 0 {
        told.push(format!("a case that fails is tried again, up to {} times", header.retries));
    }
    told.extend(header.interference.iter().map(|(name, value)| format!("{name} may interfere: {value}")));
    told
}

fn table(summary: &Summary, out: &mut impl Write, style: Style) -> io::Result<()> {
    writeln!(out, "rung             cases          time    worst error / bound")?;
    for count in summary.derived.rungs.iter().filter(|count| count.total > 0) {
        let name = format!("{} {}", count.rung.as_str().to_uppercase(), count.title);
        if count.applicable == 0 {
            writeln!(
                out,
                "{name:<16} not applicable ({} cases of caps that are not advertised)",
                count.total
            )?;
            continue;
        }
        let all = count.passed == count.applicable;
        let share = format!("{:<14}", format!("{}/{}", count.passed, count.applicable));
        let share = style.paint(if all { Paint::Good } else { Paint::Bad }, &share);
        writeln!(out, "{name:<16} {share} {:>5.1} s  {}", seconds(summary, count.rung), worst(count))?;
    }
    let missing: Vec<String> = summary
        .derived
        .rungs
        .iter()
        .filter(|count| count.total == 0)
        .map(|count| count.rung.as_str().to_uppercase())
        .collect();
    if !missing.is_empty() {
        writeln!(out, "not measured in this set: {}", missing.join(", "))?;
    }
    writeln!(out)
}

fn seconds(summary: &Summary, rung: Rung) -> f64 {
    summary.cases.iter().filter(|case| case.rung == rung).map(|case| case.ms as f64).sum::<f64>() / 1000.0
}

fn worst(count: &RungCount) -> String {
    count.worst.as_ref().map_or(String::new(), |(ratio, case)| format!("{ratio:<8.2} {case}"))
}

fn failures(summary: &Summary, out: &mut impl Write, style: Style) -> io::Result<()> {
    let failures: Vec<&CaseRecord> = summary.failures().collect();
    if failures.is_empty() {
        return Ok(());
    }
    writeln!(out, "{} cases do not support the claim", failures.len())?;
    for case in failures.iter().take(SHOWN) {
        let (mut what, detail) = describe(&case.outcome);
        if !case.tries.is_empty() {
            what += &format!("  (tried again after {})", case.tries.join(", "));
        }
        if case.verdict == Verdict::UnexpectedPass {
            what += "  although the list of known failures says that it fails: correct the list";
        }
        writeln!(out, "{}   {}", case.id, style.paint(Paint::Bad, &what))?;
        for line in detail.lines().take(8) {
            writeln!(out, "    {line}")?;
        }
        writeln!(out, "    again:  {}", summary.repro_line(&case.id))?;
    }
    if failures.len() > SHOWN {
        let path = summary.folder.join("results.jsonl");
        writeln!(out, "… {} more in {}", failures.len() - SHOWN, path.display())?;
    }
    writeln!(out)
}

/// An outcome as a word and its details.
pub fn describe(outcome: &Outcome) -> (String, String) {
    let name = outcome.as_str();
    let op = |op: &Option<String>| op.as_ref().map_or(String::new(), |op| format!(" in {op}"));
    let last = |stderr: &str| {
        if stderr.is_empty() { String::new() } else { format!("last lines of the worker:\n{stderr}") }
    };
    match outcome {
        Outcome::Pass => (name.into(), String::new()),
        Outcome::Mismatch { detail }
        | Outcome::Error { detail }
        | Outcome::Unsupported { detail }
        | Outcome::Mistrusted { detail } => (name.into(), detail.clone()),
        Outcome::Delegated { ops } => {
            (name.into(), format!("run by the host on cpu-ref: {}", ops.join(", ")))
        }
        Outcome::Crash { cause, op: at, stderr } => (format!("{name}  {cause}{}", op(at)), last(stderr)),
        Outcome::Timeout { op: at, after, stderr } => {
            (format!("{name} after {after}{}", op(at)), last(stderr))
        }
        Outcome::NotRun { why } => (name.into(), format!("{why:?}")),
    }
}

fn gate(summary: &Summary, out: &mut impl Write, style: Style) -> io::Result<()> {
    let gate = &summary.gate;
    let word = match (gate.verdict, gate.required) {
        (GateVerdict::Passed, _) => style.paint(Paint::Good, "passed"),
        (GateVerdict::Failed, true) => style.paint(Paint::Bad, "FAILED"),
        (GateVerdict::Failed, false) => "not passed (and not required)".to_owned(),
    };
    writeln!(out, "gate       non-reference   {word}")?;
    for witness in &gate.witnesses {
        let detail = match witness.verdict {
            WitnessVerdict::NotMeasured => format!("not measured: {}", witness.detail),
            WitnessVerdict::NotApplicable => format!("not applicable: {}", witness.detail),
            WitnessVerdict::Contradiction => {
                style.paint(Paint::Bad, &format!("contradiction: {}", witness.detail))
            }
            _ => witness.detail.clone(),
        };
        writeln!(out, "           {:<15} {detail}", witness.kind.as_str())?;
    }
    if gate.verdict == GateVerdict::Failed && gate.required {
        for reason in &gate.reasons {
            writeln!(out, "           because         {reason}")?;
        }
    }
    writeln!(out)
}
