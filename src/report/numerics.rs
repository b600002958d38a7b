//! The arithmetic that a run inferred, and how errors lie within their bounds, for people and for machines.

use std::collections::BTreeMap;
use std::io::{self, Write};

use modelbench_contract::{Activation, DType, NumericProfile, Op, Precision};
use modelbench_evidence::numerics::{Inferred, NumericsRow, infer};
use modelbench_evidence::record::CaseRecord;
use serde::Serialize;
use serde_json::{Value, json};

use super::style::{Paint, Style};
use super::summary::Summary;

/// Fewest elements for which a direction of errors is told.
const FEWEST: u64 = 256;
/// Share of the elements with an error that must lie on one side for it to be told.
const ONE_SIDE: f64 = 0.9;

/// How the errors of one op lie within their bounds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    /// The op, or the check of whole models.
    pub subject: String,
    /// Cases with a bound.
    pub cases: u64,
    /// Their elements.
    pub elements: u64,
    /// Largest error divided by its bound.
    pub worst: f64,
    /// Largest 99th percentile of error divided by bound of any case.
    pub p99: Option<f64>,
    /// Mean signed error divided by bound over all elements.
    pub bias: Option<f64>,
    /// Of the elements with an error, the share whose result is too small in magnitude.
    pub inward: Option<f64>,
}

impl Spread {
    /// A direction that almost all errors share, in words.
    pub fn direction(&self) -> Option<&'static str> {
        let inward = self.inward.filter(|_| self.elements >= FEWEST)?;
        if inward >= ONE_SIDE {
            Some("toward zero: truncated rather than rounded?")
        } else if inward <= 1.0 - ONE_SIDE {
            Some("away from zero")
        } else {
            None
        }
    }
}

/// The errors of each op over its cases with a bound, in the order of the names.
pub fn spreads(cases: &[CaseRecord]) -> Vec<Spread> {
    let mut found = BTreeMap::<&str, Spread>::new();
    let mut weights = BTreeMap::<&str, (f64, f64)>::new();
    for case in cases {
        let quality = &case.quality;
        let Some(worst) = quality.worst else { continue };
        let spread = found.entry(&case.subject).or_insert_with(|| Spread {
            subject: case.subject.clone(),
            cases: 0,
            elements: 0,
            worst,
            p99: None,
            bias: None,
            inward: None,
        });
        spread.cases += 1;
        spread.elements += quality.elements;
        spread.worst = spread.worst.max(worst);
        spread.p99 = match (spread.p99, quality.p99) {
            (Some(a), Some(b)) => Some(a.max(b)),
            (a, b) => a.or(b),
        };
        let n = quality.elements as f64;
        let (biased, sided) = weights.entry(&case.subject).or_default();
        mean(&mut spread.bias, biased, quality.bias, n);
        mean(&mut spread.inward, sided, quality.inward, n);
    }
    found.into_values().collect()
}

/// Adds a value of weight `n` to a mean of weight `weight`.
fn mean(so_far: &mut Option<f64>, weight: &mut f64, value: Option<f64>, n: f64) {
    let Some(value) = value.filter(|_| n > 0.0) else { return };
    *so_far = Some((so_far.unwrap_or(0.0) * *weight + value * n) / (*weight + n));
    *weight += n;
}

/// Inferred arithmetic and errors of a run as JSON.
pub fn json(summary: &Summary) -> Value {
    let row = infer(summary.header.backend.numerics, &summary.cases);
    json!({
        "declared": row.declared, "inferred": row.inferred, "summary": verdict(&row).1,
        "errors": spreads(&summary.cases),
    })
}

/// Prints what was inferred, op by op, and how errors lie within their bounds.
///
/// # Errors
/// Whatever the writer says.
pub fn print(summary: &Summary, out: &mut impl Write, style: Style) -> io::Result<()> {
    let row = infer(summary.header.backend.numerics, &summary.cases);
    if !row.inferred.is_empty() {
        writeln!(
            out,
            "inferred         dtype  declared                       operands  accumulate  denormals"
        )?;
        for inferred in &row.inferred {
            line(&row.declared, inferred, out, style)?;
        }
    }
    let (good, text) = verdict(&row);
    let paint = if good { Paint::Good } else { Paint::Bad };
    writeln!(out, "numerics         {}\n", style.paint(paint, &text))?;
    writeln!(out, "error / bound    cases  elements   worst  p99    bias     too small")?;
    for spread in spreads(&summary.cases) {
        let part = |v: Option<f64>, digits: usize| v.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
        let direction = spread.direction().map_or(String::new(), |text| format!("  errors lie {text}"));
        writeln!(
            out,
            "{:<16} {:>5}  {:>8}   {:<6.2} {:<6} {:<8} {}{}",
            spread.subject,
            spread.cases,
            spread.elements,
            spread.worst,
            part(spread.p99, 2),
            spread.bias.map_or("-".to_owned(), |v| format!("{v:+.4}")),
            spread.inward.map_or("-".to_owned(), |v| format!("{:.0} %", v * 100.0)),
            style.paint(Paint::Bad, &direction)
        )?;
    }
    writeln!(out)
}

fn line(declared: &NumericProfile, found: &Inferred, out: &mut impl Write, style: Style) -> io::Result<()> {
    let precision = |p: Option<Precision>| p.map_or("unknown", |p| p.as_str());
    let mut operand = precision(found.operand).to_owned();
    if found.activation == Some(Activation::Int8) {
        operand = "int8".to_owned();
    }
    let denormals = match found.flush_to_zero {
        Some(true) => "flushed",
        Some(false) => "kept",
        None => "unknown",
    };
    let verdict = if found.not_ok == 0 {
        String::new()
    } else {
        let text = format!("  {} of {} cases not as declared", found.not_ok, found.cases);
        style.paint(Paint::Bad, &text)
    };
    writeln!(
        out,
        "{:<16} {:<6} {:<30} {operand:<9} {:<11} {denormals}{verdict}",
        found.op.as_str(),
        found.dtype.as_str(),
        declared_for(declared, found.op, found.dtype),
        precision(found.accumulator),
    )
}

/// What is declared for an op. Ops that multiply no operands with each other compute in the accumulator's precision.
fn declared_for(declared: &NumericProfile, op: Op, dtype: DType) -> String {
    let product = matches!(op, Op::Matmul | Op::BatchedMatmul | Op::Attention);
    let accumulator = declared.accumulator.as_str();
    let operand = match (product, dtype, declared.q8_activation) {
        (true, DType::Q8_0, Activation::Int8) => "int8",
        (true, ..) => declared.operand.as_str(),
        _ => accumulator,
    };
    format!("{operand} / {accumulator} / {}", if declared.flush_to_zero { "flushed" } else { "kept" })
}

/// Whether what was inferred is what was declared, and a sentence that says so.
fn verdict(row: &NumericsRow) -> (bool, String) {
    let (cases, not_ok) = row.inferred.iter().fold((0, 0), |(a, b), i| (a + i.cases, b + i.not_ok));
    if cases == 0 {
        return (false, "declared, not measured: no case of this run asked for the arithmetic".to_owned());
    }
    if not_ok == 0 {
        return (true, format!("inferred as declared in {cases} of {cases} cases"));
    }
    let ops: std::collections::BTreeSet<&str> =
        row.inferred.iter().filter(|i| i.not_ok > 0).map(|i| i.op.as_str()).collect();
    let ops: Vec<&str> = ops.into_iter().collect();
    (
        false,
        format!(
            "{not_ok} of {cases} cases compute in less than is declared, or cannot tell: {}",
            ops.join(", ")
        ),
    )
}

/// The line about numerics at the head of a run.
pub(super) fn head(summary: &Summary) -> String {
    let numerics = &summary.header.backend.numerics;
    let row = infer(*numerics, &summary.cases);
    format!(
        "operands {}, accumulate {}, denormals {}, {}; {}",
        numerics.operand.as_str(),
        numerics.accumulator.as_str(),
        if numerics.flush_to_zero { "flushed" } else { "kept" },
        if numerics.deterministic { "deterministic" } else { "non-deterministic" },
        verdict(&row).1
    )
}

#[cfg(test)]
mod tests {
    use modelbench_evidence::record::Quality;

    use super::*;

    fn spread(inward: f64, elements: u64) -> Spread {
        Spread {
            subject: "matmul".to_owned(),
            cases: 1,
            elements,
            worst: 0.5,
            p99: Some(0.25),
            bias: Some(0.0),
            inward: Some(inward),
        }
    }

    #[test]
    fn one_sided_errors_are_told_where_there_are_enough() {
        assert!(spread(0.97, 1000).direction().is_some_and(|text| text.contains("toward zero")));
        assert!(spread(0.02, 1000).direction().is_some_and(|text| text.contains("away")));
        assert_eq!(spread(0.97, 10).direction(), None);
        assert_eq!(spread(0.5, 1000).direction(), None);
    }

    #[test]
    fn means_are_weighted() {
        let (mut so_far, mut weight) = (None, 0.0);
        mean(&mut so_far, &mut weight, Some(1.0), 1.0);
        mean(&mut so_far, &mut weight, None, 8.0);
        mean(&mut so_far, &mut weight, Some(0.0), 3.0);
        assert_eq!((so_far, weight), (Some(0.25), 4.0));
        assert_eq!(Quality::default().inward, None);
    }
}
