//! The truth about a model on a sequence of tokens: float64, its ensemble, cpu-ref, and the stored golden.

use std::collections::HashMap;
use std::rc::Rc;

use modelbench_contract::NumericProfile;
use modelbench_reference::CpuRef;

use super::subject::Subject;
use super::weights::OracleWeights;
use crate::compare::Want;
use crate::model::{Capture, ForwardOutput, ModelGolden, Resident, Session};
use crate::oracle::{Bounded, Spread, ensemble};
use crate::runner::CheckError;
use crate::suite::{Case, Tolerance};

/// The seed of the ensemble: part of the kit, not of the run, so that limits are the same in every run.
const ENSEMBLE_SEED: u64 = 0xE45E;

/// A model's ensemble tolerance, as the suite states it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Perturbed references.
    pub runs: u32,
    /// Multiple of the spread.
    pub multiple: f64,
    /// Least cosine between logits.
    pub cosine_floor: f64,
    /// Largest difference between cpu-ref and stored logits.
    pub reference_limit: f64,
    /// Largest difference between the kit's float64 evaluation and stored logits.
    pub oracle_limit: f64,
}

impl Limits {
    /// The limits of a case.
    ///
    /// # Errors
    /// A suite error if the case has another kind of tolerance.
    pub fn of(case: &Case) -> Result<Limits, CheckError> {
        match case.group.tolerance {
            Tolerance::Ensemble { runs, multiple, cosine_floor, reference_limit, oracle_limit, .. } => {
                Ok(Limits { runs, multiple, cosine_floor, reference_limit, oracle_limit })
            }
            _ => Err(case.invalid("a whole model needs a tolerance of the kind \"ensemble\"").into()),
        }
    }
}

/// What a model gives for some tokens, and how far a correct engine may stray.
#[derive(Debug)]
pub struct Truth {
    /// Vocabulary size: the length of a row of logits.
    pub vocab: usize,
    /// Float64 logits and hidden states, and the ensemble's deviations from them.
    pub spread: Spread,
    /// cpu-ref's answer.
    pub host: ForwardOutput,
    multiple: f64,
}

impl Truth {
    /// Wanted logits of the positions in `rows`.
    pub fn logits(&self, rows: std::ops::Range<usize>) -> Want {
        let span = rows.start * self.vocab..rows.end * self.vocab;
        let want = self.spread.reference.logits.get(span.clone()).unwrap_or_default();
        let spread = self.spread.logits.get(span).unwrap_or_default();
        Want::Bounded(bounded(want, spread, self.vocab, self.multiple))
    }

    /// Wanted hidden states after `layer` layers.
    pub fn hidden(&self, layer: usize, width: usize) -> Want {
        let empty = Vec::new();
        let want = self.spread.reference.hidden.get(layer).unwrap_or(&empty);
        let spread = self.spread.hidden.get(layer).unwrap_or(&empty);
        Want::Bounded(bounded(want, spread, width, self.multiple))
    }

    /// Float64 logits of one position.
    pub fn row(&self, position: usize) -> &[f64] {
        self.spread.reference.logits.chunks(self.vocab).nth(position).unwrap_or_default()
    }

    /// Limits of one position's logits.
    pub fn limits(&self, position: usize) -> Vec<f64> {
        match self.logits(position..position + 1) {
            Want::Bounded(bounded) => bounded.bound,
            Want::Exact(values) => vec![0.0; values.len()],
        }
    }
}

/// The limit of an element is a multiple of its own spread, or of its row's root mean square where its own happens to
/// be smaller: with few runs one element's largest deviation may come out small by chance.
fn bounded(want: &[f64], spread: &[f64], width: usize, multiple: f64) -> Bounded {
    let mut bound = Vec::with_capacity(spread.len());
    for row in spread.chunks(width.max(1)) {
        let typical = (row.iter().map(|s| s * s).sum::<f64>() / row.len() as f64).sqrt();
        bound.extend(row.iter().map(|s| s.max(typical) * multiple));
    }
    Bounded { want: want.to_vec(), bound }
}

/// The models of a run, with everything about them that is worth computing once.
#[derive(Debug)]
pub struct Models {
    subject: Option<Subject>,
    bundled: HashMap<String, Rc<Subject>>,
    truths: HashMap<String, Rc<Truth>>,
    continuations: HashMap<(String, Vec<usize>, usize), Vec<usize>>,
}

impl Models {
    /// Starts with the model under test; the others are opened when a case asks for them.
    pub fn new(subject: Subject) -> Models {
        Models {
            subject: Some(subject),
            bundled: HashMap::new(),
            truths: HashMap::new(),
            continuations: HashMap::new(),
        }
    }

    /// The model under test, unless it is taken out.
    pub fn subject(&self) -> Option<&Subject> {
        self.subject.as_ref()
    }

    /// Takes the model under test out, so that it can be used beside the cache.
    ///
    /// # Errors
    /// A defect of the kit if it is out already.
    pub fn take_subject(&mut self) -> Result<Subject, CheckError> {
        self.subject.take().ok_or_else(|| CheckError::Kit("the model under test is in use".into()))
    }

    /// Puts the model under test back.
    pub fn put_subject(&mut self, subject: Subject) {
        self.subject = Some(subject);
    }

    /// The truth about a model on some tokens, computed at first use and checked against the stored golden.
    ///
    /// # Errors
    /// A defect of the kit if the float64 evaluation or cpu-ref disagrees with the golden, or cpu-ref with the ensemble.
    pub fn truth(
        &mut self,
        subject: &Subject,
        tokens: &[usize],
        limits: Limits,
        profile: &NumericProfile,
    ) -> Result<Rc<Truth>, CheckError> {
        let u = profile.operand.unit_roundoff().max(profile.accumulator.unit_roundoff());
        let key = format!("{} {tokens:?} {limits:?} {u:e}", subject.model.digest());
        if let Some(known) = self.truths.get(&key) {
            return Ok(Rc::clone(known));
        }
        let name = subject.model.name();
        let kit = |text: String| CheckError::Kit(format!("model {name}: {text}"));
        let ids: Vec<u32> = tokens.iter().map(|&t| t as u32).collect();
        let spread = ensemble(&OracleWeights(&subject.model), &ids, limits.runs, u, ENSEMBLE_SEED)
            .map_err(|e| kit(e.to_string()))?;
        let host = on_host(subject, tokens).map_err(|e| kit(format!("cpu-ref: {e}")))?;
        let truth = Truth { vocab: subject.model.config().vocab, spread, host, multiple: limits.multiple };
        if let Some(golden) = subject.golden.as_ref().filter(|golden| golden.input_ids == tokens) {
            against_golden(&truth, golden, limits).map_err(kit)?;
        }
        let truth = Rc::new(truth);
        self.truths.insert(key, Rc::clone(&truth));
        Ok(truth)
    }

    /// `prompt` and the `count` tokens that cpu-ref chooses after it.
    ///
    /// # Errors
    /// A defect of the kit if cpu-ref cannot run the model.
    pub fn continuation(
        &mut self,
        subject: &Subject,
        prompt: &[usize],
        count: usize,
    ) -> Result<Vec<usize>, CheckError> {
        let key = (subject.model.digest().to_owned(), prompt.to_vec(), count);
        if let Some(known) = self.continuations.get(&key) {
            return Ok(known.clone());
        }
        let tokens = continue_on_host(subject, prompt, count).map_err(|e| {
            CheckError::Kit(format!("model {}: cpu-ref cannot generate: {e}", subject.model.name()))
        })?;
        self.continuations.insert(key, tokens.clone());
        Ok(tokens)
    }

    /// One of the models that come with the kit.
    ///
    /// # Errors
    /// A defect of the kit if it cannot be opened.
    pub fn bundled(&mut self, name: &str) -> Result<Rc<Subject>, CheckError> {
        if let Some(known) = self.bundled.get(name) {
            return Ok(Rc::clone(known));
        }
        let opened =
            Subject::bundled(name).map_err(|e| CheckError::Kit(format!("bundled model {name}: {e}")))?;
        let opened = Rc::new(opened);
        self.bundled.insert(name.to_owned(), Rc::clone(&opened));
        Ok(opened)
    }
}

fn on_host(subject: &Subject, tokens: &[usize]) -> Result<ForwardOutput, crate::model::ForwardError> {
    let mut host = CpuRef::new();
    let weights = Resident::upload(&mut host, &subject.model)?;
    let mut session = Session::new(&mut host, &subject.model, &weights, tokens.len())?;
    session.prefill(&mut host, tokens, Capture::ALL)
}

fn continue_on_host(
    subject: &Subject,
    prompt: &[usize],
    count: usize,
) -> Result<Vec<usize>, crate::model::ForwardError> {
    let mut tokens = prompt.to_vec();
    let Some((&last, before)) = prompt.split_last() else { return Ok(tokens) };
    let mut host = CpuRef::new();
    let weights = Resident::upload(&mut host, &subject.model)?;
    let mut session = Session::new(&mut host, &subject.model, &weights, prompt.len() + count)?;
    if !before.is_empty() {
        session.prefill(&mut host, before, Capture::NOTHING)?;
    }
    let mut token = last;
    for _ in 0..count {
        token = session.step_greedy(&mut host, token)?;
        tokens.push(token);
    }
    Ok(tokens)
}

fn against_golden(truth: &Truth, golden: &ModelGolden, limits: Limits) -> Result<(), String> {
    let host: Vec<f64> = truth.host.logits.iter().flatten().map(|&v| f64::from(v)).collect();
    let oracle = &truth.spread.reference.logits;
    let (offset, stored) = match (&golden.logits, &golden.last_logits) {
        (Some(all), _) => (0, &all.values),
        (None, Some(last)) => (oracle.len().saturating_sub(last.len()), last),
        (None, None) => return Err("the golden holds no logits".into()),
    };
    for (who, values, limit) in
        [("the float64 oracle", oracle, limits.oracle_limit), ("cpu-ref", &host, limits.reference_limit)]
    {
        let values = values.get(offset..).unwrap_or_default();
        if values.len() != stored.len() {
            return Err(format!("{who} gave {} logits, the golden has {}", values.len(), stored.len()));
        }
        let worst = values.iter().zip(stored).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        // A NaN is neither within a limit nor lost by `max`, which is why it is looked for by itself.
        if worst > limit || values.iter().any(|v| v.is_nan()) {
            return Err(format!("{who} is {worst:e} from the stored golden, and {limit:e} is allowed"));
        }
    }
    for (position, &want) in golden.argmax.iter().flatten().enumerate() {
        let row = truth.row(position);
        let best = (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
        if best != want {
            return Err(format!(
                "the oracle's argmax at position {position} is {best}, the golden's is {want}"
            ));
        }
    }
    Ok(())
}
