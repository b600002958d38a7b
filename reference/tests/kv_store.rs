//! The KV store: eviction equals never having seen the span, clones are independent, bad calls change nothing.

use modelbench_contract::{
    AttentionSpec, Backend, DType, ErrorKind, HostTensor, KvConfig, KvStore, RopeSpec,
};
use modelbench_reference::{CpuRef, RefKv, RefTensor};
use proptest::prelude::*;

const CONFIG: KvConfig = KvConfig { layers: 2, kv_heads: 2, head_dim: 4, capacity: 16, theta: 1e4 };
const ROW: usize = 8;

/// Reproducible values that differ for each token, layer and purpose.
fn row(token: usize, layer: usize, purpose: usize) -> Vec<f32> {
    let value = |i: usize| ((token * 7919 + layer * 104_729 + purpose * 1299 + i * 613) % 2003) as f32;
    (0..ROW).map(|i| value(i) / 701.0 - 1.4).collect()
}

fn tensor(cpu: &mut CpuRef, shape: &[usize], values: &[f32]) -> RefTensor {
    let tensor = HostTensor::from_f32(shape, values).expect("a good tensor");
    cpu.upload(&tensor, DType::F32).expect("uploaded")
}

/// Appends a token at the store's end, its key rotated for that position.
fn push(cpu: &mut CpuRef, kv: &mut RefKv, token: usize) {
    let pos = cpu.len(kv).expect("a length");
    for layer in 0..CONFIG.layers {
        let raw = tensor(cpu, &[ROW], &row(token, layer, 0));
        let v = tensor(cpu, &[ROW], &row(token, layer, 1));
        let spec = RopeSpec { pos, n_heads: CONFIG.kv_heads, head_dim: CONFIG.head_dim, theta: CONFIG.theta };
        let rotated = cpu.rope(&raw, spec).expect("rotated");
        cpu.append(kv, layer, &raw, &rotated, &v, pos).expect("appended");
    }
}

fn filled(cpu: &mut CpuRef, tokens: impl IntoIterator<Item = usize>) -> RefKv {
    let mut kv = cpu.new_kv(&CONFIG).expect("a store");
    tokens.into_iter().for_each(|token| push(cpu, &mut kv, token));
    kv
}

/// Everything that can be seen of a store: positions, and the bits of keys, values and attention of every layer.
fn seen(cpu: &mut CpuRef, kv: &RefKv) -> (Vec<usize>, Vec<u32>) {
    let mut bits = Vec::new();
    let q: Vec<f32> = row(99, 0, 2).into_iter().chain(row(99, 1, 2)).collect();
    let q = tensor(cpu, &[2 * ROW], &q);
    for layer in 0..CONFIG.layers {
        let (keys, values) = (cpu.keys(kv, layer).expect("keys"), cpu.values(kv, layer).expect("values"));
        bits.extend(keys.iter().chain(&values).map(|v| v.to_bits()));
        if !keys.is_empty() {
            let spec = AttentionSpec { group: 2, scale: 0.5, causal: true };
            let out = cpu.attention(&q, kv, layer, spec).expect("attended");
            bits.extend(cpu.read(&out).expect("read").iter().map(|v| v.to_bits()));
        }
    }
    (cpu.positions(kv).expect("positions"), bits)
}

proptest! {
    #[test]
    fn eviction_equals_never_having_seen_the_span(len in 0usize..12, from in -2i64..14, n in -2i64..14, more in 0usize..3) {
        let mut cpu = CpuRef::new();
        let mut kv = filled(&mut cpu, 0..len);
        let inside = |t: usize| from >= 0 && n > 0 && (from..from + n).contains(&(t as i64));
        let mut never = filled(&mut cpu, (0..len).filter(|t| !inside(*t)));
        let dropped = cpu.evict(&mut kv, from, n).expect("evicted");
        prop_assert_eq!(dropped, (0..len).filter(|t| inside(*t)).count());
        prop_assert_eq!(seen(&mut cpu, &kv), seen(&mut cpu, &never));
        // Later tokens and a second eviction meet the same store, so the pre-RoPE rows are right too.
        for token in 0..more {
            push(&mut cpu, &mut kv, 50 + token);
            push(&mut cpu, &mut never, 50 + token);
        }
        cpu.evict(&mut kv, 0, 1).expect("evicted");
        cpu.evict(&mut never, 0, 1).expect("evicted");
        prop_assert_eq!(seen(&mut cpu, &kv), seen(&mut cpu, &never));
    }

    #[test]
    fn clones_are_independent(len in 2usize..8, from in 0i64..2) {
        let mut cpu = CpuRef::new();
        let mut kv = filled(&mut cpu, 0..len);
        let mut copy = cpu.clone_kv(&kv).expect("cloned");
        let before = seen(&mut cpu, &kv);
        prop_assert_eq!(&seen(&mut cpu, &copy), &before);
        cpu.evict(&mut copy, from, 1).expect("evicted");
        push(&mut cpu, &mut copy, 70);
        let copied = seen(&mut cpu, &copy);
        prop_assert_ne!(&copied, &before);
        prop_assert_eq!(&seen(&mut cpu, &kv), &before);
        push(&mut cpu, &mut kv, 71);
        prop_assert_eq!(seen(&mut cpu, &copy), copied);
    }
}

#[test]
fn many_positions_at_once_equal_one_after_another() {
    let mut cpu = CpuRef::new();
    let one_by_one = filled(&mut cpu, 0..5);
    let mut at_once = cpu.new_kv(&CONFIG).expect("a store");
    for layer in 0..CONFIG.layers {
        let all = |purpose| (0..5).flat_map(|t| row(t, layer, purpose)).collect::<Vec<f32>>();
        let (raw, v) = (tensor(&mut cpu, &[5, ROW], &all(0)), tensor(&mut cpu, &[5, ROW], &all(1)));
        let spec = RopeSpec { pos: 0, n_heads: 2, head_dim: 4, theta: 1e4 };
        let rotated = cpu.rope(&raw, spec).expect("rotated");
        cpu.append(&mut at_once, layer, &raw, &rotated, &v, 0).expect("appended");
    }
    assert_eq!(seen(&mut cpu, &at_once), seen(&mut cpu, &one_by_one));
}

#[test]
fn bad_appends_are_refused_and_change_nothing() {
    let mut cpu = CpuRef::new();
    let mut kv = filled(&mut cpu, 0..3);
    let before = seen(&mut cpu, &kv);
    let good = tensor(&mut cpu, &[ROW], &[1.0; ROW]);
    let short = tensor(&mut cpu, &[4], &[1.0; 4]);
    let two = tensor(&mut cpu, &[2, ROW], &[1.0; 2 * ROW]);
    let deep = tensor(&mut cpu, &[1, 1, ROW], &[1.0; ROW]);
    let half = HostTensor::from_f32(&[ROW], &[1.0; ROW]).expect("good");
    let half = cpu.upload(&half, DType::F16).expect("narrowed");
    let full = tensor(&mut cpu, &[14, ROW], &[1.0; 14 * ROW]);
    let cases = [
        ("layer", 2, [&good, &good, &good], 3, ErrorKind::InvalidArgument),
        ("position", 0, [&good, &good, &good], 2, ErrorKind::InvalidArgument),
        ("position", 0, [&good, &good, &good], 4, ErrorKind::InvalidArgument),
        ("row length", 0, [&short, &short, &short], 3, ErrorKind::InvalidArgument),
        ("unequal", 0, [&good, &good, &two], 3, ErrorKind::InvalidArgument),
        ("unequal", 0, [&good, &two, &good], 3, ErrorKind::InvalidArgument),
        ("rank", 0, [&deep, &deep, &deep], 3, ErrorKind::InvalidArgument),
        ("dtype", 0, [&good, &good, &half], 3, ErrorKind::InvalidArgument),
        ("layer 1 ahead of layer 0", 1, [&good, &good, &good], 3, ErrorKind::InvalidArgument),
        ("capacity", 0, [&full, &full, &full], 3, ErrorKind::ResourceExhausted),
    ];
    for (what, layer, [raw, rotated, v], pos, kind) in cases {
        let error = cpu.append(&mut kv, layer, raw, rotated, v, pos).expect_err(what);
        assert_eq!(error.kind, kind, "{what}: {error}");
        assert_eq!(seen(&mut cpu, &kv), before, "{what}");
    }
    assert_eq!(cpu.keys(&kv, 2).expect_err("no such layer").kind, ErrorKind::InvalidArgument);
    assert_eq!(cpu.values(&kv, 2).expect_err("no such layer").kind, ErrorKind::InvalidArgument);
}

#[test]
fn eviction_between_the_layers_of_a_step_is_refused() {
    let mut cpu = CpuRef::new();
    let mut kv = filled(&mut cpu, 0..3);
    let row = tensor(&mut cpu, &[ROW], &[1.0; ROW]);
    cpu.append(&mut kv, 0, &row, &row, &row, 3).expect("appended to layer 0 only");
    let error = cpu.evict(&mut kv, 0, 1).expect_err("layer 1 is behind");
    assert_eq!(error.kind, ErrorKind::InvalidArgument);
    cpu.append(&mut kv, 1, &row, &row, &row, 3).expect("appended to layer 1");
    assert_eq!(cpu.evict(&mut kv, 0, i64::MAX).expect("evicted"), 4);
    assert!(cpu.positions(&kv).expect("positions").is_empty());
}

#[test]
fn bad_configurations_are_refused() {
    let mut cpu = CpuRef::new();
    let bad = [
        KvConfig { layers: 0, ..CONFIG },
        KvConfig { kv_heads: 0, ..CONFIG },
        KvConfig { head_dim: 3, ..CONFIG },
        KvConfig { head_dim: 0, ..CONFIG },
        KvConfig { capacity: 0, ..CONFIG },
        KvConfig { capacity: usize::MAX, ..CONFIG },
        KvConfig { theta: 0.0, ..CONFIG },
        KvConfig { theta: f32::INFINITY, ..CONFIG },
    ];
    for config in bad {
        let error = cpu.new_kv(&config).expect_err("refused");
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{config:?}: {error}");
    }
    // It can be addressed, but no machine has half of the address space to give.
    let huge = KvConfig { layers: 1, capacity: 1 << 55, ..CONFIG };
    assert_eq!(cpu.new_kv(&huge).expect_err("refused").kind, ErrorKind::ResourceExhausted);
}
