//! Rung 5: generation. Teacher-forced tokens, prefill against decode, clones and interleaved sessions.

use modelbench_contract::{Backend, NumericProfile};

use super::finding::{CheckError, Finding};
use super::forward::{judge_choice, judge_pair, judge_token, with_model};
use super::host_help::{Helped, helped};
use super::models::{Limits, Models, Subject};
use crate::compare::bits_differ;
use crate::model::{Capture, ForwardError, Resident, Session};
use crate::suite::Case;

/// Checks of this file.
pub const CHECKS: [&str; 4] = ["greedy", "prefill-equals-steps", "clone", "interleaved"];

/// Tokens of the prompt that generation starts from.
const PROMPT: usize = 8;
/// Tokens that are generated.
const GENERATED: usize = 24;

/// Runs one of [`CHECKS`].
///
/// # Errors
/// What stopped the check.
pub fn check<B: Backend>(
    case: &Case,
    seed: u64,
    models: &mut Models,
    backend: &mut B,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let limits = Limits::of(case)?;
    let name = case.group.check.clone();
    with_model(case, models, |models, subject| {
        let mut prompt = subject.tokens(seed);
        match name.as_str() {
            "greedy" => {
                prompt.truncate(PROMPT);
                greedy(models, subject, &prompt, limits, backend, profile)
            }
            "prefill-equals-steps" => prefill_and_steps(models, subject, &prompt, limits, backend, profile),
            other => independent(subject, &prompt, backend, profile, other == "clone"),
        }
    })
}

/// cpu-ref chooses the tokens; the backend is given the same ones and must choose alike at every step.
fn greedy<B: Backend>(
    models: &mut Models,
    subject: &Subject,
    prompt: &[usize],
    limits: Limits,
    backend: &mut B,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let room = subject.model.config().max_positions.saturating_sub(prompt.len());
    let tokens = models.continuation(subject, prompt, GENERATED.min(room))?;
    let truth = models.truth(subject, &tokens, limits, profile)?;
    let Helped { value: (logits, chosen), delegated } = helped(backend, |backend| {
        let weights = Resident::upload(backend, &subject.model)?;
        let mut session = Session::new(backend, &subject.model, &weights, tokens.len())?;
        let mut logits = session.prefill(backend, prompt, Capture::LOGITS)?.logits;
        let mut chosen = Vec::new();
        for (i, &token) in tokens.iter().enumerate().skip(prompt.len()) {
            // Every other step leaves the choice to the device's own argmax.
            if i % 2 == 0 {
                chosen.push((i, session.step_greedy(backend, token)?));
                logits.push(Vec::new());
            } else {
                logits.extend(session.step(backend, token, Capture::LOGITS)?.logits);
            }
        }
        session.free(backend)?;
        weights.free(backend)?;
        Ok((logits, chosen))
    })?;
    let mut finding = Finding::with_help(delegated);
    for (position, index) in chosen {
        finding.output(&[index as f32]);
        judge_token(&mut finding, &truth, position, index);
    }
    for (position, row) in logits.iter().enumerate().filter(|(_, row)| !row.is_empty()) {
        finding.output(row);
        finding.judge(&format!("position {position}"), &truth.logits(position..position + 1), row, 1.0);
        if let Some(host) = truth.host.logits.get(position) {
            finding.compare_bits(row, host);
        }
    }
    Ok(finding)
}

/// The same tokens as one batch and one by one.
fn prefill_and_steps<B: Backend>(
    models: &mut Models,
    subject: &Subject,
    tokens: &[usize],
    limits: Limits,
    backend: &mut B,
    profile: &NumericProfile,
) -> Result<Finding, CheckError> {
    let truth = models.truth(subject, tokens, limits, profile)?;
    let Helped { value: (batch, steps), delegated } = helped(backend, |backend| {
        let weights = Resident::upload(backend, &subject.model)?;
        let mut session = Session::new(backend, &subject.model, &weights, tokens.len())?;
        let batch = session.prefill(backend, tokens, Capture::LOGITS)?.logits;
        session.free(backend)?;
        let mut session = Session::new(backend, &subject.model, &weights, tokens.len())?;
        let mut steps = Vec::new();
        for &token in tokens {
            steps.extend(session.step(backend, token, Capture::LOGITS)?.logits);
        }
        session.free(backend)?;
        weights.free(backend)?;
        Ok((batch, steps))
    })?;
    let mut finding = Finding::with_help(delegated);
    let (a, b) = (batch.concat(), steps.concat());
    finding.output(&a);
    finding.output(&b);
    judge_pair(&mut finding, &truth, 0..tokens.len(), &a, &b);
    judge_choice(&mut finding, &truth, &batch, limits.cosine_floor);
    judge_choice(&mut finding, &truth, &steps, limits.cosine_floor);
    Ok(finding)
}

/// Two ways to the same logits: with another session about, and alone.
struct Pair {
    together: Vec<Vec<f32>>,
    alone: Vec<Vec<f32>>,
}

/// Sessions must not see each other. A deterministic backend gives the same bits with another session about as alone;
/// for one that declares otherwise the difference is noted, and only the limits of the other cases hold.
fn independent<B: Backend>(
    subject: &Subject,
    tokens: &[usize],
    backend: &mut B,
    profile: &NumericProfile,
    clone: bool,
) -> Result<Finding, CheckError> {
    let Helped { value: pair, delegated } = helped(backend, |backend| {
        let weights = Resident::upload(backend, &subject.model)?;
        let pair = if clone {
            clone_and_diverge(backend, subject, &weights, tokens)?
        } else {
            interleave(backend, subject, &weights, tokens)?
        };
        weights.free(backend)?;
        Ok(pair)
    })?;
    let mut finding = Finding::with_help(delegated);
    for (step, (together, alone)) in pair.together.iter().zip(&pair.alone).enumerate() {
        finding.output(together);
        finding.quality.elements += together.len() as u64;
        let differ = bits_differ(together, alone);
        if profile.deterministic {
            finding.require(differ == 0, || {
                format!(
                    "step {step}: {differ} of {} logits differ when another session is about",
                    alone.len()
                )
            });
        } else if differ > 0 {
            finding.notes.push(format!("step {step}: {differ} logits differ; declared non-deterministic"));
        }
    }
    Ok(finding)
}

/// The first half of the tokens, and the two that follow it.
fn split(tokens: &[usize]) -> (&[usize], usize, usize) {
    let half = (tokens.len() / 2).max(1);
    let at = |i: usize| tokens.get(i).or(tokens.first()).copied().unwrap_or(0);
    (tokens.get(..half).unwrap_or(tokens), at(half), at(half + 1))
}

/// A session is cloned, both go on with other tokens; each must be what it would be alone.
fn clone_and_diverge<D: Backend>(
    backend: &mut D,
    subject: &Subject,
    weights: &Resident<D>,
    tokens: &[usize],
) -> Result<Pair, ForwardError> {
    let (prompt, first, second) = split(tokens);
    let capacity = prompt.len() + 2;
    let mut original = Session::new(backend, &subject.model, weights, capacity)?;
    original.prefill(backend, prompt, Capture::NOTHING)?;
    let mut copy = original.fork(backend)?;
    let mut together = copy.step(backend, second, Capture::LOGITS)?.logits;
    together.extend(original.step(backend, first, Capture::LOGITS)?.logits);
    copy.free(backend)?;
    together.extend(original.step(backend, second, Capture::LOGITS)?.logits);
    original.free(backend)?;

    let mut alone = Vec::new();
    for path in [&[second][..], &[first, second]] {
        let mut session = Session::new(backend, &subject.model, weights, capacity)?;
        session.prefill(backend, prompt, Capture::NOTHING)?;
        for &token in path {
            alone.extend(session.step(backend, token, Capture::LOGITS)?.logits);
        }
        session.free(backend)?;
    }
    Ok(Pair { together, alone })
}

/// Two sequences advance in turn; each must be what it would be alone.
fn interleave<D: Backend>(
    backend: &mut D,
    subject: &Subject,
    weights: &Resident<D>,
    tokens: &[usize],
) -> Result<Pair, ForwardError> {
    let forward: Vec<usize> = tokens.iter().copied().take(PROMPT).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    let mut one = Session::new(backend, &subject.model, weights, forward.len())?;
    let mut two = Session::new(backend, &subject.model, weights, backward.len())?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (&a, &b) in forward.iter().zip(&backward) {
        first.extend(one.step(backend, a, Capture::LOGITS)?.logits);
        second.extend(two.step(backend, b, Capture::LOGITS)?.logits);
    }
    one.free(backend)?;
    two.free(backend)?;
    first.append(&mut second);

    let mut alone = Vec::new();
    for sequence in [&forward, &backward] {
        let mut session = Session::new(backend, &subject.model, weights, sequence.len())?;
        for &token in sequence {
            alone.extend(session.step(backend, token, Capture::LOGITS)?.logits);
        }
        session.free(backend)?;
    }
    Ok(Pair { together: first, alone })
}
