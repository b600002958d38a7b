//! Calls that a careful caller would not make, machines without a driver or a loader, and sizes beyond one dimension of
//! groups.

use std::process::Command;

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, ErrorKind, HostTensor, KvConfig, KvStore, Op, RopeSpec,
};

use crate::kit::{close, gamma, reals, up};
use crate::subject::subject;

const CONFIG: KvConfig = KvConfig { layers: 1, kv_heads: 1, head_dim: 4, capacity: 100, theta: 1e4 };

#[track_caller]
fn foreign<T>(op: Op, result: Result<T, BackendError>) {
    let Err(error) = result else { panic!("{op} took an operand of another instance") };
    assert_eq!((error.kind, error.op), (ErrorKind::InvalidArgument, Some(op)), "{error}");
    assert!(error.message.contains("another instance"), "{error}");
}

#[test]
fn operands_of_another_instance_are_refused_by_every_op() {
    let (mut a, mut b) = (subject(), subject());
    let (mut own, mut other) = (up(&mut a, &[4], &[1.0; 4]), up(&mut b, &[4], &[2.0; 4]));
    let (own_w, other_w) = (up(&mut a, &[4, 4], &[1.0; 16]), up(&mut b, &[4, 4], &[1.0; 16]));
    let (mut kv, mut other_kv) = (a.new_kv(&CONFIG).unwrap(), b.new_kv(&CONFIG).unwrap());
    for pos in 0..3 {
        a.append(&mut kv, 0, &own, &own, &own, pos).unwrap();
        b.append(&mut other_kv, 0, &other, &other, &other, pos).unwrap();
    }
    let rope = RopeSpec { pos: 0, n_heads: 1, head_dim: 4, theta: 1e4 };
    let spec = AttentionSpec { group: 1, scale: 1.0, causal: true };
    foreign(Op::Read, a.read(&other));
    foreign(Op::Matmul, a.matmul(&own_w, &other));
    foreign(Op::Matmul, a.matmul(&other_w, &own));
    foreign(Op::RmsNorm, a.rms_norm(&own, &other, 1e-5));
    foreign(Op::RmsNorm, a.rms_norm(&other, &own, 1e-5));
    foreign(Op::Rope, a.rope(&other, rope));
    foreign(Op::Swiglu, a.swiglu(&own, &other));
    foreign(Op::AddInPlace, a.add_in_place(&mut own, &other));
    foreign(Op::AddInPlace, a.add_in_place(&mut other, &own));
    foreign(Op::AddBias, a.add_bias(&mut own, &other));
    foreign(Op::Argmax, a.argmax(&other));
    foreign(Op::Attention, a.attention(&other, &kv, 0, spec));
    foreign(Op::Attention, a.attention(&own, &other_kv, 0, spec));
    foreign(Op::KvAppend, a.append(&mut kv, 0, &own, &other, &own, 3));
    foreign(Op::KvAppend, a.append(&mut other_kv, 0, &own, &own, &own, 3));
    foreign(Op::KvKeys, a.keys(&other_kv, 0));
    foreign(Op::KvValues, a.values(&other_kv, 0));
    foreign(Op::KvEvict, a.evict(&mut other_kv, 0, 1));
    foreign(Op::KvClone, a.clone_kv(&other_kv));
    // Nothing has changed, and both go on.
    assert_eq!((a.read(&own).unwrap(), b.read(&other).unwrap()), (vec![1.0; 4], vec![2.0; 4]));
    assert_eq!((a.keys(&kv, 0).unwrap(), b.keys(&other_kv, 0).unwrap()), (vec![1.0; 12], vec![2.0; 12]));
    // Freed by the wrong one, memory still goes back to where it came from.
    a.free(other).unwrap();
    a.free_kv(other_kv).unwrap();
    drop(b);
    assert_eq!(a.matmul(&own_w, &own).and_then(|y| a.read(&y)).unwrap(), [4.0; 4]);
}

#[test]
fn tensors_outlive_their_backend() {
    let mut b = subject();
    let (x, kv) = (up(&mut b, &[4], &[1.0; 4]), b.new_kv(&CONFIG).unwrap());
    let y = b.swiglu(&x, &x).unwrap();
    drop(b);
    drop((x, y, kv));
}

#[test]
fn instances_in_several_threads_do_not_disturb_each_other() {
    let work = |seed: u64| {
        let mut b = subject();
        let (w, x) = (up(&mut b, &[64, 64], &reals(seed, 4096)), up(&mut b, &[64], &reals(seed + 1, 64)));
        let answers = (0..50).map(|_| b.matmul(&w, &x).and_then(|y| b.read(&y)).unwrap());
        answers.collect::<Vec<_>>()
    };
    let alone: Vec<_> = (0..2).map(work).collect();
    let together: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(alone == together);
}

#[test]
fn what_is_recorded_keeps_its_operands_through_changes_frees_and_uploads() {
    let mut b = subject();
    let mut kv = b.new_kv(&CONFIG).unwrap();
    for pos in 0..90 {
        // Two positions later the row's memory is another's: freed while the copies from it wait.
        let mut row = up(&mut b, &[4], &[pos as f32; 4]);
        b.append(&mut kv, 0, &row, &row, &row, pos).unwrap();
        let change = up(&mut b, &[4], &[1000.0; 4]);
        b.add_in_place(&mut row, &change).unwrap();
        b.free(row).unwrap();
        b.free(change).unwrap();
    }
    let want: Vec<f32> = (0..90).flat_map(|pos| [pos as f32; 4]).collect();
    assert_eq!(b.values(&kv, 0).unwrap(), want);
    let copy = b.clone_kv(&kv).unwrap();
    assert_eq!(b.evict(&mut kv, 0, i64::MAX).unwrap(), 90);
    let row = up(&mut b, &[4], &[-1.0; 4]);
    b.append(&mut kv, 0, &row, &row, &row, 0).unwrap();
    b.free_kv(kv).unwrap();
    assert_eq!(b.values(&copy, 0).unwrap(), want);
}

#[test]
fn more_groups_than_one_dimension_holds_reach_the_last_element() {
    let mut b = subject();
    let rows = 70_001;
    let values: Vec<f32> = (0..rows).map(|i| (i % 97) as f32 + 1.0).collect();
    let (x, one) = (up(&mut b, &[rows, 1], &values), up(&mut b, &[1], &[2.0]));
    // Rows of one element: each becomes the weight.
    let y = b.rms_norm(&x, &one, 0.0).unwrap();
    for (i, got) in b.read(&y).unwrap().into_iter().enumerate() {
        close("rms_norm", i, got, 2.0, 2.0 * (gamma(4) / 2.0 + gamma(4)));
    }
    let w = up(&mut b, &[4 * rows + 3, 1], &vec![3.0; 4 * rows + 3]);
    let y = b.matmul(&w, &one).unwrap();
    assert!(b.read(&y).unwrap().iter().all(|&v| v == 6.0));
    let n = 256 * 65_536 + 5;
    let (mut sum, ones) = (up(&mut b, &[n], &vec![1.0; n]), up(&mut b, &[n], &vec![1.0; n]));
    b.add_in_place(&mut sum, &ones).unwrap();
    assert!(b.read(&sum).unwrap().iter().all(|&v| v == 2.0));
}

#[test]
fn more_bytes_than_a_kernel_can_see_are_refused_by_name() {
    let mut b = subject();
    // Fewer than 2^31 elements, and more than the 4 GiB that any device could offer.
    let (w, x) = (up(&mut b, &[1 << 23, 1], &vec![1.0; 1 << 23]), up(&mut b, &[255, 1], &[1.0; 255]));
    let error = b.batched_matmul(&w, &x).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ResourceExhausted, "{error}");
    assert!(
        error.message.contains("maxStorageBufferRange") && error.message.contains("8556380160"),
        "{error}"
    );
    let small = b.upload(&HostTensor::from_f32(&[1], &[2.0]).unwrap(), DType::F32).unwrap();
    assert_eq!(b.read(&small).unwrap(), [2.0]);
}

/// What a test that opens the backend says in a process with this variable.
fn said(variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "faults::caps_can_be_left_out_and_then_dtypes_are_kept"]);
    let output = child.envs(variables.iter().copied()).output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{text}");
    text
}

#[test]
fn without_a_driver_the_error_says_what_to_install() {
    let text = said(&[("VK_DRIVER_FILES", "/nonexistent"), ("VK_ICD_FILENAMES", "/nonexistent")]);
    assert!(text.contains("Unavailable") && text.contains("no device with Vulkan 1.2 (install"), "{text}");
}

#[cfg(target_os = "linux")]
#[test]
fn without_a_loader_the_error_says_what_to_install() {
    // An empty file of the loader's name comes first in the search, and is none.
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("no-loader");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libvulkan.so.1"), []).unwrap();
    let text = said(&[("LD_LIBRARY_PATH", folder.to_str().unwrap())]);
    assert!(text.contains("Unavailable") && text.contains("no loader (install libvulkan1)"), "{text}");
}
