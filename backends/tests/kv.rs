//! The KV store: growth, eviction, copies.

use modelbench_contract::{Backend, ErrorKind, KvConfig, KvStore, RopeSpec};

use crate::kit::{bits, reals, up};
use crate::subject::{Kv, Subject, Tensor, subject};

const CONFIG: KvConfig = KvConfig { layers: 2, kv_heads: 2, head_dim: 4, capacity: 50, theta: 1e4 };
const ROW: usize = 8;

fn rotated(b: &mut Subject, k: &Tensor, pos: usize) -> Tensor {
    let spec = RopeSpec { pos, n_heads: CONFIG.kv_heads, head_dim: CONFIG.head_dim, theta: CONFIG.theta };
    b.rope(k, spec).unwrap()
}

/// Appends token `id` to every layer.
fn push(b: &mut Subject, kv: &mut Kv, id: usize) {
    let pos = b.len(kv).unwrap();
    for layer in 0..CONFIG.layers {
        let k = up(b, &[ROW], &reals((id * 10 + layer) as u64, ROW));
        let v = up(b, &[ROW], &reals((id * 10 + layer + 5) as u64, ROW));
        let k_rope = rotated(b, &k, pos);
        b.append(kv, layer, &k, &k_rope, &v, pos).unwrap();
    }
}

fn of(b: &mut Subject, ids: impl IntoIterator<Item = usize>) -> Kv {
    let mut kv = b.new_kv(&CONFIG).unwrap();
    ids.into_iter().for_each(|id| push(b, &mut kv, id));
    kv
}

/// Everything that can be read, as bits.
fn contents(b: &mut Subject, kv: &Kv) -> (Vec<usize>, Vec<Vec<u32>>) {
    let rows = (0..CONFIG.layers)
        .flat_map(|l| [bits(&b.keys(kv, l).unwrap()), bits(&b.values(kv, l).unwrap())])
        .collect();
    (b.positions(kv).unwrap(), rows)
}

#[test]
fn rows_come_back_as_appended_across_growth() {
    let mut b = subject();
    let mut kv = of(&mut b, 0..40);
    assert_eq!(b.len(&kv).unwrap(), 40);
    let values = b.values(&kv, 1).unwrap();
    for id in 0..40 {
        assert_eq!(values[id * ROW..][..ROW], reals((id * 10 + 6) as u64, ROW), "position {id}");
    }
    // Ten positions at once fill the store to its capacity; one more is refused and changes nothing.
    let many = up(&mut b, &[10, ROW], &reals(1, 10 * ROW));
    for layer in 0..2 {
        b.append(&mut kv, layer, &many, &many, &many, 40).unwrap();
    }
    let before = contents(&mut b, &kv);
    let one = up(&mut b, &[ROW], &reals(1, ROW));
    let error = b.append(&mut kv, 0, &one, &one, &one, 50).unwrap_err();
    assert_eq!(error.kind, ErrorKind::ResourceExhausted);
    assert_eq!(contents(&mut b, &kv), before);
    assert_eq!(before.0, (0..50).collect::<Vec<_>>());
}

#[test]
fn after_evict_the_store_equals_one_that_never_saw_the_span() {
    let mut b = subject();
    for (from, n) in [(0, 3), (2, 1), (5, 15), (19, 1), (18, 100), (0, i64::MAX), (7, 2)] {
        let mut kv = of(&mut b, 0..20);
        let gone = from as usize..20.min((from as usize).saturating_add(n as usize));
        assert_eq!(b.evict(&mut kv, from, n).unwrap(), gone.len(), "({from}, {n})");
        let mut never = of(&mut b, (0..20).filter(|id| !gone.contains(id)));
        assert_eq!(contents(&mut b, &kv), contents(&mut b, &never), "({from}, {n})");
        push(&mut b, &mut kv, 77);
        push(&mut b, &mut never, 77);
        assert_eq!(contents(&mut b, &kv), contents(&mut b, &never), "({from}, {n}) and one more");
        // A second eviction rotates from the pre-RoPE rows again, so those must have moved too.
        assert_eq!(b.evict(&mut kv, 0, 1).unwrap(), b.evict(&mut never, 0, 1).unwrap());
        assert_eq!(contents(&mut b, &kv), contents(&mut b, &never), "({from}, {n}) and the first");
    }
}

#[test]
fn evict_of_nothing_drops_nothing() {
    let mut b = subject();
    let mut kv = of(&mut b, 0..5);
    let before = contents(&mut b, &kv);
    for (from, n) in [(-1, 3), (i64::MIN, 1), (0, 0), (1, -1), (5, 1), (i64::MAX, 1), (2, i64::MIN)] {
        assert_eq!(b.evict(&mut kv, from, n).unwrap(), 0, "({from}, {n})");
        assert_eq!(contents(&mut b, &kv), before);
    }
    let mut empty = b.new_kv(&CONFIG).unwrap();
    assert_eq!(b.evict(&mut empty, 0, 1).unwrap(), 0);
    assert_eq!(contents(&mut b, &empty), (vec![], vec![vec![]; 4]));
}

#[test]
fn a_clone_and_its_original_never_see_each_other() {
    let mut b = subject();
    let mut kv = of(&mut b, 0..6);
    let mut copy = b.clone_kv(&kv).unwrap();
    let before = contents(&mut b, &kv);
    assert_eq!(contents(&mut b, &copy), before);
    // Both write into the same row of what would be a shared buffer.
    push(&mut b, &mut copy, 40);
    b.evict(&mut copy, 0, 2).unwrap();
    assert_eq!(contents(&mut b, &kv), before);
    let mut expected = of(&mut b, (2..6).chain([40]));
    push(&mut b, &mut kv, 41);
    assert_eq!(contents(&mut b, &copy), contents(&mut b, &expected));
    b.free_kv(kv).unwrap();
    push(&mut b, &mut copy, 42);
    push(&mut b, &mut expected, 42);
    assert_eq!(contents(&mut b, &copy), contents(&mut b, &expected));
}

#[test]
fn bad_appends_and_layers_are_refused_and_change_nothing() {
    let mut b = subject();
    let mut kv = of(&mut b, 0..3);
    let before = contents(&mut b, &kv);
    let (row, two) = (up(&mut b, &[ROW], &[1.0; ROW]), up(&mut b, &[2, ROW], &[1.0; 2 * ROW]));
    let (short, deep) = (up(&mut b, &[ROW - 1], &[1.0; ROW - 1]), up(&mut b, &[1, 1, ROW], &[1.0; ROW]));
    let half =
        modelbench_contract::HostTensor::from_bytes(&[ROW], modelbench_contract::DType::F16, [0u8; 16])
            .unwrap();
    let half = b.upload(&half, modelbench_contract::DType::F16).unwrap();
    for (layer, k_raw, k_rope, v, pos) in [
        (2, &row, &row, &row, 3),
        (0, &row, &row, &row, 2),
        (0, &row, &row, &row, 4),
        (0, &row, &row, &row, usize::MAX),
        (1, &row, &row, &row, 3),
        (0, &short, &short, &short, 3),
        (0, &deep, &deep, &deep, 3),
        (0, &two, &row, &two, 3),
        (0, &two, &two, &row, 3),
        (0, &row, &row, &half, 3),
    ] {
        let error = b.append(&mut kv, layer, k_raw, k_rope, v, pos).unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidArgument, "{error}");
        assert_eq!(contents(&mut b, &kv), before, "{error}");
    }
    assert_eq!(b.keys(&kv, 2).unwrap_err().kind, ErrorKind::InvalidArgument);
    assert_eq!(b.values(&kv, 9).unwrap_err().kind, ErrorKind::InvalidArgument);
    b.append(&mut kv, 0, &row, &row, &row, 3).unwrap();
    assert_eq!(b.evict(&mut kv, 0, 1).unwrap_err().kind, ErrorKind::InvalidArgument, "layer 1 lags");
}

#[test]
fn bad_configs_are_refused() {
    let mut b = subject();
    for bad in [
        KvConfig { layers: 0, ..CONFIG },
        KvConfig { kv_heads: 0, ..CONFIG },
        KvConfig { head_dim: 0, ..CONFIG },
        KvConfig { head_dim: 3, ..CONFIG },
        KvConfig { capacity: 0, ..CONFIG },
        KvConfig { theta: 0.0, ..CONFIG },
        KvConfig { theta: f32::NAN, ..CONFIG },
        KvConfig { capacity: usize::MAX, ..CONFIG },
        KvConfig { kv_heads: usize::MAX / 2, ..CONFIG },
    ] {
        assert_eq!(b.new_kv(&bad).unwrap_err().kind, ErrorKind::InvalidArgument, "{bad:?}");
    }
    let huge = KvConfig { capacity: 1 << 54, ..CONFIG };
    assert_eq!(b.new_kv(&huge).unwrap_err().kind, ErrorKind::ResourceExhausted);
}
