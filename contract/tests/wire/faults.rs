//! Workers that break the protocol, go, or say nothing; and answers that are wrong without being a fault.

use std::time::Duration;

use modelbench_contract::wire::{Fault, MemoryTransport, Request, Response, Transport, frame};
use modelbench_contract::{Backend, BackendError, ErrorKind, KvConfig, Op};

use crate::backend::Trip;
use crate::harness::{Remote, fake, fake_within, served, two_values};

/// Reads requests until a fence comes, as a worker does.
fn until_fence(stream: &mut MemoryTransport) {
    while !frame::read::<Request>(stream, 1 << 20).unwrap().0.is_fence() {}
}

/// A fault stays: every call says so at once, and nothing more is sent.
fn assert_dead(remote: &mut Remote, first: &BackendError) {
    let sent = remote.ops_sent().clone();
    let fault = remote.fault().cloned();
    assert_eq!(first.kind, ErrorKind::Unavailable);
    for error in [
        remote.sync().unwrap_err(),
        remote.reset().unwrap_err(),
        remote.bye().unwrap_err(),
        remote.refresh_identity().unwrap_err(),
        remote.submit(&Request::Reset, &[]).unwrap_err(),
    ] {
        assert_eq!(&error, first);
    }
    assert_eq!((remote.ops_sent(), remote.fault()), (&sent, fault.as_ref()));
}

/// What a read gives when the worker answers with these bytes and goes.
#[track_caller]
fn protocol(text: &str, answer: impl FnOnce(&mut MemoryTransport) + Send + 'static) {
    let (mut remote, thread) = fake(move |stream| {
        until_fence(stream);
        answer(stream);
    });
    let tensor = two_values(&mut remote);
    let error = remote.read(&tensor).unwrap_err();
    thread.join().unwrap();
    match remote.fault() {
        Some(Fault::Protocol { op: Some(Op::Read), message }) => {
            assert!(message.contains(text), "{message} does not say {text:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(error.op, Some(Op::Read));
    assert_dead(&mut remote, &error);
}

fn values(shape: &[usize], bytes: usize) -> impl FnOnce(&mut MemoryTransport) + Send + 'static {
    let shape = shape.to_vec();
    move |stream| frame::write(stream, &Response::Values { shape }, &vec![0; bytes]).unwrap()
}

#[test]
fn garbage_and_wrong_lengths_are_the_protocol_broken() {
    protocol("a header of", |s| s.send(&[0xff; 64]).unwrap());
    protocol("no message", |s| s.send(b"\x04\0\0\0\0\0\0\0\0\0\0\0!!!!").unwrap());
    protocol("no message", |s| s.send(b"\x0f\0\0\0\0\0\0\0\0\0\0\0{\"is\":\"nobody\"}").unwrap());
    protocol("a body of", |s| s.send(&[&[2, 0, 0, 0][..], &u64::MAX.to_le_bytes()].concat()).unwrap());
    protocol("unexpected answer", |s| frame::write(s, &Response::Done, &[]).unwrap());
    protocol("short read", values(&[2], 7));
    protocol("short read", values(&[2], 4));
    protocol("short read", values(&[2], 12));
    protocol("short read", values(&[usize::MAX, 8], 8));
}

#[test]
fn a_backend_that_reads_too_little_is_a_short_read() {
    let mut s = served();
    let x = s.upload(&[2], &[1.0, 2.0]);
    s.watch.trip(Op::Read, Trip::Short);
    let error = s.remote.read(&x).unwrap_err();
    assert!(error.message.contains("short read"), "{error}");
    assert!(matches!(s.remote.fault(), Some(Fault::Protocol { op: Some(Op::Read), .. })));
    assert_dead(&mut s.remote, &error);
    s.ended().unwrap();
}

#[test]
fn keys_that_are_no_whole_rows_are_a_short_read() {
    let mut s = served();
    let rows = s.upload(&[1, 2], &[1.0, 2.0]);
    s.watch.trip(Op::KvKeys, Trip::Short);
    let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 1e4 };
    let kv = s.remote.kv_store().unwrap();
    let mut store = kv.new_kv(&config).unwrap();
    kv.append(&mut store, 0, &rows, &rows, &rows, 0).unwrap();
    kv.keys(&store, 0).unwrap_err();
    assert!(matches!(s.remote.fault(), Some(Fault::Protocol { op: Some(Op::KvKeys), .. })));
    s.ended().unwrap();
}

#[test]
fn a_view_of_another_size_is_the_protocol_broken() {
    let (mut remote, thread) = fake(|stream| {
        until_fence(stream);
        frame::write(stream, &Response::View { some: true }, &[0; 9]).unwrap();
    });
    let tensor = two_values(&mut remote);
    remote.host(&tensor).unwrap_err();
    assert!(matches!(remote.fault(), Some(Fault::Protocol { op: Some(Op::Host), .. })));
    thread.join().unwrap();
}

#[test]
fn a_wrong_shape_is_internal_and_no_fault() {
    let mut s = served();
    let w = s.upload(&[2, 2], &[1.0; 4]);
    let x = s.upload(&[2], &[1.0, 2.0]);
    s.watch.trip(Op::Matmul, Trip::Shape);
    let y = s.remote.matmul(&w, &x).unwrap();
    let error = s.remote.read(&y).unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::Internal, Some(Op::Read)));
    assert!(error.message.starts_with("wrong shape:"), "{error}");
    assert_eq!(s.remote.fault(), None);
    assert_eq!(s.remote.read(&x).unwrap(), [1.0, 2.0]);
    s.bye();
}

#[test]
fn rows_of_another_width_are_internal_and_no_fault() {
    let (mut remote, thread) = fake(|stream| {
        until_fence(stream);
        frame::write(stream, &Response::Values { shape: vec![1, 3] }, &[0; 12]).unwrap();
        until_fence(stream);
        frame::write(stream, &Response::Positions, &[0; 9]).unwrap();
    });
    let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 1e4 };
    let store = remote.kv_store().unwrap().new_kv(&config).unwrap();
    let error = remote.kv_store().unwrap().keys(&store, 0).unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::Internal, Some(Op::KvKeys)));
    assert!(error.message.starts_with("wrong shape:") && remote.fault().is_none(), "{error}");
    remote.kv_store().unwrap().positions(&store).unwrap_err();
    assert!(matches!(remote.fault(), Some(Fault::Protocol { op: Some(Op::KvPositions), .. })));
    thread.join().unwrap();
}

#[test]
fn a_peer_that_goes() {
    let (mut remote, thread) = fake(until_fence);
    let tensor = two_values(&mut remote);
    let error = remote.read(&tensor).unwrap_err();
    thread.join().unwrap();
    assert_eq!(remote.fault(), Some(&Fault::Closed { op: Some(Op::Read) }));
    assert_dead(&mut remote, &error);
}

#[test]
fn a_peer_that_goes_in_the_middle_of_an_answer() {
    let (mut remote, thread) = fake(|stream| {
        until_fence(stream);
        stream.send(b"\x20\0\0\0\0").unwrap();
    });
    let error = remote.sync().unwrap_err();
    thread.join().unwrap();
    assert_eq!(remote.fault(), Some(&Fault::Closed { op: Some(Op::Sync) }));
    assert_dead(&mut remote, &error);
}

#[test]
fn a_peer_that_is_gone_when_the_request_is_sent() {
    let (mut remote, thread) = fake(|_| {});
    thread.join().unwrap();
    let error = remote.submit(&Request::InitRanks { ranks: 2 }, &[]).unwrap_err();
    assert_eq!(remote.fault(), Some(&Fault::Closed { op: Some(Op::InitRanks) }));
    assert_dead(&mut remote, &error);
}

#[test]
fn a_peer_that_says_nothing() {
    let deadline = Duration::from_millis(200);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    // Connecting may take its time; only the read has the short deadline.
    let (mut remote, thread) = fake_within(crate::harness::PATIENCE, move |stream| {
        until_fence(stream);
        wait.recv().unwrap();
    });
    remote.set_deadline(deadline);
    let tensor = two_values(&mut remote);
    let error = remote.read(&tensor).unwrap_err();
    assert_eq!(remote.fault(), Some(&Fault::Timeout { op: Some(Op::Read), after: deadline }));
    assert!(error.message.contains("200ms"), "{error}");
    assert_dead(&mut remote, &error);
    release.send(()).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_peer_that_stops_in_the_middle_of_an_answer() {
    let deadline = Duration::from_millis(200);
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let (mut remote, thread) = fake(move |stream| {
        until_fence(stream);
        stream.send(b"\x20\0\0\0\0\0\0\0\0\0\0\0{\"is\"").unwrap();
        wait.recv().unwrap();
    });
    remote.set_deadline(deadline);
    remote.sync().unwrap_err();
    assert_eq!(remote.fault(), Some(&Fault::Timeout { op: Some(Op::Sync), after: deadline }));
    release.send(()).unwrap();
    thread.join().unwrap();
}
