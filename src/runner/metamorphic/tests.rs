//! Each relation finds a fault that breaks it, and cpu-ref meets them all.

use modelbench_contract::{Backend, Class, Op};

use super::super::faulty::{Faulty, cases, defects};
use crate::suite::Case;

fn found(case: &Case, mut backend: Faulty) -> Vec<String> {
    let profile = backend.numerics();
    defects(super::check(case, 0x5eed, &mut backend, Class::Approx, &profile))
}

/// Cases of a group that find no defect in the backend.
fn missed(group: &str, fault: impl Fn() -> Faulty) -> Vec<String> {
    cases(group).into_iter().filter(|case| found(case, fault()).is_empty()).map(|case| case.id).collect()
}

#[test]
fn an_honest_backend_meets_every_relation() {
    let all = cases("r1/metamorphic/").into_iter().chain(cases("r5/kv/"));
    for case in all.filter(|case| case.group.check != "forward") {
        assert_eq!(found(&case, Faulty::honest()), [""; 0], "{}", case.id);
    }
}

/// The first element of results of an op is too large, if `strikes` says so, by an amount that grows faster than the
/// rows: parts of a product must not make up for the whole.
fn off(op: Op, strikes: fn(usize, usize) -> bool) -> impl Fn() -> Faulty {
    move || {
        Faulty::spoiling(move |seen, values| {
            let last = seen.inputs.last().map_or(0, |(_, shape, _)| shape.last().copied().unwrap_or(0));
            let rows =
                seen.inputs.last().map_or(0, |(_, shape, _)| shape[..shape.len() - 1].iter().product());
            if seen.op == op && strikes(last, rows) {
                values[0] += (last * last) as f32;
            }
        })
    }
}

#[test]
fn a_batch_that_differs_from_its_rows_is_found() {
    let none = [""; 0];
    assert_eq!(missed("r1/metamorphic/batch-exact/", off(Op::BatchedMatmul, |_, _| true)), none);
    let bound = missed("r1/metamorphic/batch-bound/batched_matmul/", off(Op::BatchedMatmul, |_, _| true));
    assert_eq!(bound, none);
    let rows = |rows: usize| {
        move || -> Faulty {
            Faulty::spoiling(move |seen, values| {
                // Only a batch is spoilt: several rows, as the shape of the first operand tells.
                if seen.inputs[0].1.len() == 2 && seen.inputs[0].1[0] >= rows {
                    values[0] += 0.5;
                }
            })
        }
    };
    for op in ["rms_norm", "rope", "swiglu", "attention"] {
        assert_eq!(missed(&format!("r1/metamorphic/batch-bound/{op}/"), rows(2)), none);
    }
}

#[test]
fn a_fault_that_depends_on_size_is_found() {
    let none = [""; 0];
    assert_eq!(missed("r1/metamorphic/split-exact/matmul/", off(Op::Matmul, |inner, _| inner >= 65)), none);
    assert_eq!(missed("r1/metamorphic/split-bound/matmul/", off(Op::Matmul, |inner, _| inner >= 129)), none);
    let padded =
        missed("r1/metamorphic/zero-padding-exact/", off(Op::Matmul, |inner, _| inner == 29 || inner == 64));
    assert_eq!(padded, none);
}

#[test]
fn a_fault_that_depends_on_the_place_is_found() {
    let first = || {
        Faulty::spoiling(|seen, values| {
            if matches!(seen.op, Op::Matmul | Op::BatchedMatmul) {
                // Three places, since a permutation may leave one where it was.
                values[..3].iter_mut().zip([1.0, 2.0, 3.0]).for_each(|(v, more)| *v += more);
            }
        })
    };
    assert_eq!(missed("r1/metamorphic/row-permutation-exact/", first), [""; 0]);
    assert_eq!(missed("r1/metamorphic/row-permutation-bound/", first), [""; 0]);
}

#[test]
fn an_added_constant_is_found_by_scaling() {
    let biased = || {
        Faulty::spoiling(|_, values| {
            for value in values.iter_mut() {
                *value += 1e-4;
            }
        })
    };
    let missed = missed("r1/metamorphic/scaling/", biased);
    assert!(missed.iter().all(|id| id.contains("/add_")), "{missed:?}");
}

/// Attention that sees the scores' size: what softmax without its maximum gives when exp overflows.
#[test]
fn softmax_that_sees_the_size_of_scores_is_found() {
    let shifted = || {
        let mut calls = 0;
        Faulty::spoiling(move |seen, values| {
            calls += 1;
            if seen.op == Op::Attention && calls % 2 == 0 {
                values.iter_mut().for_each(|v| *v = f32::NAN);
            }
        })
    };
    assert_eq!(missed("r1/metamorphic/score-shift/", shifted), [""; 0]);
    let dropped = || {
        let mut calls = 0;
        Faulty::spoiling(move |_, values| {
            calls += 1;
            if calls == 2 {
                values[0] += 0.05;
            }
        })
    };
    assert_eq!(missed("r1/metamorphic/position-permutation/", dropped), [""; 0]);
}

#[test]
fn only_nan_meets_no_relation() {
    let nan = || Faulty::spoiling(|_, values| values.fill(f32::NAN));
    let missed = missed("r1/metamorphic/", nan);
    assert!(missed.iter().all(|id| id.contains("/add_")), "{missed:?}");
}

#[test]
fn a_rotation_that_stretches_is_found() {
    let stretched = || Faulty::spoiling(|_, values| values.iter_mut().for_each(|v| *v *= 1.000_01));
    assert_eq!(missed("r1/metamorphic/rope-norm/", stretched), [""; 0]);
}

#[test]
fn shared_rows_of_clones_are_found() {
    let shallow = || {
        let mut backend = Faulty::honest();
        backend.shallow_clones = true;
        backend
    };
    assert_eq!(missed("r5/kv/diverge/", shallow), [""; 0]);
}

#[test]
fn an_eviction_without_rotation_is_found() {
    let lazy = || {
        let mut backend = Faulty::honest();
        backend.evict_rotates = false;
        backend
    };
    let missed = missed("r5/kv/evict-never-saw/", lazy);
    // The only survivor-free store has no key to rotate.
    assert_eq!(missed, ["r5/kv/evict-never-saw/kv1-kv_heads2-head_dim8-group2"]);
}

#[test]
fn an_eviction_that_is_off_by_one_is_found() {
    let off = || {
        let mut backend = Faulty::honest();
        backend.evict_offset = 1;
        backend
    };
    assert_eq!(missed("r5/kv/evict-never-saw/", off), [""; 0]);
}

#[test]
fn a_piece_that_is_answered_otherwise_is_found() {
    let missed = missed("r5/kv/chunks/chunk3-kv33-", || {
        Faulty::spoiling(|seen, values| {
            if seen.inputs[0].1.first() == Some(&3) {
                values[0] += 0.01;
            }
        })
    });
    assert_eq!(missed, [""; 0]);
}
