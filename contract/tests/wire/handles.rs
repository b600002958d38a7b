//! Handles that name nothing, name something of another kind, or are taken.

use modelbench_contract::wire::{RemoteTensor, Request};
use modelbench_contract::{Backend, KvConfig, Op};

use crate::harness::{Served, assert_invalid, served};

const KV: KvConfig = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 1e4 };

/// A tensor that is freed, and its handle.
fn freed(s: &mut Served) -> u64 {
    let t = s.upload(&[2], &[1.0, 2.0]);
    let handle = t.handle;
    s.remote.free(t).unwrap();
    s.remote.sync().unwrap();
    handle
}

#[test]
fn an_unknown_handle() {
    let mut s = served();
    let x = s.upload(&[2], &[1.0, 2.0]);
    let error = s.refused(&Request::Matmul { out: 90, w: 91, x: x.handle }, &[]);
    assert_invalid(&error, "handle 91");
    assert_eq!(error.op, Some(Op::Matmul));
    assert_invalid(&s.remote.call(&Request::Argmax { logits: 91 }, &[], 0).unwrap_err(), "handle 91");
    // The result of what was refused is poisoned, not unknown.
    assert_invalid(&s.remote.call(&Request::Read { tensor: 90 }, &[], 0).unwrap_err(), "no value");
    assert!(!s.watch.calls().contains(&Op::Matmul));
    s.bye();
}

#[test]
fn a_double_free_and_a_read_after_free() {
    let mut s = served();
    let handle = freed(&mut s);
    assert_invalid(&s.remote.call(&Request::Read { tensor: handle }, &[], 8).unwrap_err(), "freed");
    let error = s.refused(&Request::Free { tensor: handle }, &[]);
    assert_invalid(&error, "freed");
    assert_eq!(error.op, Some(Op::Free));
    assert_eq!(s.watch.calls().iter().filter(|op| **op == Op::Free).count(), 1);
    s.bye();
}

#[test]
fn a_result_handle_in_use_keeps_what_it_names() {
    let mut s = served();
    let w = s.upload(&[2, 2], &[1.0; 4]);
    let x = s.upload(&[2], &[1.0, 2.0]);
    for out in [x.handle, w.handle] {
        let error = s.refused(&Request::Matmul { out, w: w.handle, x: x.handle }, &[]);
        assert_invalid(&error, "in use");
    }
    assert_eq!(s.remote.read(&x).unwrap(), [1.0, 2.0]);
    let twice = Request::AllReduceSum { out: vec![80, 80], parts: vec![x.handle, w.handle] };
    assert_invalid(&s.refused(&twice, &[]), "in use");
    assert!(!s.watch.calls().iter().any(|op| matches!(op, Op::Matmul | Op::AllReduceSum)));
    s.bye();
}

#[test]
fn a_freed_handle_may_be_used_again() {
    let mut s = served();
    let handle = freed(&mut s);
    let upload = Request::Upload {
        out: handle,
        shape: vec![1],
        dtype: modelbench_contract::DType::F32,
        as_dtype: modelbench_contract::DType::F32,
        quant: None,
    };
    s.remote.submit(&upload, &7f32.to_le_bytes()).unwrap();
    let (_, body) = s.remote.call(&Request::Read { tensor: handle }, &[], 4).unwrap();
    assert_eq!(body, 7f32.to_le_bytes());
    s.bye();
}

#[test]
fn a_handle_of_another_kind() {
    let mut s = served();
    let x = s.upload(&[2], &[1.0, 2.0]);
    let store = s.remote.kv_store().unwrap().new_kv(&KV).unwrap();
    assert_invalid(&s.refused(&Request::Free { tensor: store.handle }, &[]), "no tensor");
    assert_invalid(&s.refused(&Request::FreeKv { kv: x.handle }, &[]), "no KV store");
    assert_invalid(&s.refused(&Request::DropGraph { graph: x.handle }, &[]), "no graph");
    assert_invalid(&s.remote.call(&Request::KvLen { kv: x.handle }, &[], 0).unwrap_err(), "no KV store");
    // Both are still there.
    assert_eq!(s.remote.kv_store().unwrap().len(&store).unwrap(), 0);
    assert_eq!(s.remote.read(&x).unwrap(), [1.0, 2.0]);
    s.bye();
}

#[test]
fn one_handle_as_destination_and_source() {
    let mut s = served();
    let RemoteTensor { handle, .. } = s.upload(&[2], &[1.0, 2.0]);
    let error = s.refused(&Request::AddInPlace { dst: handle, src: handle }, &[]);
    assert_invalid(&error, "destination and source");
    s.bye();
}
