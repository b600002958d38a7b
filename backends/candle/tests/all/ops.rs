//! What is candle's own: its identity, and uploads that keep their dtype.

use modelbench_contract::{Activation, Backend, Class, DType, DeviceKind, DeviceTensor, is_backend_id};

use crate::subject::subject;

#[test]
fn identity_is_honest_and_stable() {
    let b = subject();
    let id = b.identity();
    assert!(is_backend_id(&id.name), "{}", id.name);
    assert_eq!((id.class, id.numerics.q8_activation), (Class::Approx, Activation::Float));
    assert_eq!(id.caps, modelbench_contract::Caps::default());
    assert_eq!(id.device.runtime, format!("candle-core {}", id.version));
    assert!(!id.device.hardware.is_empty() && !id.tier.is_empty());
    if id.device.kind == DeviceKind::Cpu {
        assert!(["avx2", "neon", "scalar"].contains(&id.tier.as_str()), "{}", id.tier);
    }
    assert_eq!(subject().identity(), id);
}

#[test]
fn upload_keeps_the_dtype_and_says_so() {
    let mut b = subject();
    let host = modelbench_contract::HostTensor::from_f32(&[2], &[1.0, 1.0e-3]).unwrap();
    let t = b.upload(&host, DType::F16).unwrap();
    assert_eq!(t.desc().dtype, DType::F32);
    assert_eq!(b.read(&t).unwrap(), [1.0, 1.0e-3]);
}
