//! Scalars cross the wire bit for bit; what JSON cannot carry is refused before it is sent.

use modelbench_contract::wire::{Request, frame};
use modelbench_contract::{
    AttentionSpec, Backend, DType, ErrorKind, HostTensor, KvConfig, Op, QuantSpec, RopeSpec,
};

use crate::harness::served;
use crate::refusals::Recorder;

/// The smallest and largest of each kind, and values whose shortest decimal rounds wrongly by way of f64.
const HARD: [f32; 9] = [
    f32::from_bits(1),
    f32::from_bits(0x007f_ffff),
    f32::MIN_POSITIVE,
    f32::MAX,
    1e-5,
    0.1,
    1e6,
    f32::from_bits(0x15ae_43fd),
    f32::from_bits(0x15ae_43fe),
];

#[test]
fn eps_theta_and_scale_arrive_exactly() {
    let mut s = served();
    let x = s.upload(&[2], &[1.0, 2.0]);
    let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 1e4 };
    let store = s.remote.kv_store().unwrap().new_kv(&config).unwrap();
    let mut sent = Vec::new();
    for value in HARD {
        s.remote.rms_norm(&x, &x, value).unwrap();
        s.remote.rope(&x, RopeSpec { pos: 0, n_heads: 1, head_dim: 2, theta: value }).unwrap();
        let spec = AttentionSpec { group: 1, scale: -value, causal: false };
        s.remote.attention(&x, &store, 0, spec).unwrap();
        sent.extend([value, value, -value]);
    }
    s.remote.sync().unwrap();
    assert_eq!(s.watch.scalars(), sent);
    s.bye();
}

#[test]
fn scales_and_the_base_of_a_store_arrive_exactly() {
    for value in HARD {
        let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: value };
        let quant = QuantSpec {
            block: 1,
            axis: 0,
            bits: 8,
            symmetric: true,
            scales: vec![value, -value],
            zero_points: Vec::new(),
            static_activation: Some(value),
        };
        let upload = Request::Upload {
            out: 1,
            shape: vec![2],
            dtype: DType::I8,
            as_dtype: DType::I8,
            quant: Some(quant),
        };
        for request in [Request::NewKv { out: 1, config }, upload] {
            let mut stream = Recorder { bytes: Vec::new(), asked: 0 };
            frame::write(&mut stream, &request, &[]).unwrap();
            let (back, _) = frame::read::<Request>(&mut stream, 0).unwrap();
            assert_eq!(back, request, "{:#x}", value.to_bits());
        }
    }
}

#[test]
fn what_is_no_number_is_refused_and_the_worker_lives() {
    let mut s = served();
    let x = s.upload(&[2], &[1.0, 2.0]);
    let quant = |scale| QuantSpec {
        block: 2,
        axis: 0,
        bits: 8,
        symmetric: true,
        scales: vec![scale],
        zero_points: Vec::new(),
        static_activation: None,
    };
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: bad };
        let codes = HostTensor::from_bytes(&[2], DType::I8, vec![1, 2]).unwrap().with_quant(quant(bad));
        let errors = [
            (Op::RmsNorm, s.remote.rms_norm(&x, &x, bad).unwrap_err()),
            (Op::NewKv, s.remote.kv_store().unwrap().new_kv(&config).unwrap_err()),
            (Op::Upload, s.remote.upload(&codes, DType::I8).unwrap_err()),
        ];
        for (op, error) in errors {
            assert_eq!((error.kind, error.op), (ErrorKind::InvalidArgument, Some(op)));
        }
    }
    s.remote.sync().unwrap();
    s.bye();
}
