//! From answers to precisions.

use std::borrow::Cow;

use modelbench_contract::{Activation, Backend, NumericProfile, Precision};

use super::super::CheckError;
use super::super::ops::Call;
use super::ladder::{LADDER, place, spacing};
use super::probe::{Aspect, Kind, Probe, candidate};
use crate::inputs::Operand;
use crate::oracle::{Allowance, Bounded};
use crate::suite::Case;

/// Elements of an activation block that share a scale, and the largest code.
const BLOCK: usize = 32;
const LARGEST_CODE: f64 = 127.0;

/// Everything that answers are judged by.
pub(super) struct Scale<'a> {
    pub(super) case: &'a Case,
    pub(super) declared: &'a NumericProfile,
    pub(super) allowance: Allowance,
    pub(super) slack: f64,
}

/// What the answers to the probes of one aspect show.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// The finest precision that they fit; `None` if they fit none.
    pub(super) precision: Option<Precision>,
    /// True if they fit what is declared.
    pub(super) as_declared: bool,
    /// How activations met a `q8_0` weight.
    pub(super) activation: Option<Activation>,
    /// True if denormals became zero; `None` if they could not be seen.
    pub(super) flush: Option<bool>,
    /// The answer that fits least what is declared.
    pub(super) witness: Option<String>,
    /// Why nothing can be said, if so.
    pub(super) unknown: Option<String>,
}

/// Runs the probes.
///
/// # Errors
/// The first error that the backend gives.
pub(super) fn answers<B: Backend>(backend: &mut B, posed: &[Posed]) -> Result<Vec<Vec<f32>>, CheckError> {
    posed.iter().map(|posed| Ok(posed.probe.plan.once(backend)?)).collect()
}

/// Which of two answers about the same aspect is told: the worst one.
#[derive(Default)]
struct Witness {
    ratio: f64,
    text: Option<String>,
}

impl Witness {
    fn see(&mut self, i: usize, got: f32, want: f64, bound: f64) {
        let error = (f64::from(got) - want).abs();
        let ratio = if error.is_nan() || bound <= 0.0 { f64::INFINITY } else { error / bound };
        if self.text.is_none() || ratio > self.ratio {
            let text = format!("[{i}] got {got:e}, want {want:e}, off by {error:e}, bound {bound:e}");
            *self = Witness { ratio, text: Some(text) };
        }
    }
}

/// A probe with its truth in f32, and in f64 sums where it can tell them.
pub(super) struct Posed {
    pub(super) probe: Probe,
    plain: Bounded,
    wide: Option<Bounded>,
}

impl Posed {
    /// The element that is largest, with the bound of f32 and the spacings that tell the others.
    pub(super) fn explain(&self, number: usize) -> String {
        let Bounded { want, bound } = &self.plain;
        let largest = (0..want.len()).max_by(|&a, &b| want[a].abs().total_cmp(&want[b].abs())).unwrap_or(0);
        let (want, bound) = (want.get(largest).copied(), bound.get(largest).copied());
        let want = want.unwrap_or(0.0);
        format!(
            "probe {number}, {}: want[{largest}] = {want:e}, bound in f32 {:e}, one spacing of tf32 and f16 {:e}, of bf16 {:e}",
            self.probe.kind.about(),
            bound.unwrap_or(0.0),
            spacing(Precision::Tf32, want),
            spacing(Precision::Bf16, want)
        )
    }
}

impl Scale<'_> {
    /// Adds the truth to probes.
    ///
    /// # Errors
    /// A defect of the kit if f32 cannot hold the data.
    pub(super) fn pose(&self, probes: Vec<Probe>) -> Result<Vec<Posed>, CheckError> {
        let pose = |probe: Probe| {
            let plain = self.plain(&probe)?;
            let wide = match probe.kind {
                Kind::Cancelling => {
                    self.truth(&probe, &candidate(Aspect::Accumulator, Precision::F64), true)?
                }
                _ => None,
            };
            Ok(Posed { probe, plain, wide })
        };
        probes.into_iter().map(pose).collect()
    }

    fn truth(
        &self,
        probe: &Probe,
        profile: &NumericProfile,
        suite: bool,
    ) -> Result<Option<Bounded>, CheckError> {
        // What a suite allows to functions is meant for f32 and for what is declared; an arithmetic that is only named
        // is taken as correctly rounded, since otherwise a coarser one would pass for it.
        let allowance = if suite { self.allowance } else { Allowance::default() };
        let mut truth = probe.truth(self.case, profile, &allowance)?;
        if let Some(truth) = &mut truth {
            truth.bound.iter_mut().for_each(|bound| *bound *= self.slack);
        }
        Ok(truth)
    }

    fn plain(&self, probe: &Probe) -> Result<Bounded, CheckError> {
        self.truth(probe, &NumericProfile::F32, true)?
            .ok_or_else(|| CheckError::Kit(format!("{}: f32 cannot hold the data of a probe", self.case.id)))
    }

    /// The truth in an arithmetic that mostly is plain f32.
    fn bounds<'p>(
        &self,
        posed: &'p Posed,
        profile: &NumericProfile,
    ) -> Result<Option<Cow<'p, Bounded>>, CheckError> {
        let profile = NumericProfile { deterministic: true, ..*profile };
        let float = NumericProfile { q8_activation: Activation::Float, ..profile };
        let asked = if posed.probe.kind == Kind::Activations { profile } else { float };
        if asked == NumericProfile::F32 {
            return Ok(Some(Cow::Borrowed(&posed.plain)));
        }
        Ok(self.truth(&posed.probe, &profile, true)?.map(Cow::Owned))
    }

    /// The precision of operands or of sums.
    ///
    /// An arithmetic of precision `P` fits an answer if it is within the bound of f32 plus one spacing of `P` around the
    /// truth (one rounding, in any direction), or, where the data amplify errors or nothing fits so, within the oracle's
    /// bound for `P`. The finest that fits every answer is the one that is named.
    ///
    /// # Errors
    /// A defect of the kit.
    pub(super) fn precision(
        &self,
        posed: &[Posed],
        answers: &[Vec<f32>],
        aspect: Aspect,
    ) -> Result<Found, CheckError> {
        let mut found = Found::default();
        let mut witness = Witness::default();
        let (mut declared, mut plain, mut wide, mut cancelling) = (true, true, true, false);
        let small_range = [self.declared.operand, self.declared.accumulator].contains(&Precision::F16);
        // Activations in 8-bit codes say nothing about operands.
        let mut coded = vec![false; posed.len()];
        for (n, (posed, got)) in posed.iter().zip(answers).enumerate() {
            if got.len() != posed.plain.want.len() {
                let wanted = posed.plain.want.len();
                found.unknown = Some(format!("{} elements came back, {wanted} were wanted", got.len()));
                return Ok(found);
            }
            let allowed = self.bounds(posed, self.declared)?;
            for (i, &got) in got.iter().enumerate() {
                let (want, bound) =
                    (posed.plain.want[i], allowed.as_ref().map_or(f64::INFINITY, |allowed| allowed.bound[i]));
                let held = (f64::from(got) - want).abs() <= bound
                    || bound.is_infinite()
                    || (small_range && lost(posed.probe.kind, got, want));
                if !held {
                    declared = false;
                    witness.see(i, got, want, bound);
                }
            }
            let held = fits(got, &posed.plain);
            if posed.probe.kind == Kind::Activations {
                coded[n] = !held && self.coded(&posed.probe, got)?;
                found.activation = Some(if coded[n] { Activation::Int8 } else { Activation::Float });
            }
            plain &= held || coded[n];
            cancelling |= posed.wide.is_some();
            wide &= posed.wide.as_ref().is_none_or(|truth| fits(got, truth));
        }
        let wanted = self.wanted(aspect, posed);
        let (precision, sharp) = if plain {
            let wide = wide && cancelling && aspect == Aspect::Accumulator;
            let finest = if wide { Precision::F64 } else { Precision::F32 };
            (Some(finest), place(finest) <= place(wanted))
        } else {
            self.coarse(posed, answers, aspect, &coded, wanted)?
        };
        found.precision = precision;
        let int8 = found.activation == Some(Activation::Int8);
        // A bound that is wide enough for codes does not declare them.
        let undeclared = int8 && self.declared.q8_activation == Activation::Float;
        found.as_declared = (declared && !undeclared) || (sharp && !int8);
        found.witness = witness.text;
        Ok(found)
    }

    /// The finest precision below f32 that fits, and whether the wanted one fits without the oracle's bound.
    fn coarse(
        &self,
        posed: &[Posed],
        answers: &[Vec<f32>],
        aspect: Aspect,
        coded: &[bool],
        wanted: Precision,
    ) -> Result<(Option<Precision>, bool), CheckError> {
        let coarse = &LADDER[place(Precision::F32) + 1..];
        let (mut sharp, mut loose) = (vec![true; coarse.len()], vec![true; coarse.len()]);
        for ((posed, got), _) in posed.iter().zip(answers).zip(coded).filter(|(_, coded)| !**coded) {
            let (kind, plain) = (posed.probe.kind, &posed.plain);
            let amplified = matches!(kind, Kind::Amplified | Kind::Cancelling);
            for (at, &precision) in coarse.iter().enumerate() {
                let truth = self.truth(&posed.probe, &candidate(aspect, precision), false)?;
                for (i, &got) in got.iter().enumerate() {
                    let error = (f64::from(got) - plain.want[i]).abs();
                    let within = truth.as_ref().is_none_or(|truth| error <= truth.bound[i]);
                    let lost = precision == Precision::F16 && lost(kind, got, plain.want[i]);
                    let near = error <= spacing(precision, plain.want[i]) + plain.bound[i];
                    sharp[at] &= near || lost || (amplified && within);
                    loose[at] &= near || lost || within;
                }
            }
        }
        let first = |fit: &[bool]| fit.iter().position(|&fit| fit).map(|at| coarse[at]);
        let fits_wanted = coarse.iter().position(|&p| p == wanted).is_some_and(|at| sharp[at]);
        Ok((first(&sharp).or_else(|| first(&loose)), fits_wanted))
    }

    /// The precision that is declared for an aspect of the op. Ops that multiply no operands with each other round
    /// nothing to the operand precision; they compute in the accumulator's, in f32 at best, since results are f32.
    pub(super) fn wanted(&self, aspect: Aspect, posed: &[Posed]) -> Precision {
        let f32_at_best = |p: Precision| if p == Precision::F64 { Precision::F32 } else { p };
        let call = posed.first().map(|posed| posed.probe.plan.call);
        match (aspect, call) {
            (Aspect::Operand, Some(Call::Matmul | Call::BatchedMatmul | Call::Attention { .. })) => {
                f32_at_best(self.declared.operand)
            }
            (_, Some(Call::Matmul | Call::BatchedMatmul)) => self.declared.accumulator,
            _ => f32_at_best(self.declared.accumulator),
        }
    }

    /// True if each answer is a product of an activation that went through an 8-bit code, of blocks of 32 with scale
    /// amax/127: of one of the two codes next to it, since near the middle between them roundings decide.
    fn coded(&self, probe: &Probe, got: &[f32]) -> Result<bool, CheckError> {
        let (below, above) = (self.quantised(probe, libm::floor)?, self.quantised(probe, libm::ceil)?);
        let near = |truth: &Bounded, i: usize| (f64::from(got[i]) - truth.want[i]).abs() <= truth.bound[i];
        Ok((0..got.len()).all(|i| near(&below, i) || near(&above, i)))
    }

    /// The truth of activations in codes that are rounded in this way.
    fn quantised(&self, probe: &Probe, round: fn(f64) -> f64) -> Result<Bounded, CheckError> {
        let mut coded = probe.clone();
        if let Some(x) = coded.plan.operands.get_mut(1) {
            let code = |block: &[f32]| through_codes(block, round);
            let values: Vec<f32> = x.values.chunks(BLOCK).flat_map(code).collect();
            *x = Operand::from_f32(x.name, x.shape(), values)?;
        }
        coded.kind = Kind::Plain;
        let mut truth = self.plain(&coded)?;
        for (bound, want) in truth.bound.iter_mut().zip(&truth.want) {
            // The scale and its products are rounded too.
            *bound += spacing(Precision::F32, *want);
        }
        Ok(truth)
    }

    /// Whether denormals survive: each must come back within the bound of an arithmetic that keeps them, or as zero.
    ///
    /// # Errors
    /// A defect of the kit.
    pub(super) fn flush(&self, posed: &[Posed], answers: &[Vec<f32>]) -> Result<Found, CheckError> {
        let keeps = NumericProfile { flush_to_zero: false, ..*self.declared };
        let (mut flushed, mut seen) = (false, false);
        let mut witness = Witness::default();
        let mut found = Found::default();
        for (posed, got) in posed.iter().zip(answers) {
            let Some(truth) = self.bounds(posed, &keeps)? else { continue };
            let kind = posed.probe.kind;
            if got.len() != truth.want.len() {
                found.unknown =
                    Some(format!("{} elements came back, {} were wanted", got.len(), truth.want.len()));
                return Ok(found);
            }
            for (i, &got) in got.iter().enumerate() {
                let (want, bound) = (truth.want[i], truth.bound[i]);
                if bound >= want.abs() {
                    // Zero, or lost to an operand precision of less range.
                    continue;
                }
                let held = (f64::from(got) - want).abs() <= bound;
                seen |= kind != Kind::Normal;
                if held {
                    continue;
                }
                witness.see(i, got, want, bound);
                if kind == Kind::Normal {
                    found.unknown =
                        Some(format!("small normal numbers do not survive: got {got:e}, want {want:e}"));
                    return Ok(found);
                }
                if got != 0.0 {
                    found.unknown = Some(format!(
                        "a denormal neither survives nor becomes zero: got {got:e}, want {want:e}"
                    ));
                    return Ok(found);
                }
                flushed = true;
            }
        }
        found.flush = seen.then_some(flushed);
        found.as_declared = !flushed || self.declared.flush_to_zero;
        found.witness = witness.text;
        Ok(found)
    }
}

fn fits(got: &[f32], truth: &Bounded) -> bool {
    got.iter()
        .zip(truth.want.iter().zip(&truth.bound))
        .all(|(&got, (want, bound))| (f64::from(got) - want).abs() <= *bound)
}

/// True if an answer to a probe beyond f16's range is what f16 may make of it: no number, or nothing of it left.
fn lost(kind: Kind, got: f32, want: f64) -> bool {
    matches!(kind, Kind::BeyondF16 | Kind::Amplified | Kind::Cancelling)
        && (!got.is_finite() || (f64::from(got) - want).abs() <= want.abs())
}

fn through_codes(block: &[f32], round: fn(f64) -> f64) -> Vec<f32> {
    let amax = block.iter().fold(0.0f64, |m, &v| m.max(f64::from(v).abs()));
    let d = amax / LARGEST_CODE;
    block.iter().map(|&v| (round(f64::from(v) / d) * d) as f32).collect()
}
