//! What is the Vulkan backend's own: its identity, and memory and uploads on a device.

use modelbench_contract::{Activation, Backend, Class, DType, DeviceKind, DeviceTensor, is_backend_id};

use crate::kit::{U, close, reals, up};
use crate::subject::subject;

#[test]
fn identity_is_honest_and_stable() {
    let b = subject();
    let id = b.identity();
    assert!(is_backend_id(&id.name), "{}", id.name);
    assert_eq!((id.class, id.numerics.q8_activation), (Class::Approx, Activation::Float));
    let (kind, name) = id.tier.split_once(':').unwrap();
    let expected = match id.device.kind {
        DeviceKind::Discrete => "discrete",
        DeviceKind::Integrated => "integrated",
        DeviceKind::Virtual => "virtual",
        DeviceKind::Software | DeviceKind::Cpu => "software",
    };
    assert_eq!(kind, expected);
    assert!(id.device.hardware.starts_with(name), "{}: {}", id.tier, id.device.hardware);
    for fact in ["vulkano", "subgroups of", "seen at start"] {
        assert!(id.device.runtime.contains(fact), "{fact}: {}", id.device.runtime);
    }
    assert_eq!(subject().identity(), id);
}

#[test]
fn more_than_the_staging_buffers_hold_survives_the_round_trip() {
    let mut b = subject();
    let many: Vec<f32> = (0..5_000_001u32).map(|i| i as f32).collect();
    let t = up(&mut b, &[many.len()], &many);
    assert!(b.read(&t).unwrap() == many);
}

#[test]
fn memory_goes_back_to_the_device_once_it_is_done_with_it() {
    let mut b = subject();
    b.sync().unwrap();
    let before = b.held();
    let n = 1 << 22;
    let mut large = up(&mut b, &[n], &vec![1.0; n]);
    let other = up(&mut b, &[n], &vec![2.0; n]);
    b.add_in_place(&mut large, &other).unwrap();
    assert!(b.held() >= before + 8 * n as u64, "{} after {before}", b.held());
    b.free(other).unwrap();
    // The sum still reads what was freed.
    assert!(b.read(&large).unwrap().iter().all(|&v| v == 3.0));
    b.free(large).unwrap();
    b.sync().unwrap();
    assert_eq!(b.held(), before);
}

#[test]
fn upload_narrows_and_says_so() {
    let mut b = subject();
    let values = reals(2, 64);
    let host = modelbench_contract::HostTensor::from_f32(&[2, 32], &values).unwrap();
    for dtype in [DType::F16, DType::Bf16, DType::Q8_0] {
        let t = b.upload(&host, dtype).unwrap();
        assert_eq!((t.desc().dtype, t.desc().shape.as_slice()), (dtype, [2, 32].as_slice()));
        let narrow = b.read(&t).unwrap();
        assert!(narrow != values);
        // Half a code of q8_0 is the coarsest step of the three.
        for (i, (got, want)) in narrow.into_iter().zip(&values).enumerate() {
            close(dtype.as_str(), i, got, f64::from(*want), 1.0 / 254.0 + U);
        }
    }
    let t = b.upload(&host, DType::Q4K).unwrap();
    assert_eq!((t.desc().dtype, b.read(&t).unwrap()), (DType::F32, values));
}
