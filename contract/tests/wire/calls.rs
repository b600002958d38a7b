//! A round trip of every request that the backend supports, and the plain answer for those that it does not.

use std::sync::mpsc;

use modelbench_contract::wire::{Request, ServeOptions};
use modelbench_contract::{
    AttentionSpec, Backend, Cap, DType, ErrorKind, Graph, HostTensor, KvConfig, Op, RopeSpec,
};

use crate::harness::{served, served_with};

const KV: KvConfig = KvConfig { layers: 2, kv_heads: 1, head_dim: 2, capacity: 8, theta: 1e4 };

#[test]
fn the_identity_and_the_sandbox_arrive() {
    let mut s = served_with(|| ServeOptions {
        sandbox: [("network".to_owned(), "none".to_owned())].into(),
        ..ServeOptions::default()
    });
    assert_eq!((s.remote.name(), s.remote.version(), s.remote.tier()), ("host-memory", "1.2.3", "scalar"));
    assert_eq!(s.remote.device().hardware, "a processor");
    assert_eq!(s.remote.sandbox()["network"], "none");
    let now = s.remote.refresh_identity().unwrap();
    assert_eq!(now, s.remote.identity());
    s.bye();
}

#[test]
fn tensors_come_back_bit_for_bit() {
    let mut s = served();
    let odd = [f32::NAN, -0.0, f32::from_bits(1), f32::MAX, f32::NEG_INFINITY, 0.1];
    let t = s.upload(&[2, 3], &odd);
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&s.remote.read(&t).unwrap()), bits(&odd));
    assert_eq!(bits(&s.remote.host(&t).unwrap().unwrap()), bits(&odd));
    let large = s.upload(&[100], &[1.0; 100]);
    assert_eq!(s.remote.host(&large).unwrap(), None);
    s.remote.free(t).unwrap();
    s.remote.sync().unwrap();
    assert_eq!(s.watch.live(), 1);
    s.bye();
}

#[test]
fn a_body_of_several_pieces_arrives() {
    let mut s = served();
    let values: Vec<f32> = (0..700_000).map(|i| i as f32).collect();
    let t = s.upload(&[values.len()], &values);
    assert!(s.remote.read(&t).unwrap() == values);
    s.bye();
}

#[test]
fn the_math_arrives() {
    let mut s = served();
    let w = s.upload(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let x = s.upload(&[2], &[5.0, 6.0]);
    let mut y = s.remote.matmul(&w, &x).unwrap();
    s.remote.add_in_place(&mut y, &x).unwrap();
    assert_eq!(s.remote.read(&y).unwrap(), [22.0, 45.0]);
    assert_eq!(s.remote.argmax(&y).unwrap(), 1);
    let n = s.remote.rms_norm(&y, &x, 1e-5).unwrap();
    let r = s.remote.rope(&n, RopeSpec { pos: 3, n_heads: 1, head_dim: 2, theta: 1e4 }).unwrap();
    assert_eq!(s.remote.read(&r).unwrap(), [22.0, 45.0]);
    let calls = [Op::Upload, Op::Upload, Op::Matmul, Op::AddInPlace, Op::Read, Op::Argmax, Op::RmsNorm];
    assert_eq!(s.watch.calls()[..7], calls);
    assert_eq!((s.remote.ops_sent()[&Op::Read], s.remote.last_op()), (2, Some(Op::Read)));
    s.bye();
}

#[test]
fn the_kv_store_arrives() {
    let mut s = served();
    let rows = s.upload(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let kv = &mut s.remote.kv_store().unwrap();
    let mut store = kv.new_kv(&KV).unwrap();
    for layer in 0..2 {
        kv.append(&mut store, layer, &rows, &rows, &rows, 0).unwrap();
    }
    let mut copy = kv.clone_kv(&store).unwrap();
    assert_eq!(kv.evict(&mut copy, 1, 1).unwrap(), 1);
    assert_eq!(kv.evict(&mut copy, -1, i64::MAX).unwrap(), 0);
    assert_eq!(kv.keys(&copy, 1).unwrap(), [1.0, 2.0, 5.0, 6.0]);
    assert_eq!(kv.values(&store, 0).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(kv.positions(&copy).unwrap(), [0, 1]);
    assert_eq!((kv.len(&store).unwrap(), kv.len(&copy).unwrap()), (3, 2));
    kv.free_kv(copy).unwrap();
    let spec = AttentionSpec { group: 2, scale: 0.5, causal: true };
    let q = s.upload(&[4], &[1.0; 4]);
    let out = s.remote.attention(&q, &store, 1, spec).unwrap();
    assert_eq!(s.remote.read(&out).unwrap(), [1.0; 4]);
    s.bye();
}

#[test]
fn an_empty_store_has_no_rows() {
    let mut s = served();
    let kv = s.remote.kv_store().unwrap();
    let store = kv.new_kv(&KV).unwrap();
    assert!(kv.keys(&store, 0).unwrap().is_empty() && kv.positions(&store).unwrap().is_empty());
    s.bye();
}

#[test]
fn the_collectives_arrive() {
    let mut s = served();
    s.remote.collectives().unwrap().init_ranks(2).unwrap();
    let part = |v: [f32; 2]| HostTensor::from_f32(&[2], &v).unwrap();
    let ranks = s.remote.collectives().unwrap();
    let a = ranks.upload_rank(0, &part([1.0, 2.0])).unwrap();
    let b = ranks.upload_rank(1, &part([10.0, 20.0])).unwrap();
    let parts = [&a, &b];
    let all = [
        ranks.all_reduce_sum(&parts).unwrap(),
        ranks.all_gather(&parts).unwrap(),
        ranks.reduce_scatter(&parts).unwrap(),
        ranks.all_to_all(&parts).unwrap(),
    ];
    let expected: [[&[f32]; 2]; 4] = [
        [&[11.0, 22.0], &[11.0, 22.0]],
        [&[1.0, 2.0, 10.0, 20.0], &[1.0, 2.0, 10.0, 20.0]],
        [&[11.0], &[22.0]],
        [&[1.0, 10.0], &[2.0, 20.0]],
    ];
    for (results, expected) in all.iter().zip(expected) {
        for (result, expected) in results.iter().zip(expected) {
            assert_eq!(s.remote.read(result).unwrap(), expected);
        }
    }
    s.bye();
}

#[test]
fn what_the_backend_lacks_is_unimplemented() {
    let mut s = served();
    let x = s.upload(&[2], &[1.0, 2.0]);
    let mut y = s.upload(&[2], &[1.0, 2.0]);
    let (handle, graph) = (x.handle, Graph { inputs: 1, steps: Vec::new(), result: 0 });
    let half = HostTensor::from_bytes(&[2], DType::F16, vec![0; 4]).unwrap();
    s.remote.upload(&half, DType::F16).unwrap();
    assert_eq!(s.remote.sync().unwrap_err().kind, ErrorKind::Unimplemented);
    s.remote.swiglu(&x, &y).unwrap();
    assert_eq!(s.remote.sync().unwrap_err().op, Some(Op::Swiglu));
    s.remote.add_bias(&mut y, &x).unwrap();
    assert_eq!(s.remote.sync().unwrap_err().op, Some(Op::AddBias));
    s.remote.submit(&Request::CompileGraph { out: 90, graph, examples: vec![handle] }, &[]).unwrap();
    assert_eq!(s.remote.sync().unwrap_err().op, Some(Op::CompileGraph));
    for (request, op) in
        [(Request::DeviceCapacity, Op::DeviceCapacity), (Request::HostCapacity, Op::HostCapacity)]
    {
        let error = s.remote.call(&request, &[], 0).unwrap_err();
        assert_eq!((error.kind, error.op), (ErrorKind::Unimplemented, Some(op)));
    }
    assert!(!s.remote.caps().contains(&Cap::GraphCompile));
    assert!(s.remote.graph_compile().is_none() && s.remote.device_capacity().is_none());
    assert_eq!(s.remote.read(&y).unwrap(), [1.0, 2.0]);
    s.bye();
}

#[test]
fn many_ops_need_one_fence_and_progress_hears_of_each_before() {
    let (tell, told) = mpsc::channel();
    let progress: Box<dyn FnMut(Op) + Send> = Box::new(move |op| tell.send(op).unwrap());
    let mut s = served_with(|| ServeOptions { progress: Some(progress), ..ServeOptions::default() });
    let one = s.upload(&[2], &[1.0, 0.5]);
    let mut sum = s.upload(&[2], &[0.0, 0.0]);
    for _ in 0..1000 {
        s.remote.add_in_place(&mut sum, &one).unwrap();
    }
    assert_eq!(s.remote.read(&sum).unwrap(), [1000.0, 500.0]);
    s.bye();
    let told: Vec<Op> = told.iter().collect();
    assert_eq!(told.iter().filter(|op| **op == Op::AddInPlace).count(), 1000);
    assert_eq!(told.last(), Some(&Op::Read));
}

#[test]
fn effort_is_told_and_is_no_fence_of_its_own_span() {
    let mut s = served();
    let (w, x) = (s.upload(&[1, 2], &[1.0, 2.0]), s.upload(&[2], &[3.0, 4.0]));
    let y = s.remote.matmul(&w, &x).unwrap();
    s.remote.read(&y).unwrap();
    let effort = s.remote.effort().unwrap();
    assert!(effort.calls_ns > 0 && effort.fence_ns > 0, "{effort:?}");
    assert_eq!((s.remote.effort().unwrap(), s.remote.dispatches().unwrap()), (effort, None));
    s.remote.sync().unwrap();
    assert_eq!(s.remote.effort().unwrap().calls_ns, 0);
    s.watch.trip(Op::Matmul, crate::backend::Trip::Fail(modelbench_contract::BackendError::internal("no")));
    let _ = s.remote.matmul(&w, &x).unwrap();
    assert_eq!(s.remote.effort().unwrap_err().op, Some(Op::Matmul));
    s.bye();
}
