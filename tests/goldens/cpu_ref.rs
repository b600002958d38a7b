//! The same case, run on cpu-ref through the `Backend` trait.

use modelbench_contract::{Backend, DType, DeviceTensor, HostTensor, KvConfig, KvStore};
use modelbench_reference::{CpuRef, RefTensor};

use crate::case::{Call, Case};

/// What cpu-ref answers; an index as a value.
pub fn run(case: &Case) -> Vec<f32> {
    let mut cpu = CpuRef::new();
    let cpu = &mut cpu;
    let result = match &case.call {
        Call::Matmul { w, x, inner, rows } => {
            let out = w.values.len() / inner;
            let host = HostTensor::from_bytes(&[out, *inner], w.dtype, w.raw.clone()).unwrap();
            let stored = cpu.upload(&host, w.dtype).unwrap();
            let read = cpu.read(&stored).unwrap();
            let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let wrong = "defect of the kit: cpu-ref decodes the stored weight to other values";
            assert_eq!(bits(&read), bits(&w.values), "{}: {wrong}", case.name);
            match rows {
                None => {
                    let x = upload(cpu, &[*inner], x);
                    cpu.matmul(&stored, &x).unwrap()
                }
                Some(rows) => {
                    let x = upload(cpu, &[*rows, *inner], x);
                    let y = cpu.batched_matmul(&stored, &x).unwrap();
                    assert_eq!(y.desc().shape, [*rows, out], "{}", case.name);
                    y
                }
            }
        }
        Call::RmsNorm { x, weight, eps } => {
            let n = weight.len();
            let (x, weight) = (upload(cpu, &[x.len() / n, n], x), upload(cpu, &[n], weight));
            cpu.rms_norm(&x, &weight, *eps).unwrap()
        }
        Call::Rope { x, spec } => {
            let width = spec.n_heads * spec.head_dim;
            let x = upload(cpu, &[x.len() / width, width], x);
            cpu.rope(&x, *spec).unwrap()
        }
        Call::Swiglu { gate, up } => {
            let (gate, up) = (upload(cpu, &[gate.len()], gate), upload(cpu, &[up.len()], up));
            cpu.swiglu(&gate, &up).unwrap()
        }
        Call::AddInPlace { dst, src } => {
            let (mut dst, src) = (upload(cpu, &[dst.len()], dst), upload(cpu, &[src.len()], src));
            cpu.add_in_place(&mut dst, &src).unwrap();
            dst
        }
        Call::AddBias { dst, bias } => {
            let n = bias.len();
            let (mut dst, bias) = (upload(cpu, &[dst.len() / n, n], dst), upload(cpu, &[n], bias));
            cpu.add_bias(&mut dst, &bias).unwrap();
            dst
        }
        Call::Attention { q, k, v, kv_heads, head_dim, spec } => {
            let row = kv_heads * head_dim;
            let len = k.len() / row;
            // Only evict would use theta.
            let config =
                KvConfig { layers: 1, kv_heads: *kv_heads, head_dim: *head_dim, capacity: len, theta: 1.0 };
            let mut kv = cpu.new_kv(&config).unwrap();
            let (k, v) = (upload(cpu, &[len, row], k), upload(cpu, &[len, row], v));
            cpu.append(&mut kv, 0, &k, &k, &v, 0).unwrap();
            let width = row * spec.group;
            let q = upload(cpu, &[q.len() / width, width], q);
            cpu.attention(&q, &kv, 0, *spec).unwrap()
        }
        Call::Argmax { x } => {
            let x = upload(cpu, &[x.len()], x);
            return vec![cpu.argmax(&x).unwrap() as f32];
        }
    };
    cpu.read(&result).unwrap()
}

fn upload(cpu: &mut CpuRef, shape: &[usize], values: &[f32]) -> RefTensor {
    cpu.upload(&HostTensor::from_f32(shape, values).unwrap(), DType::F32).unwrap()
}
