//! Every message comes out of a frame as it went in.

use std::mem::discriminant;

use modelbench_contract::wire::{Effort, Request, Response, frame};
use modelbench_contract::{
    Activation, BackendError, Cap, Capacity, Class, DType, DeviceInfo, DeviceKind, ErrorKind, Graph,
    GraphStep, Identity, KvConfig, NumericProfile, Op, Precision, QuantSpec,
};
use proptest::collection::vec;
use proptest::num::f32::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;

use crate::refusals::Recorder;

/// Every finite f32, denormals and huge ones included.
fn scalar() -> impl Strategy<Value = f32> + Clone {
    POSITIVE | NEGATIVE | NORMAL | SUBNORMAL | ZERO
}

fn dtype() -> impl Strategy<Value = DType> {
    select(&DType::ALL[..])
}

fn quant() -> impl Strategy<Value = QuantSpec> {
    (
        any::<usize>(),
        0usize..4,
        any::<u8>(),
        any::<bool>(),
        vec(scalar(), 0..40),
        vec(any::<i32>(), 0..9),
        option::of(scalar()),
    )
        .prop_map(|(block, axis, bits, symmetric, scales, zero_points, static_activation)| QuantSpec {
            block,
            axis,
            bits,
            symmetric,
            scales,
            zero_points,
            static_activation,
        })
}

fn graph() -> impl Strategy<Value = Graph> {
    let scalars = vec(scalar().prop_map(f64::from), 0..4);
    let step = (select(Op::ALL), vec(any::<usize>(), 0..4), any::<usize>(), scalars)
        .prop_map(|(op, inputs, output, scalars)| GraphStep { op, inputs, output, scalars });
    (any::<usize>(), vec(step, 0..5), any::<usize>()).prop_map(|(inputs, steps, result)| Graph {
        inputs,
        steps,
        result,
    })
}

/// One request of each kind with the same parameters, so that no kind can be forgotten by chance.
fn requests() -> impl Strategy<Value = Vec<Request>> {
    let handles = any::<[u64; 5]>();
    let sizes = any::<[usize; 4]>();
    let lists = (vec(any::<u64>(), 0..9), vec(any::<usize>(), 0..5), "\\PC{0,20}");
    let rest = (scalar(), any::<(i64, i64, u32, bool)>(), dtype(), option::of(quant()), graph());
    (handles, sizes, lists, rest).prop_map(
        |(
            [out, a, b, c, kv],
            [m, n, k, layer],
            (list, shape, text),
            (s, (from, len, v, flag), dtype, quant, graph),
        )| {
            use Request::*;
            let f = f64::from(s);
            let parts: Vec<u64> = list.iter().rev().copied().collect();
            let config = KvConfig { layers: layer, kv_heads: m, head_dim: n, capacity: k, theta: s };
            vec![
                Hello { magic: text.clone(), min: v, max: v / 2, nonce: text },
                Identity,
                Effort,
                Sync,
                Reset,
                Bye,
                Upload { out, shape: shape.clone(), dtype, as_dtype: DType::Q4K, quant },
                Host { tensor: a },
                Read { tensor: a },
                Free { tensor: a },
                Matmul { out, w: a, x: b },
                BatchedMatmul { out, w: a, x: b },
                RmsNorm { out, x: a, weight: b, eps: f },
                Rope { out, x: a, pos: m, n_heads: n, head_dim: k, theta: f },
                Swiglu { out, gate: a, up: b },
                AddInPlace { dst: a, src: b },
                AddBias { dst: a, bias: b },
                Attention { out, q: a, kv, layer, group: m, scale: f, causal: flag },
                Argmax { logits: a },
                NewKv { out, config },
                KvAppend { kv, layer, k_raw: a, k_rope: b, v: c, pos: m },
                KvLen { kv },
                KvKeys { kv, layer },
                KvValues { kv, layer },
                KvPositions { kv },
                KvEvict { kv, from, n: len },
                KvClone { out, kv },
                FreeKv { kv },
                InitRanks { ranks: m },
                UploadRank { out, rank: m, shape },
                AllReduceSum { out: list.clone(), parts: parts.clone() },
                AllGather { out: list.clone(), parts: parts.clone() },
                ReduceScatter { out: list.clone(), parts: parts.clone() },
                AllToAll { out: list.clone(), parts },
                DeviceCapacity,
                HostCapacity,
                CompileGraph { out, graph, examples: list.clone() },
                ReplayGraph { out, graph: kv, inputs: list },
                DropGraph { graph: kv },
            ]
        },
    )
}

fn identity() -> impl Strategy<Value = Identity> {
    use Precision::*;
    let precision = || select(vec![F64, F32, Tf32, F16, Bf16]);
    let kinds = {
        use DeviceKind::*;
        select(vec![Cpu, Software, Integrated, Discrete, Virtual])
    };
    let numerics =
        (precision(), precision(), any::<[bool; 3]>()).prop_map(|(operand, accumulator, [z, q, d])| {
            let q8_activation = if q { Activation::Int8 } else { Activation::Float };
            NumericProfile { operand, accumulator, flush_to_zero: z, q8_activation, deterministic: d }
        });
    let caps = prop::collection::btree_set(select(&Cap::ALL[..]), 0..9);
    (vec("\\PC{0,12}", 6), any::<bool>(), caps, numerics, kinds).prop_map(
        |(texts, exact, caps, numerics, kind)| {
            let [name, version, tier, hardware, driver, runtime]: [String; 6] = texts.try_into().unwrap();
            let class = if exact { Class::Reference } else { Class::Approx };
            let device = DeviceInfo { kind, hardware, driver, runtime };
            Identity { name, version, tier, class, caps, numerics, device }
        },
    )
}

/// One response of each kind.
fn responses() -> impl Strategy<Value = Vec<Response>> {
    let kinds = {
        use ErrorKind::*;
        select(vec![Unimplemented, InvalidArgument, ResourceExhausted, Unavailable, DeviceLost, Internal])
    };
    let error = (kinds, option::of(select(Op::ALL)), any::<String>())
        .prop_map(|(kind, op, message)| BackendError { kind, op, message });
    let sandbox = prop::collection::btree_map("[a-z]{1,8}", "\\PC{0,20}", 0..4);
    let numbers = any::<(u64, u32, bool, u64, Option<u64>)>();
    (identity(), sandbox, error, vec(any::<usize>(), 0..5), numbers).prop_map(
        |(identity, sandbox, error, shape, (value, version, some, total, free))| {
            let (magic, nonce) = (identity.name.clone(), identity.tier.clone());
            let identity = Box::new(identity);
            vec![
                Response::Hello { magic, version, nonce, identity: identity.clone(), sandbox },
                Response::Identity { identity },
                Response::Done,
                Response::Values { shape },
                Response::View { some },
                Response::Index { value },
                Response::Positions,
                Response::Capacity { capacity: Capacity { total, free } },
                Response::Effort { effort: Effort { calls_ns: total, fence_ns: value, dispatches: free } },
                Response::Error { error },
            ]
        },
    )
}

fn through_a_frame<M: serde::Serialize + serde::de::DeserializeOwned>(
    message: &M,
    body: &[u8],
) -> (M, Vec<u8>) {
    let mut stream = Recorder { bytes: Vec::new(), asked: 0 };
    frame::write(&mut stream, message, body).unwrap();
    let back = frame::read(&mut stream, body.len() as u64).unwrap();
    assert!(stream.bytes.is_empty());
    back
}

/// Equality of numbers takes 0 and -0 for one.
fn text(message: &impl std::fmt::Debug) -> String {
    format!("{message:?}")
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn requests_come_out_as_they_went_in(requests in requests(), body in vec(any::<u8>(), 0..99)) {
        for (i, request) in requests.iter().enumerate() {
            prop_assert!(requests[..i].iter().all(|r| discriminant(r) != discriminant(request)));
            let (back, bytes) = through_a_frame(request, &body);
            prop_assert_eq!((&back, &bytes), (request, &body));
            prop_assert_eq!(text(&back), text(request));
        }
    }

    #[test]
    fn responses_come_out_as_they_went_in(responses in responses(), body in vec(any::<u8>(), 0..99)) {
        for response in &responses {
            prop_assert_eq!(through_a_frame(response, &body), (response.clone(), body.clone()));
        }
    }

    #[test]
    fn every_f32_comes_out_exactly(value in scalar()) {
        let request = Request::RmsNorm { out: 1, x: 2, weight: 3, eps: f64::from(value) };
        let (Request::RmsNorm { eps, .. }, _) = through_a_frame(&request, &[]) else { panic!() };
        prop_assert_eq!((eps as f32).to_bits(), value.to_bits());
    }
}

#[test]
fn exactly_the_listed_requests_are_fences() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let requests = requests().new_tree(&mut runner).unwrap().current();
    let fences: Vec<String> = requests
        .iter()
        .filter(|r| r.is_fence())
        .map(|r| serde_json::to_value(r).unwrap()["op"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        fences.join(" "),
        "hello identity effort sync bye host read argmax kv_len kv_keys kv_values kv_positions kv_evict \
         device_capacity host_capacity"
    );
}
