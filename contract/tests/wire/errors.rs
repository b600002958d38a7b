//! Errors of requests that are not answered: reported once, at the next fence, with the op that caused them.

use modelbench_contract::wire::Request;
use modelbench_contract::{Backend, BackendError, ErrorKind, HostTensor, Op};

use crate::backend::Trip;
use crate::harness::{assert_invalid, served};

fn full() -> Trip {
    Trip::Fail(BackendError::new(ErrorKind::ResourceExhausted, "no memory"))
}

#[test]
fn the_next_fence_tells_and_then_the_slate_is_clean() {
    let mut s = served();
    let w = s.upload(&[1, 2], &[1.0, 2.0]);
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Matmul, full());
    let y = s.remote.matmul(&w, &x).unwrap();
    // The fence that reports is not carried out itself, and its own op is not blamed.
    let error = s.remote.read(&x).unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::ResourceExhausted, Some(Op::Matmul)));
    assert!(!s.watch.calls().contains(&Op::Read));
    assert_eq!(s.remote.read(&x).unwrap(), [3.0, 4.0]);
    assert_invalid(&s.remote.read(&y).unwrap_err(), "has no value");
    assert_eq!(s.remote.fault(), None);
    s.bye();
}

#[test]
fn the_first_of_two_errors_is_told_and_an_op_that_the_backend_names_is_kept() {
    let mut s = served();
    let w = s.upload(&[1, 2], &[1.0, 2.0]);
    let mut x = s.upload(&[2], &[3.0, 4.0]);
    let other = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Matmul, Trip::Fail(BackendError::internal("first").in_op(Op::BatchedMatmul)));
    s.watch.trip(Op::AddInPlace, full());
    s.remote.matmul(&w, &x).unwrap();
    s.remote.add_in_place(&mut x, &other).unwrap();
    let error = s.remote.sync().unwrap_err();
    assert_eq!((error.message.as_str(), error.op), ("first", Some(Op::BatchedMatmul)));
    s.remote.sync().unwrap();
    s.bye();
}

#[test]
fn what_depends_on_a_poisoned_handle_is_silent() {
    let mut s = served();
    let w = s.upload(&[2, 2], &[1.0; 4]);
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Matmul, full());
    let bad = s.remote.matmul(&w, &x).unwrap();
    let worse = s.remote.matmul(&w, &bad).unwrap();
    let mut kept = s.upload(&[2], &[1.0, 1.0]);
    s.remote.add_in_place(&mut kept, &worse).unwrap();
    s.remote.free(worse).unwrap();
    let error = s.remote.sync().unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::ResourceExhausted, Some(Op::Matmul)));
    // A consequence that comes after the report is silent too, and only a fence that asks for the value tells.
    s.remote.matmul(&w, &bad).unwrap();
    s.remote.sync().unwrap();
    assert_eq!(s.watch.calls().iter().filter(|op| **op == Op::Matmul).count(), 1);
    assert_eq!(s.remote.read(&kept).unwrap(), [1.0, 1.0]);
    // A poisoned handle may get a value after all.
    s.remote.submit(&Request::Matmul { out: bad.handle, w: w.handle, x: x.handle }, &[]).unwrap();
    assert_eq!(s.remote.read(&bad).unwrap(), [7.0, 7.0]);
    s.bye();
}

#[test]
fn a_fence_that_fails_itself_answers_for_itself() {
    let mut s = served();
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Argmax, full());
    let error = s.remote.argmax(&x).unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::ResourceExhausted, Some(Op::Argmax)));
    assert_eq!(s.remote.argmax(&x).unwrap(), 1);
    s.bye();
}

#[test]
fn reset_frees_everything_even_with_an_error_pending() {
    let mut s = served();
    let w = s.upload(&[1, 2], &[1.0, 2.0]);
    let x = s.upload(&[2], &[3.0, 4.0]);
    let config =
        modelbench_contract::KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 1, theta: 1e4 };
    s.remote.kv_store().unwrap().new_kv(&config).unwrap();
    s.watch.trip(Op::Matmul, full());
    s.remote.matmul(&w, &x).unwrap();
    assert_eq!(s.remote.reset().unwrap_err().op, Some(Op::Matmul));
    assert_eq!(s.watch.live(), 0);
    assert_invalid(&s.remote.read(&x).unwrap_err(), "freed");
    s.remote.reset().unwrap();
    s.bye();
}

#[test]
fn reset_goes_on_when_one_free_fails() {
    let mut s = served();
    for _ in 0..4 {
        s.upload(&[2], &[3.0, 4.0]);
    }
    s.watch.trip(Op::Free, Trip::Fail(BackendError::internal("stuck")));
    s.watch.trip(Op::Free, Trip::Panic("very stuck"));
    assert_eq!(s.remote.reset().unwrap_err().message, "stuck");
    assert_eq!(s.watch.live(), 0);
    s.bye();
}

#[test]
fn bye_reports_what_is_pending_and_ends_all_the_same() {
    let mut s = served();
    let w = s.upload(&[1, 2], &[1.0, 2.0]);
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Matmul, full());
    s.remote.matmul(&w, &x).unwrap();
    assert_eq!(s.remote.bye().unwrap_err().op, Some(Op::Matmul));
    s.ended().unwrap();
}

#[test]
fn bye_ends_when_freeing_fails() {
    let mut s = served();
    s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Free, Trip::Fail(BackendError::internal("stuck")));
    assert_eq!(s.remote.bye().unwrap_err().message, "stuck");
    // The worker is gone: it does not wait for another bye.
    assert_eq!(s.remote.sync().unwrap_err().kind, ErrorKind::Unavailable);
    s.ended().unwrap();
}

#[test]
fn a_closed_stream_ends_the_worker_and_frees_everything() {
    let mut s = served();
    s.upload(&[2], &[3.0, 4.0]);
    s.remote.sync().unwrap();
    assert_eq!(s.watch.live(), 1);
    s.ended().unwrap();
}

#[test]
fn an_error_that_talks_too_much_is_cut() {
    let mut s = served();
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Argmax, Trip::Fail(BackendError::internal("ä\u{1}".repeat(1 << 20))));
    let message = s.remote.argmax(&x).unwrap_err().message;
    assert!(message.len() < 16 << 10 && message.ends_with('…'));
    assert_eq!(s.remote.argmax(&x).unwrap(), 1);
    s.bye();
}

#[test]
fn a_header_that_is_too_long_is_refused_here_and_the_conversation_goes_on() {
    let mut s = served();
    let quant = modelbench_contract::QuantSpec {
        block: 1,
        axis: 0,
        bits: 8,
        symmetric: true,
        scales: vec![0.123_456_7; 20_000],
        zero_points: Vec::new(),
        static_activation: None,
    };
    let tensor = HostTensor::from_f32(&[2], &[1.0, 2.0]).unwrap().with_quant(quant);
    let error = s.remote.upload(&tensor, modelbench_contract::DType::F32).unwrap_err();
    assert_invalid(&error, "cannot be sent");
    assert_eq!((error.op, s.remote.fault()), (Some(Op::Upload), None));
    s.remote.sync().unwrap();
    s.bye();
}
