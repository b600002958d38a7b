//! Rung 1: the arithmetic that a backend really computes in, inferred from answers that tell it.
//!
//! A probe is a call whose data are such that every honest arithmetic of the declared profile, in any order, with or
//! without FMA, gives a known value within a known bound, and every narrower one gives another. See [`products`],
//! [`elementwise`] and [`attention`] for the data, [`infer`] for what an answer means. Computing in less than is declared
//! fails with both named; more is fine and noted; an answer that fits no known arithmetic fails too.

mod attention;
mod elementwise;
mod infer;
mod ladder;
mod probe;
mod products;

#[cfg(test)]
mod tests;

use modelbench_contract::{Activation, Backend, Class, DType, NumericProfile, Op, Precision};
use modelbench_evidence::numerics::Numerics;
use modelbench_reference::CpuRef;

use infer::{Found, Posed, Scale, answers};
use ladder::place;
use probe::{Aspect, Probe};

use super::finding::{CheckError, Finding};
use super::ops::allowance;
use crate::suite::{Case, SuiteError};

/// Values of the axis `op`.
pub const OPS: [&str; 8] =
    ["matmul", "batched_matmul", "add_in_place", "add_bias", "rms_norm", "swiglu", "rope", "attention"];
/// Values of the axis `aspect`.
pub const ASPECTS: [&str; 3] = ["operand", "accumulator", "flush"];

/// Names of the axes that the check reads.
pub fn axes(check: &str) -> Option<&'static [&'static str]> {
    (check == "numerics").then_some(&[
        "op", "dtype", "aspect", "rows", "out", "in", "n", "heads", "head_dim", "kv", "kv_heads", "group",
    ])
}

/// The op of a case.
///
/// # Errors
/// A suite error if there is none of that name.
pub fn op(case: &Case) -> Result<Op, CheckError> {
    let name = case.text("op")?;
    let found = OPS.contains(&name).then(|| Op::ALL.iter().copied().find(|op| op.as_str() == name)).flatten();
    found.ok_or_else(|| case.invalid(format!("op {name:?}: expected one of {}", OPS.join(", "))).into())
}

/// Probes a backend and compares what its answers show with what it declares.
///
/// # Errors
/// What stopped the check: the backend's error, a suite that asks for the impossible, or a defect of the kit.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let mut host = CpuRef::new();
    let own_profile = host.numerics();
    let asked = Asked::new(case, seed, &own_profile)?;
    let own = asked.run(&mut host)?;
    let mut own_finding = Finding::default();
    asked.judge(case, &own, &own_profile, &mut own_finding)?;
    if let Some(wrong) = own_finding.wrong.first() {
        return Err(CheckError::Kit(format!(
            "{}: cpu-ref computes in less than it declares: {wrong}",
            case.id
        )));
    }

    let same = own_profile.q8_activation == profile.q8_activation;
    let asked = if same { asked } else { Asked::new(case, seed, profile)? };
    let own = if same { own } else { asked.run(&mut host)? };
    let got = asked.run(backend)?;
    let mut finding = Finding::default();
    for (got, own) in got.all().zip(own.all()) {
        finding.output(got);
        finding.quality.elements += got.len() as u64;
        finding.compare_bits(got, own);
    }
    finding.numerics = Some(asked.judge(case, &got, profile, &mut finding)?);
    finding.require_bits(class);
    Ok(finding)
}

/// Lines that say what each probe of a case wants in f32, and how far the coarser precisions are from it.
///
/// # Errors
/// A suite error, or a defect of the kit.
pub fn explain(case: &Case, seed: u64) -> Result<Vec<String>, CheckError> {
    let asked = Asked::new(case, seed, &NumericProfile::F32)?;
    Ok(asked.probes.iter().enumerate().map(|(i, posed)| posed.explain(i)).collect())
}

/// What the record says of a case of probes until they are answered: which op and dtype were asked, and that nothing is
/// known.
///
/// # Errors
/// A suite error.
pub fn unanswered(case: &Case) -> Result<Numerics, CheckError> {
    Ok(nothing(op(case)?, dtype(case)?))
}

fn nothing(op: Op, dtype: DType) -> Numerics {
    Numerics { op, dtype, operand: None, accumulator: None, flush_to_zero: None, activation: None }
}

/// The probes of a case. Operands are seen through sums: without knowing the sums, operands cannot be told from them.
struct Asked {
    op: Op,
    dtype: DType,
    aspect: Aspect,
    probes: Vec<Posed>,
    sums: Vec<Posed>,
}

/// The answers to them.
struct Answers {
    probes: Vec<Vec<f32>>,
    sums: Vec<Vec<f32>>,
}

impl Answers {
    fn all(&self) -> impl Iterator<Item = &[f32]> {
        self.probes.iter().chain(&self.sums).map(Vec::as_slice)
    }
}

impl Asked {
    fn new(case: &Case, seed: u64, profile: &NumericProfile) -> Result<Asked, CheckError> {
        let op = op(case)?;
        let aspect = match case.text("aspect")? {
            "operand" => Aspect::Operand,
            "accumulator" => Aspect::Accumulator,
            "flush" => Aspect::Flush,
            other => {
                let known = ASPECTS.join(", ");
                return Err(case.invalid(format!("aspect {other:?}: expected one of {known}")).into());
            }
        };
        let dtype = dtype(case)?;
        let (allowance, slack) = allowance(case)?;
        let scale = Scale { case, declared: profile, allowance, slack };
        let pose = |aspect| scale.pose(probes(case, seed, op, dtype, aspect, profile)?);
        let sums = if aspect == Aspect::Operand { pose(Aspect::Accumulator)? } else { Vec::new() };
        let probes = pose(aspect)?;
        Ok(Asked { op, dtype, aspect, probes, sums })
    }

    fn run<B: Backend>(&self, backend: &mut B) -> Result<Answers, CheckError> {
        Ok(Answers { probes: answers(backend, &self.probes)?, sums: answers(backend, &self.sums)? })
    }

    fn judge(
        &self,
        case: &Case,
        got: &Answers,
        profile: &NumericProfile,
        finding: &mut Finding,
    ) -> Result<Numerics, CheckError> {
        let (allowance, slack) = allowance(case)?;
        let scale = Scale { case, declared: profile, allowance, slack };
        let mut numerics = nothing(self.op, self.dtype);
        match self.aspect {
            Aspect::Flush => {
                let found = scale.flush(&self.probes, &got.probes)?;
                numerics.flush_to_zero = found.flush;
                self.tell_flush(&found, profile, finding);
            }
            Aspect::Accumulator => {
                let found = scale.precision(&self.probes, &got.probes, Aspect::Accumulator)?;
                numerics.accumulator = found.precision;
                self.tell(
                    &found,
                    Aspect::Accumulator,
                    scale.wanted(Aspect::Accumulator, &self.probes),
                    finding,
                );
            }
            Aspect::Operand => {
                let sums = scale.precision(&self.sums, &got.sums, Aspect::Accumulator)?;
                let found = scale.precision(&self.probes, &got.probes, Aspect::Operand)?;
                numerics.activation = found.activation;
                // Every operand is seen through a sum: coarse sums leave nothing to say about operands, unless what
                // came back is less than the declared sums explain.
                let coarse = sums.precision.is_some_and(|sum| place(sum) > place(Precision::F32));
                let explained = coarse && (!sums.as_declared || found.as_declared);
                if explained {
                    numerics.accumulator = sums.precision;
                    if sums.as_declared {
                        finding.notes.push("operands cannot be told from the declared sums".to_owned());
                    } else {
                        self.tell(
                            &sums,
                            Aspect::Accumulator,
                            scale.wanted(Aspect::Accumulator, &self.sums),
                            finding,
                        );
                    }
                } else {
                    numerics.operand = found.precision;
                    self.tell(&found, Aspect::Operand, scale.wanted(Aspect::Operand, &self.probes), finding);
                }
            }
        }
        Ok(numerics)
    }

    /// What the op's arithmetic is about, in words.
    fn what(&self) -> &'static str {
        match self.op {
            Op::Matmul | Op::BatchedMatmul => "products",
            op => op.as_str(),
        }
    }

    fn tell(&self, found: &Found, aspect: Aspect, wanted: Precision, finding: &mut Finding) {
        let what = self.what();
        let at = found.witness.as_ref().map_or(String::new(), |text| format!("\n{text}"));
        if let Some(why) = &found.unknown {
            finding.wrong.push(format!("the arithmetic of {what} cannot be inferred: {why}"));
            return;
        }
        let Some(precision) = found.precision else {
            if found.as_declared {
                finding
                    .notes
                    .push(format!("what {what} compute in cannot be named; it fits what is declared"));
                return;
            }
            let text = format!(
                "the answers of {what} fit no arithmetic from f64 to bf16; {} is declared",
                wanted.as_str()
            );
            finding.wrong.push(format!("{text}{at}"));
            return;
        };
        let (seen, declared) = (precision.as_str(), wanted.as_str());
        let text = match aspect {
            Aspect::Operand if found.activation == Some(Activation::Int8) && !found.as_declared => {
                format!("quantises the activations of {what} to int8; float is declared")
            }
            Aspect::Operand => format!("computes {what} with {seen} operands; {declared} is declared"),
            _ => format!("accumulates {what} in {seen}; {declared} is declared"),
        };
        if !found.as_declared {
            finding.wrong.push(format!("{text}{at}"));
        } else if place(precision) < place(wanted) {
            finding.notes.push(format!("more precise than declared: {text}"));
        }
    }

    fn tell_flush(&self, found: &Found, profile: &NumericProfile, finding: &mut Finding) {
        let what = self.what();
        if let Some(why) = &found.unknown {
            finding.wrong.push(format!("what becomes of denormals in {what} cannot be inferred: {why}"));
        } else if !found.as_declared {
            let at = found.witness.as_ref().map_or(String::new(), |text| format!("\n{text}"));
            finding.wrong.push(format!("flushes denormals to zero in {what}; keeping them is declared{at}"));
        } else if found.flush.is_none() {
            finding.notes.push(format!("denormals of {what} lie below the declared operand precision"));
        } else if found.flush == Some(false) && profile.flush_to_zero {
            finding
                .notes
                .push(format!("more precise than declared: {what} keep denormals; flushing is declared"));
        }
    }
}

fn dtype(case: &Case) -> Result<DType, SuiteError> {
    if case.params().contains_key("dtype") { super::ops::dtype(case) } else { Ok(DType::F32) }
}

fn probes(
    case: &Case,
    seed: u64,
    op: Op,
    dtype: DType,
    aspect: Aspect,
    profile: &NumericProfile,
) -> Result<Vec<Probe>, CheckError> {
    let rows = case.size_or("rows", 0)?;
    match op {
        Op::Matmul | Op::BatchedMatmul => {
            if (op == Op::BatchedMatmul) != (rows > 0) {
                return Err(case.invalid("rows belongs to batched_matmul, and to it alone").into());
            }
            let (out, inner) = (case.size("out")?, case.size("in")?);
            products::Product { case, seed, dtype, out, inner, rows }.probes(aspect, profile)
        }
        Op::Attention => {
            let (kv, kv_heads) = (case.size("kv")?, case.size("kv_heads")?);
            let (group, head_dim) = (case.size("group")?, case.size("head_dim")?);
            attention::Heads { case, seed, kv, kv_heads, group, head_dim, rows }.probes(aspect)
        }
        _ => {
            let heads = if op == Op::Rope { case.size("heads")? } else { 1 };
            let n = if op == Op::Rope { heads * case.size("head_dim")? } else { case.size("n")? };
            elementwise::Rows { case, seed, op, rows, n, heads }.probes(aspect)
        }
    }
}
