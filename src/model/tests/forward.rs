//! The forward pass on cpu-ref: against float64, against itself, and when something goes wrong.

use modelbench_contract::{ErrorKind, Op};

use super::counting::Counting;
use super::make::{open_bundled, tiny};
use super::*;

#[test]
fn bundled_models_meet_their_goldens_at_every_position() {
    for name in BUNDLED {
        let model = open_bundled(name);
        let golden = bundled_golden(model.digest()).unwrap().unwrap();
        for output in
            [run(&mut cpu(), &model, &golden.input_ids), run_steps(&mut cpu(), &model, &golden.input_ids)]
        {
            let logits = golden.logits.as_ref().unwrap();
            assert_eq!(output.logits.len(), logits.rows());
            for (position, got) in output.logits.iter().enumerate() {
                let off = difference(got, logits.row(position).unwrap());
                assert!(off < 2e-5, "{name}: logits at {position} are off by {off}");
            }
            assert_eq!(output.hidden.len(), golden.hidden.len());
            for (layer, (got, want)) in output.hidden.iter().zip(&golden.hidden).enumerate() {
                let largest = want.values.iter().fold(0.0f64, |a, x| a.max(x.abs()));
                let off = difference(got, &want.values) / largest;
                assert!(off < 2e-5, "{name}: hidden state {layer} is off by {off} of its largest value");
            }
        }
    }
}

#[test]
fn prefill_pieces_and_steps_give_the_same_bits() {
    let model = open_bundled("kjv");
    let tokens: Vec<usize> = b"And God said, Let there be light".iter().map(|&b| usize::from(b)).collect();
    let whole = run(&mut cpu(), &model, &tokens);
    assert_eq!(bits(&whole), bits(&run_steps(&mut cpu(), &model, &tokens)));
    let mut backend = cpu();
    let weights = Resident::upload(&mut backend, &model).unwrap();
    let mut session = Session::new(&mut backend, &model, &weights, 64).unwrap();
    let mut logits = Vec::new();
    for piece in tokens.chunks(7) {
        logits.extend(session.prefill(&mut backend, piece, Capture::LOGITS).unwrap().logits);
    }
    assert_eq!((session.len(), session.is_empty()), (tokens.len(), false));
    assert_eq!(logits, whole.logits);
}

#[test]
fn greedy_follows_argmax_and_forks_are_independent() {
    let model = open_bundled("untied");
    let mut backend = Counting::new();
    let weights = Resident::upload(&mut backend, &model).unwrap();
    let mut session = Session::new(&mut backend, &model, &weights, 32).unwrap();
    let nothing = session.prefill(&mut backend, &[3, 1, 4, 1, 5], Capture::NOTHING).unwrap();
    assert_eq!(nothing, ForwardOutput::default());
    let mut fork = session.fork(&mut backend).unwrap();
    let logits = fork.step(&mut backend, 9, Capture::LOGITS).unwrap().logits.remove(0);
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
    assert_eq!(session.step_greedy(&mut backend, 9).unwrap(), best);
    // The fork goes its own way; the session then equals one that never saw it.
    fork.prefill(&mut backend, &[7, 7, 7], Capture::NOTHING).unwrap();
    let next = session.step(&mut backend, 2, Capture::LOGITS).unwrap();
    let mut fresh = Session::new(&mut backend, &model, &weights, 32).unwrap();
    let all = fresh.prefill(&mut backend, &[3, 1, 4, 1, 5, 9, 2], Capture::LOGITS).unwrap();
    assert_eq!(all.logits.last(), next.logits.last());
    assert_eq!(session.evict(&mut backend, 5, 100).unwrap(), 2);
    assert_eq!((session.len(), fork.len()), (5, 9));
    let again = session.prefill(&mut backend, &[9, 2], Capture::LOGITS).unwrap();
    assert_eq!(again.logits[..], all.logits[5..]);
    for session in [session, fork, fresh] {
        session.free(&mut backend).unwrap();
    }
    weights.free(&mut backend).unwrap();
    assert_eq!((backend.tensors, backend.stores), (0, 0));
}

#[test]
fn wrong_calls_are_named_and_leave_the_session_usable() {
    let model = open_bundled("tied");
    let mut backend = cpu();
    let weights = Resident::upload(&mut backend, &model).unwrap();
    let too_long = Session::new(&mut backend, &model, &weights, 129).err().unwrap().to_string();
    assert!(too_long.contains("expected at most 128, the model's context"), "{too_long}");
    let mut session = Session::new(&mut backend, &model, &weights, 2).unwrap();
    let mut error =
        |tokens: &[usize]| session.prefill(&mut backend, tokens, Capture::ALL).unwrap_err().to_string();
    assert!(error(&[]).contains("no tokens"));
    assert!(error(&[128]).contains("token 128: expected less than 128"));
    assert!(error(&[1, 2, 3]).contains("positions 0..3: expected at most 2"));
    assert!(session.step(&mut backend, 1, Capture::LOGITS).is_ok());
}

#[test]
fn a_missing_store_is_seen_as_unimplemented() {
    let model = open_bundled("tied");
    let mut backend = Counting::new();
    let weights = Resident::upload(&mut backend, &model).unwrap();
    backend.has_store = false;
    let error = Session::new(&mut backend, &model, &weights, 2).err().unwrap();
    let ForwardError::Backend(error) = error else { panic!("{error}") };
    assert_eq!((error.kind, error.op), (ErrorKind::Unimplemented, Some(Op::NewKv)));
}

#[test]
fn an_error_at_any_call_frees_every_temporary() {
    let (config, tensors) = tiny(Family::Qwen2, false);
    let folder = formats::hf_folder(&config, &tensors);
    let model = Model::open(folder.path()).unwrap();
    let mut backend = Counting::new();
    run(&mut backend, &model, &[1, 2, 3]);
    let calls = backend.calls;
    // 14 uploads of weights, 19 calls of the layer, and the ends.
    assert_eq!((calls, backend.tensors, backend.stores), (39, 0, 0));
    for fail_at in 1..=calls {
        let mut backend = Counting::new();
        backend.fail_at = Some(fail_at);
        let error = match Resident::upload(&mut backend, &model) {
            Err(error) => error,
            Ok(weights) => {
                let resident = backend.tensors;
                let mut session = Session::new(&mut backend, &model, &weights, 8).unwrap();
                let error = session.prefill(&mut backend, &[1, 2, 3], Capture::ALL).unwrap_err();
                assert_eq!(backend.tensors, resident, "call {fail_at} leaks");
                let again = session.step(&mut backend, 1, Capture::NOTHING).unwrap_err();
                assert!(matches!(again, ForwardError::Failed));
                session.free(&mut backend).unwrap();
                weights.free(&mut backend).unwrap();
                error
            }
        };
        let ForwardError::Backend(error) = error else { panic!("{error}") };
        assert_eq!(error.kind, ErrorKind::ResourceExhausted);
        assert_eq!((backend.tensors, backend.stores), (0, 0), "call {fail_at} leaks");
    }
}
