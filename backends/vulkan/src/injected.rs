//! What goes wrong only if it is made to: a barrier that is missing, a bad call, memory that runs out half-way, a device
//! that is lost. Nothing of this can be asked of a build that is not this crate's own unit test.
//!
//! The Khronos validation layer must be installed (Debian: vulkan-validationlayers). What its synchronisation check of
//! 1.3.239 does not see, so that no test here can rely on it:
//! - two kernels that write the same bytes, also where the second reads them first (measured: two sums in place, two
//!   norms, two swiglus without a barrier give no message); the number of barriers is compared instead;
//! - hazards between submissions, unless the environment asks for it: see [`SUBMISSIONS`];
//! - hazards between host and device, and inside a kernel;
//! - bytes: it goes by the ranges of the descriptors that a kernel declares, not by what the kernel touches.

use std::process::Command;

use modelbench_contract::{
    AttentionSpec, Backend, BackendError, DType, ErrorKind, HostTensor, KvConfig, KvStore, Result, RopeSpec,
};

use crate::hazard::Hazard;
use crate::{Options, Vulkan, VulkanKv, VulkanTensor};

fn open(validation: bool) -> Vulkan {
    let given = Options::from_environment().unwrap();
    Vulkan::new(&Options { validation, device: given.device, ..Options::default() }).unwrap()
}

fn up(b: &mut Vulkan, shape: &[usize], value: f32) -> VulkanTensor {
    let values = vec![value; shape.iter().product()];
    b.upload(&HostTensor::from_f32(shape, &values).unwrap(), DType::F32).unwrap()
}

/// Kernels that meet kernels: they read, overwrite and write again what was written and read.
fn kernels(b: &mut Vulkan) -> Result<Vec<f32>> {
    let (w, x, weight) = (up(b, &[8, 8], 0.5), up(b, &[8], 2.0), up(b, &[8], 3.0));
    b.sync()?;
    let mut y = b.matmul(&w, &x)?;
    let h = b.rms_norm(&y, &weight, 0.0)?;
    b.add_in_place(&mut y, &x)?;
    b.add_in_place(&mut y, &x)?;
    Ok([b.read(&y)?, b.read(&h)?].concat())
}

/// Copies that meet copies.
fn copies(b: &mut Vulkan) -> Result<Vec<f32>> {
    let gpu = b.gpu();
    gpu.finish()?;
    let (a, copy) = (gpu.floats("a test", 16)?, gpu.floats("a test", 16)?);
    let bytes = |value: f32| value.to_le_bytes().repeat(16);
    gpu.fill(&a, &bytes(1.0))?;
    gpu.fill(&a, &bytes(2.0))?;
    gpu.copy(&a.whole(), &copy.whole())?;
    gpu.fill(&a, &bytes(3.0))?;
    Ok([gpu.download_floats(&a.whole())?, gpu.download_floats(&copy.whole())?].concat())
}

/// Copies that meet kernels, and kernels that meet copies.
fn both(b: &mut Vulkan) -> Result<Vec<f32>> {
    let (w, x, copy) = (up(b, &[8, 8], 0.5), up(b, &[8], 2.0), up(b, &[8], 0.0));
    b.sync()?;
    let mut y = b.matmul(&w, &x)?;
    b.gpu().copy(&y.memory().whole(), &copy.memory().whole())?;
    b.add_in_place(&mut y, &x)?;
    b.gpu().fill(y.memory(), &1.0f32.to_le_bytes().repeat(8))?;
    Ok([b.read(&y)?, b.read(&copy)?].concat())
}

#[test]
fn one_missing_barrier_of_any_kind_is_caught_by_the_validation_layer() {
    type Chain = fn(&mut Vulkan) -> Result<Vec<f32>>;
    let read_after_write = (Hazard::ReadAfterWrite, "SYNC-HAZARD-READ-AFTER-WRITE");
    let write_after_read = (Hazard::WriteAfterRead, "SYNC-HAZARD-WRITE-AFTER-READ");
    let write_after_write = (Hazard::WriteAfterWrite, "SYNC-HAZARD-WRITE-AFTER-WRITE");
    let all = [read_after_write, write_after_read, write_after_write];
    let seen = [
        ("kernels", kernels as Chain, &all[..2]),
        ("copies", copies as Chain, &all[..]),
        ("both", both as Chain, &all[..]),
    ];
    let mut b = open(true);
    for (name, chain, hazards) in seen {
        let right = chain(&mut b).unwrap();
        for &(hazard, said) in hazards {
            b.gpu().stream().leave_out(hazard);
            let result = chain(&mut b);
            assert!(!b.gpu().stream().leaves_out(), "{name} never met {hazard:?}");
            let Err(error) = result else { panic!("{name}: nobody saw {hazard:?} without its barrier") };
            assert_eq!(error.kind, ErrorKind::Internal, "{name}: {error}");
            assert!(error.message.contains(said), "{name}, {hazard:?}: {error}");
            // The barrier is back, the message was told once, and the backend goes on.
            assert_eq!(chain(&mut b).unwrap(), right, "{name} after {hazard:?}");
        }
    }
}

#[test]
fn kernels_that_write_the_same_bytes_have_a_barrier_between_them() {
    let mut b = open(true);
    let barriers = |b: &mut Vulkan| {
        let [.., before] = b.counts();
        kernels(b).unwrap();
        let [.., after] = b.counts();
        after - before
    };
    // What the norm reads, two sums in place, and what is taken back.
    assert_eq!(barriers(&mut b), 4);
    b.gpu().stream().leave_out(Hazard::WriteAfterWrite);
    assert_eq!(barriers(&mut b), 3);
}

/// What `VK_LAYER_ENABLES` must be for the layer to look at hazards between submissions. It is read once in a process.
const SUBMISSIONS: &str = "VALIDATION_CHECK_ENABLE_SYNCHRONIZATION_VALIDATION_QUEUE_SUBMIT";

/// Submissions that nobody waits for, each of which meets the one before; the second may begin without its barrier.
fn submissions(b: &mut Vulkan, unordered: bool) -> Result<Vec<f32>> {
    let (w, x, weight) = (up(b, &[8, 8], 0.5), up(b, &[8], 2.0), up(b, &[8], 3.0));
    b.sync()?;
    let mut y = b.matmul(&w, &x)?;
    b.gpu().stream().submit()?;
    b.gpu().stream().unordered = unordered;
    let h = b.rms_norm(&y, &weight, 0.0)?;
    b.gpu().stream().submit()?;
    b.add_in_place(&mut y, &x)?;
    b.gpu().stream().submit()?;
    b.gpu().fill(h.memory(), &1.0f32.to_le_bytes().repeat(8))?;
    Ok([b.read(&y)?, b.read(&h)?].concat())
}

#[test]
fn submissions_are_ordered_without_a_wait_and_a_missing_barrier_between_them_is_caught() {
    if std::env::var_os("VK_LAYER_ENABLES").is_none_or(|enables| enables != SUBMISSIONS) {
        let name =
            "injected::submissions_are_ordered_without_a_wait_and_a_missing_barrier_between_them_is_caught";
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name]).env("VK_LAYER_ENABLES", SUBMISSIONS).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let mut b = open(true);
    let right = submissions(&mut b, false).unwrap();
    let error = submissions(&mut b, true).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal, "{error}");
    assert!(error.message.contains("SYNC-HAZARD-READ-AFTER-WRITE"), "{error}");
    assert!(error.message.contains("vkQueueSubmit"), "{error}");
    assert_eq!(submissions(&mut b, false).unwrap(), right);
}

#[test]
fn a_bad_call_is_an_internal_error_with_the_layers_own_words() {
    let mut b = open(true);
    let memory = b.gpu().floats("a test", 16).unwrap();
    // Ranges that overlap: the caller must not, and nobody but the layer looks.
    b.gpu().copy(&memory.part(0, 32), &memory.part(16, 32)).unwrap();
    let error = b.sync().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Internal, "{error}");
    assert!(error.message.contains("VUID-vkCmdCopyBuffer"), "{error}");
    b.sync().unwrap();
    // What this crate and vulkano see by themselves never reaches the layer.
    for (from, to) in
        [(memory.part(0, 16), memory.part(0, 32)), (memory.part(0, 1 << 40), memory.part(0, 1 << 40))]
    {
        let error = BackendError::from(b.gpu().copy(&from, &to).unwrap_err());
        assert_eq!(error.kind, ErrorKind::Internal, "{error}");
    }
    b.sync().unwrap();
}

const CONFIG: KvConfig = KvConfig { layers: 2, kv_heads: 1, head_dim: 4, capacity: 100, theta: 1e4 };

/// A store of 64 positions, which is all that it has room for before it grows.
fn store(b: &mut Vulkan) -> VulkanKv {
    let mut kv = b.new_kv(&CONFIG).unwrap();
    let values: Vec<f32> = (0..256u16).map(f32::from).collect();
    let rows = b.upload(&HostTensor::from_f32(&[64, 4], &values).unwrap(), DType::F32).unwrap();
    for layer in 0..2 {
        b.append(&mut kv, layer, &rows, &rows, &rows, 0).unwrap();
    }
    kv
}

fn contents(b: &mut Vulkan, kv: &VulkanKv) -> Vec<Vec<f32>> {
    (0..2).flat_map(|layer| [b.keys(kv, layer).unwrap(), b.values(kv, layer).unwrap()]).collect()
}

#[test]
fn memory_that_runs_out_at_any_point_leaves_a_store_as_it_was() {
    type Change = fn(&mut Vulkan, &mut VulkanKv, &VulkanTensor) -> Result<()>;
    let changes: [(Change, &str); 3] = [
        (|b, kv, row| b.append(kv, 0, row, row, row, 64), "append"),
        (|b, kv, _| b.evict(kv, 7, 3).map(|_| ()), "evict"),
        (|b, kv, _| b.clone_kv(kv).map(|_| ()), "clone"),
    ];
    for (change, name) in changes {
        let mut b = open(false);
        let (mut kv, row) = (store(&mut b), up(&mut b, &[4], 5.0));
        let before = contents(&mut b, &kv);
        let mut done = false;
        for granted in 0..20 {
            b.gpu().rooms_left = Some(granted);
            let result = change(&mut b, &mut kv, &row);
            b.gpu().rooms_left = None;
            done = result.is_ok();
            if done {
                assert!(granted > 1, "{name} asked for memory {granted} times");
                break;
            }
            assert_eq!(result.unwrap_err().kind, ErrorKind::ResourceExhausted, "{name}, {granted}");
            assert!(contents(&mut b, &kv) == before, "{name} changed the store, {granted} requests granted");
        }
        assert!(done, "{name} never had enough");
    }
}

/// Calls every op that reaches the device.
fn everything(
    b: &mut Vulkan,
    t: &mut VulkanTensor,
    one: &VulkanTensor,
    kv: &mut VulkanKv,
) -> Vec<(&'static str, Option<ErrorKind>)> {
    fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind)
    }
    let host = HostTensor::from_f32(&[4], &[1.0; 4]).unwrap();
    let mut found = vec![("upload", kind(b.upload(&host, DType::F32)))];
    let end = b.len(kv).unwrap();
    let rope = RopeSpec { pos: 0, n_heads: 1, head_dim: 4, theta: 1e4 };
    let spec = AttentionSpec { group: 1, scale: 1.0, causal: true };
    found.extend([
        ("read", kind(b.read(t))),
        ("sync", kind(b.sync())),
        ("add", kind(b.add_in_place(t, one))),
        ("norm", kind(b.rms_norm(t, t, 0.0))),
        ("rope", kind(b.rope(t, rope))),
        ("swiglu", kind(b.swiglu(t, t))),
        ("attention", kind(b.attention(t, kv, 0, spec))),
        ("argmax", kind(b.argmax(t))),
        ("new_kv", kind(b.new_kv(&CONFIG))),
        ("append", kind(b.append(kv, 0, t, t, t, end))),
        ("keys", kind(b.keys(kv, 0))),
        ("values", kind(b.values(kv, 1))),
        ("clone", kind(b.clone_kv(kv))),
    ]);
    found
}

#[test]
fn on_a_lost_device_every_call_says_so() {
    let mut b = open(false);
    let (mut t, one, mut kv) = (up(&mut b, &[4], 1.0), up(&mut b, &[4], 1.0), store(&mut b));
    for (name, kind) in everything(&mut b, &mut t, &one, &mut kv) {
        assert_eq!(kind, None, "{name}");
    }
    let error = BackendError::from(b.gpu().stream().lose());
    assert_eq!(error.kind, ErrorKind::DeviceLost, "{error}");
    for (name, kind) in everything(&mut b, &mut t, &one, &mut kv) {
        assert_eq!(kind, Some(ErrorKind::DeviceLost), "{name}");
    }
    b.free(t).unwrap();
    b.free_kv(kv).unwrap();
}

#[test]
fn a_submission_that_fails_is_never_followed_by_an_answer() {
    let mut b = open(false);
    let (x, y) = (up(&mut b, &[4], 1.0), up(&mut b, &[4], 2.0));
    b.sync().unwrap();
    let z = b.swiglu(&x, &y).unwrap();
    b.gpu().stream().refused = true;
    let error = b.read(&z).unwrap_err();
    assert_eq!(error.kind, ErrorKind::DeviceLost, "{error}");
    assert!(error.message.contains("never reached the device"), "{error}");
    // The device is well, but what `z` should be was never computed.
    assert_eq!(b.read(&z).unwrap_err().kind, ErrorKind::DeviceLost);
    assert_eq!(b.argmax(&z).unwrap_err().kind, ErrorKind::DeviceLost);
}
