//! A sequence of calls with several answers, each with a truth of its own: run on cpu-ref, run on the backend, judged.

use modelbench_contract::{Backend, Class, NumericProfile, Result};
use modelbench_reference::CpuRef;

use super::finding::{CheckError, Finding};
use super::ops::{OpPlan, same_truth, truth};
use crate::compare::{Want, first_difference};
use crate::suite::Case;

/// What a sequence of calls gave.
#[derive(Debug, Default)]
pub struct Script {
    answers: Vec<Answer>,
    wrong: Vec<String>,
}

#[derive(Debug)]
struct Answer {
    what: String,
    truth: usize,
    values: Vec<f32>,
}

impl Script {
    /// Adds an answer that is judged by the truth number `truth` of [`conclude`].
    pub fn answer(&mut self, what: impl Into<String>, truth: usize, values: Vec<f32>) {
        self.answers.push(Answer { what: what.into(), truth, values });
    }

    /// Adds a defect unless `held`.
    pub fn require(&mut self, held: bool, defect: impl FnOnce() -> String) {
        if !held {
            self.wrong.push(defect());
        }
    }

    /// Requires equal bits.
    pub fn same(&mut self, what: &str, got: &[f32], want: &[f32]) {
        if let Some(at) = first_difference(got, want) {
            let show = |v: Option<&f32>| v.map_or("nothing".to_owned(), |v| format!("{v:e}"));
            let (got, want) = (show(got.get(at)), show(want.get(at)));
            self.wrong.push(format!("{what}: [{at}] is {got}, want {want}"));
        }
    }

    /// Adds the answer to a question that was asked before. From a deterministic backend it must have the bits of the
    /// first answer with this truth; from another one it is judged by itself.
    pub fn again(&mut self, what: &str, truth: usize, values: Vec<f32>, deterministic: bool) {
        let first = self.answers.iter().position(|answer| answer.truth == truth).filter(|_| deterministic);
        match first {
            Some(first) => {
                let before = std::mem::take(&mut self.answers[first].values);
                self.same(what, &values, &before);
                self.answers[first].values = before;
            }
            None => self.answer(what, truth, values),
        }
    }
}

/// What the answers of a script must be, for the backend and for cpu-ref, whose declared arithmetic may differ.
#[derive(Debug)]
pub struct Truths {
    backend: Vec<(Want, f64)>,
    host: Option<Vec<(Want, f64)>>,
}

impl Truths {
    /// Asks `make` for the truths under a declared arithmetic, of answers in which no `q8_0` weight has a part; the
    /// second number is the suite's factor on the bound.
    ///
    /// # Errors
    /// Those of `make`.
    pub fn new(
        profile: &NumericProfile,
        make: impl Fn(&NumericProfile) -> Result<Vec<(Want, f64)>, CheckError>,
    ) -> Result<Truths, CheckError> {
        Truths::with(profile, false, make)
    }

    fn with(
        profile: &NumericProfile,
        q8_0: bool,
        make: impl Fn(&NumericProfile) -> Result<Vec<(Want, f64)>, CheckError>,
    ) -> Result<Truths, CheckError> {
        let own = CpuRef::new().numerics();
        let host = if same_truth(profile, &own, q8_0) { None } else { Some(make(&own)?) };
        Ok(Truths { backend: make(profile)?, host })
    }

    /// The truths of several plans of one case.
    ///
    /// # Errors
    /// As [`truth`].
    pub fn of_plans(case: &Case, plans: &[OpPlan], profile: &NumericProfile) -> Result<Truths, CheckError> {
        let q8_0 = plans.iter().any(OpPlan::takes_q8_0);
        Truths::with(profile, q8_0, |profile| plans.iter().map(|plan| truth(case, plan, profile)).collect())
    }

    /// True if the truths number `a` and `b` differ somewhere by more than both bounds: only then can an answer to the
    /// one be told from an answer to the other.
    pub fn differ(&self, a: usize, b: usize) -> bool {
        let (Some((a, by_a)), Some((b, by_b))) = (self.backend.get(a), self.backend.get(b)) else {
            return false;
        };
        match (a, b) {
            (Want::Exact(a), Want::Exact(b)) => a != b,
            (Want::Bounded(a), Want::Bounded(b)) => {
                let bounds = a.bound.iter().zip(&b.bound).map(|(x, y)| x * by_a + y * by_b);
                a.want.iter().zip(&b.want).zip(bounds).any(|((x, y), bound)| (x - y).abs() > bound)
            }
            _ => false,
        }
    }

    fn of_host(&self) -> &[(Want, f64)] {
        self.host.as_deref().unwrap_or(&self.backend)
    }
}

/// Judges a script of the backend, after the same script on cpu-ref has shown that the truths can be met.
///
/// # Errors
/// [`CheckError::Kit`] if cpu-ref fails, or if the two scripts have not the same answers.
pub fn conclude(
    case: &Case,
    truths: &Truths,
    host: Result<Script>,
    got: &Script,
    class: Class,
) -> Result<Finding, CheckError> {
    let kit = |text: String| CheckError::Kit(format!("{}: {text}", case.id));
    let host = host.map_err(|e| kit(format!("cpu-ref refused the case: {e}")))?;
    let mut own = Finding::default();
    judge_answers(&mut own, truths.of_host(), &host)?;
    if let Some(wrong) = own.wrong.first() {
        return Err(kit(format!("cpu-ref does not hold: {wrong}")));
    }
    let mut finding = Finding::default();
    judge_answers(&mut finding, &truths.backend, got)?;
    compare_bits(&mut finding, got, &host, class);
    finding.shorten();
    Ok(finding)
}

fn judge_answers(finding: &mut Finding, truths: &[(Want, f64)], script: &Script) -> Result<(), CheckError> {
    for answer in &script.answers {
        let Some((want, slack)) = truths.get(answer.truth) else {
            return Err(CheckError::Kit(format!("{} has no truth", answer.what)));
        };
        finding.output(&answer.values);
        finding.judge(&answer.what, want, &answer.values, *slack);
    }
    finding.wrong.extend(script.wrong.iter().cloned());
    Ok(())
}

/// A backend that is not deterministic gives more answers than cpu-ref; those with a partner are compared.
fn compare_bits(finding: &mut Finding, got: &Script, host: &Script, class: Class) {
    for answer in &got.answers {
        let Some(partner) = host.answers.iter().find(|host| host.truth == answer.truth) else { continue };
        finding.compare_bits(&answer.values, &partner.values);
    }
    finding.require_bits(class);
}
