//! A backend that panics costs the call, not the worker and not the tensors it was given.

use modelbench_contract::{Backend, ErrorKind, KvConfig, Op};

use crate::backend::Trip;
use crate::harness::served;

const KV: KvConfig = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 1e4 };

#[test]
fn in_an_op_with_a_result() {
    let mut s = served();
    let w = s.upload(&[1, 2], &[1.0, 2.0]);
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Matmul, Trip::Panic("index out of bounds"));
    s.remote.matmul(&w, &x).unwrap();
    let error = s.remote.sync().unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::Internal, Some(Op::Matmul)));
    assert_eq!(error.message, "panicked: index out of bounds");
    let y = s.remote.matmul(&w, &x).unwrap();
    assert_eq!(s.remote.read(&y).unwrap(), [11.0]);
    s.bye();
}

#[test]
fn in_an_op_in_place_the_destination_stays() {
    let mut s = served();
    let mut x = s.upload(&[2], &[3.0, 4.0]);
    let y = s.upload(&[2], &[1.0, 1.0]);
    s.watch.trip(Op::AddInPlace, Trip::Panic("lost"));
    s.remote.add_in_place(&mut x, &y).unwrap();
    assert_eq!(s.remote.sync().unwrap_err().message, "panicked: lost");
    assert_eq!(s.remote.read(&x).unwrap(), [3.0, 4.0]);
    s.bye();
}

#[test]
fn in_a_change_of_a_store_the_store_stays() {
    let mut s = served();
    let rows = s.upload(&[1, 2], &[1.0, 2.0]);
    s.watch.trip(Op::KvAppend, Trip::Panic("lost"));
    s.watch.trip(Op::KvEvict, Trip::Panic("lost too"));
    let kv = s.remote.kv_store().unwrap();
    let mut store = kv.new_kv(&KV).unwrap();
    kv.append(&mut store, 0, &rows, &rows, &rows, 0).unwrap();
    assert_eq!(kv.len(&store).unwrap_err().message, "panicked: lost");
    kv.append(&mut store, 0, &rows, &rows, &rows, 0).unwrap();
    let error = kv.evict(&mut store, 0, 1).unwrap_err();
    assert_eq!((error.message.as_str(), error.op), ("panicked: lost too", Some(Op::KvEvict)));
    assert_eq!(kv.len(&store).unwrap(), 1);
    s.bye();
}

#[test]
fn in_a_fence_the_answer_says_so() {
    let mut s = served();
    let x = s.upload(&[2], &[3.0, 4.0]);
    s.watch.trip(Op::Read, Trip::Panic("no"));
    let error = s.remote.read(&x).unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::Internal, Some(Op::Read)));
    assert_eq!(s.remote.read(&x).unwrap(), [3.0, 4.0]);
    assert_eq!(s.remote.fault(), None);
    s.bye();
}
