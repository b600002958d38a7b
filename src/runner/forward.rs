//! Rung 2: whole models, position by position, layer by layer.

use modelbench_contract::{Backend, Class, NumericProfile};

use super::finding::{CheckError, Finding};
use super::host_help::{Helped, helped};
use super::models::{Limits, Models, Subject, Truth};
use crate::compare::{Want, judge};
use crate::model::{Capture, ForwardError, ForwardOutput, Resident, Session};
use crate::suite::Case;

/// Names of the axes that the check reads.
pub const AXES: [&str; 2] = ["model", "path"];

/// How tokens reach the model: the values of the axis `path`.
pub const PATHS: [&str; 7] = ["prefill", "decode", "chunks", "chunks-1", "chunks-2", "chunks-3", "chunks-7"];

/// Tokens of a piece on the path `chunks`, where `chunks-N` says none: odd, so that pieces end inside every tile.
const PIECE: usize = 5;

/// Runs `action` with the model that the case names.
///
/// # Errors
/// A suite error if there is no such model, and whatever `action` gives.
pub fn with_model<T>(
    case: &Case,
    models: &mut Models,
    action: impl FnOnce(&mut Models, &Subject) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    match case.text("model")? {
        // The subject leaves its place while the action may also use the cache beside it.
        "model" => {
            let subject = models.take_subject()?;
            let done = action(models, &subject);
            models.put_subject(subject);
            done
        }
        name => {
            let subject = models.bundled(name)?;
            action(models, &subject)
        }
    }
}

/// Runs a model on the backend and judges every logit and hidden state.
///
/// # Errors
/// What stopped the check.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    models: &mut Models,
    backend: &mut B,
    class: Class,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let (limits, path) = (Limits::of(case)?, case.text("path")?.to_owned());
    with_model(case, models, |models, subject| {
        let tokens = subject.tokens(seed);
        let truth = models.truth(subject, &tokens, limits, profile)?;
        let Helped { value: output, delegated } = helped(backend, |backend| {
            let weights = Resident::upload(backend, &subject.model)?;
            let mut session = Session::new(backend, &subject.model, &weights, tokens.len())?;
            let output = run(backend, &mut session, &tokens, &path)?;
            session.free(backend)?;
            weights.free(backend)?;
            Ok(output)
        })?;
        let mut finding = Finding::with_help(delegated);
        judge_output(&mut finding, &truth, &output, subject.model.config().hidden);
        judge_choice(&mut finding, &truth, &output.logits, limits.cosine_floor);
        against_host(&mut finding, &truth, &output, class);
        Ok(finding)
    })
}

fn run<B: Backend>(
    backend: &mut B,
    session: &mut Session<'_, B>,
    tokens: &[usize],
    path: &str,
) -> Result<ForwardOutput, ForwardError> {
    let mut all = ForwardOutput::default();
    let mut add = |part: ForwardOutput| {
        all.logits.extend(part.logits);
        all.hidden.resize(part.hidden.len(), Vec::new());
        for (whole, part) in all.hidden.iter_mut().zip(part.hidden) {
            whole.extend(part);
        }
    };
    let piece = path.strip_prefix("chunks-").and_then(|size| size.parse().ok()).unwrap_or(PIECE);
    match path {
        "decode" => {
            for &token in tokens {
                add(session.step(backend, token, Capture::ALL)?);
            }
        }
        path if path.starts_with("chunks") => {
            for piece in tokens.chunks(piece) {
                add(session.prefill(backend, piece, Capture::ALL)?);
            }
        }
        _ => add(session.prefill(backend, tokens, Capture::ALL)?),
    }
    Ok(all)
}

/// Every hidden state and logit within its limit; the first layer that is not is named.
fn judge_output(finding: &mut Finding, truth: &Truth, output: &ForwardOutput, width: usize) {
    let layers = truth.spread.reference.hidden.len();
    finding.require(output.hidden.len() == layers, || {
        format!("{} hidden states came back, {layers} were wanted", output.hidden.len())
    });
    for (layer, got) in output.hidden.iter().enumerate().take(layers) {
        finding.output(got);
        let judged = judge(&truth.hidden(layer, width), got, 1.0);
        finding.merge(judged.quality);
        if let Some(wrong) = judged.wrong
            && finding.wrong.is_empty()
        {
            let place = if layer == 0 { "the embedding".to_owned() } else { format!("layer {layer}") };
            finding.wrong.push(format!("first divergence after {place}: {wrong}"));
        }
    }
    let got: Vec<f32> = output.logits.concat();
    finding.output(&got);
    finding.judge("logits", &truth.logits(0..truth.host.logits.len()), &got, 1.0);
}

/// The chosen token of each position, and the direction of its logits.
pub fn judge_choice(finding: &mut Finding, truth: &Truth, logits: &[Vec<f32>], cosine_floor: f64) {
    for (position, got) in logits.iter().enumerate() {
        let want = truth.row(position);
        if want.len() != got.len() || got.is_empty() {
            finding.wrong.push(format!("position {position}: {} logits, want {}", got.len(), want.len()));
            continue;
        }
        let chosen = (1..got.len()).fold(0, |best, i| if got[i] > got[best] { i } else { best });
        judge_token(finding, truth, position, chosen);
        let cosine = cosine(want, got);
        finding.require(cosine >= cosine_floor, || {
            format!("position {position}: cosine {cosine:.9} is below {cosine_floor}")
        });
    }
}

/// The margin rule: another token than the truth's is right only if the two logits are closer than the limits of both,
/// and it is noted, never silent.
pub fn judge_token(finding: &mut Finding, truth: &Truth, position: usize, chosen: usize) {
    let row = truth.row(position);
    let best = (1..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    if chosen == best {
        return;
    }
    let Some(&value) = row.get(chosen) else {
        finding.wrong.push(format!("position {position}: token {chosen} is outside the vocabulary"));
        return;
    };
    let limits = truth.limits(position);
    let (margin, limit) = (row[best] - value, limits[best] + limits[chosen]);
    if margin <= limit {
        finding.notes.push(format!(
            "near-tie at position {position}: token {chosen} in place of {best}, margin {margin:.3e} within {limit:.3e}"
        ));
    } else {
        finding.wrong.push(format!(
            "position {position}: argmax is {chosen}, want {best}; the margin {margin:.3e} exceeds {limit:.3e}"
        ));
    }
}

fn cosine(a: &[f64], b: &[f32]) -> f64 {
    let (mut dot, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (&a, &b) in a.iter().zip(b) {
        let b = f64::from(b);
        dot += a * b;
        aa += a * a;
        bb += b * b;
    }
    dot / (aa.sqrt() * bb.sqrt())
}

/// Bits against cpu-ref; they must be equal for a `Reference` backend.
fn against_host(finding: &mut Finding, truth: &Truth, output: &ForwardOutput, class: Class) {
    let pairs = [(&output.logits, &truth.host.logits), (&output.hidden, &truth.host.hidden)];
    for (got, host) in pairs {
        finding.compare_bits(&got.concat(), &host.concat());
    }
    finding.require_bits(class);
}

/// Two answers of one backend to the same question, each within the limits of the truth, differ by at most both.
pub fn judge_pair(finding: &mut Finding, truth: &Truth, rows: std::ops::Range<usize>, a: &[f32], b: &[f32]) {
    let Want::Bounded(mut bounded) = truth.logits(rows) else { return };
    bounded.want = a.iter().map(|&v| f64::from(v)).collect();
    bounded.bound.iter_mut().for_each(|limit| *limit *= 2.0);
    if bounded.want.len() != bounded.bound.len() {
        finding.wrong.push(format!("{} logits, want {}", a.len(), bounded.bound.len()));
        return;
    }
    let judged = judge(&Want::Bounded(bounded), b, 1.0);
    finding.merge(judged.quality);
    finding.wrong.extend(judged.wrong);
}
