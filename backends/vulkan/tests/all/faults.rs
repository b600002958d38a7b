//! The validation layer: silent on everything that the backend does. It must be installed (Debian:
//! vulkan-validationlayers). That it is not silent where a barrier is missing is shown in `src/injected.rs`.

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, Cap, DType, ErrorKind, HostTensor, KvConfig, KvStore, RopeSpec,
};
use modelbench_vulkan::{Options, Vulkan};

use crate::kit::{reals, up};
use crate::weights::weight;

fn validated(options: Options) -> Result<Vulkan, BackendError> {
    let given = Options::from_environment().unwrap();
    Vulkan::new(&Options { validation: true, device: given.device, ..options })
}

/// Every op, on operands that other ops have just written.
fn everything(b: &mut Vulkan) -> Result<(), BackendError> {
    let (p, heads, dim) = (3, 2, 8);
    let n = heads * dim;
    let (x, w) = (up(b, &[p, n], &reals(1, p * n)), up(b, &[n], &reals(2, n)));
    let square = up(b, &[n, n], &reals(3, n * n));
    let config = KvConfig { layers: 2, kv_heads: 1, head_dim: dim, capacity: 100, theta: 1e4 };
    let mut kv = b.new_kv(&config)?;
    let h = b.rms_norm(&x, &w, 1e-5)?;
    let q = b.batched_matmul(&square, &h)?;
    let q = b.rope(&q, RopeSpec { pos: 0, n_heads: heads, head_dim: dim, theta: 1e4 })?;
    // More positions than the store's first room, so that it grows while it is used.
    for pos in 0..40 {
        let row = up(b, &[2, dim], &reals(pos, 2 * dim));
        for layer in 0..2 {
            b.append(&mut kv, layer, &row, &row, &row, 2 * pos as usize)?;
        }
    }
    let mut y = b.attention(&q, &kv, 1, AttentionSpec::causal(heads, dim))?;
    b.add_in_place(&mut y, &x)?;
    b.add_bias(&mut y, &w)?;
    let y = b.swiglu(&y, &h)?;
    b.read(&y)?;
    let copy = b.clone_kv(&kv)?;
    b.evict(&mut kv, 3, 5)?;
    b.keys(&kv, 1)?;
    b.values(&copy, 0)?;
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::Q8_0, DType::Q4K] {
        let (host, _) = weight(dtype, 5, 256);
        let (w, v) = (b.upload(&host, dtype)?, up(b, &[256], &reals(5, 256)));
        let y = b.matmul(&w, &v)?;
        b.argmax(&y)?;
    }
    let many = vec![0.5; 3 << 20];
    let large = up(b, &[3 << 20], &many);
    b.argmax(&large)?;
    b.free(large)?;
    let narrow = b.upload(&HostTensor::from_f32(&[32], &reals(6, 32))?, DType::Q8_0)?;
    b.read(&narrow)?;
    b.sync()
}

#[test]
fn the_validation_layer_has_nothing_to_say() {
    let mut b = validated(Options { timing: true, ..Options::default() }).unwrap();
    everything(&mut b).unwrap();
    let [kernels, submissions, barriers] = b.counts();
    assert!(kernels > 20 && submissions > 5 && barriers > 5, "{:?}", b.counts());
    let timed: u64 = b.times().values().map(|(calls, _)| calls).sum();
    assert!(timed == kernels || b.times().is_empty(), "{timed} of {kernels} kernels timed");
}

#[test]
fn a_kernel_beyond_the_timestamps_of_a_submission_is_waited_for_by_the_next() {
    let mut b = validated(Options { timing: true, ..Options::default() }).unwrap();
    let (mut x, ones) = (up(&mut b, &[4], &[1.0; 4]), up(&mut b, &[4], &[1.0; 4]));
    // Each reads what the one before it wrote, which is what the layer sees between kernels.
    for _ in 0..3000 {
        x = b.rms_norm(&x, &ones, 0.0).unwrap();
    }
    b.sync().unwrap();
    let [kernels, _, barriers] = b.counts();
    assert!(kernels > 3000 && barriers > 2900, "{:?}", b.counts());
}

#[test]
fn caps_can_be_left_out_and_then_dtypes_are_kept() {
    let mut b = Vulkan::new(&Options {
        without: vec![Cap::UploadDtype, Cap::CapacityProbe],
        ..Options::from_environment().unwrap()
    })
    .unwrap();
    assert!(!b.caps().contains(&Cap::UploadDtype) && b.caps().contains(&Cap::Async));
    assert!(b.device_capacity().is_none());
    let t = b.upload(&HostTensor::from_f32(&[32], &reals(6, 32)).unwrap(), DType::F16).unwrap();
    assert_eq!(b.read(&t).unwrap(), reals(6, 32));
}

#[test]
fn an_absent_device_is_unavailable_and_the_others_are_listed() {
    let options = Options { device: Some("no such device".to_owned()), ..Options::default() };
    let error = Vulkan::new(&options).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unavailable);
    assert!(error.message.contains("no such device") && error.message.contains("0: "), "{error}");
}
