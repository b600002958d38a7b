//! Each check finds the faults that it is for, and cpu-ref passes every case.

use std::collections::BTreeMap;

use modelbench_contract::{Backend, Class, Op};

use super::super::faulty::{Faulty, cases, defects};
use super::super::ops::Kept;

/// Defects that the check of a case finds in a backend.
fn found(case: &crate::suite::Case, mut backend: Faulty) -> Vec<String> {
    let profile = backend.numerics();
    defects(super::check(case, 0x5eed, &mut backend, Class::Approx, &profile))
}

/// Runs a group against a fault; gives the cases that find it and those that do not.
fn hunt(group: &str, fault: impl Fn() -> Faulty) -> (Vec<String>, Vec<String>) {
    let mut hit = (Vec::new(), Vec::new());
    for case in cases(&format!("r1/state/{group}/")) {
        let caught = !found(&case, fault()).is_empty();
        if caught { hit.0.push(case.id) } else { hit.1.push(case.id) }
    }
    hit
}

/// Every case of the group whose op gives a tensor must find the fault.
fn all_find(group: &str, fault: impl Fn() -> Faulty) {
    let (_, missed) = hunt(group, fault);
    let missed: Vec<_> = missed
        .iter()
        .filter(|id| !["/add_in_place/", "/add_bias/", "/argmax/"].iter().any(|op| id.contains(op)))
        .collect();
    assert!(missed.is_empty(), "not found by {missed:?}");
}

#[test]
fn an_honest_backend_passes() {
    for case in cases("r1/state/").iter().filter(|case| case.group.name != "poisoned-large") {
        assert_eq!(found(case, Faulty::honest()), [""; 0], "{}", case.id);
    }
}

#[test]
fn every_seed_gives_a_change_that_shows() {
    for case in cases("r1/state/mutated-handle/").iter().chain(&cases("r1/state/same-prefix/")) {
        for seed in 0..40 {
            let mut backend = Faulty::honest();
            let profile = backend.numerics();
            let wrong = defects(super::check(case, seed, &mut backend, Class::Approx, &profile));
            assert_eq!(wrong, [""; 0], "{} with seed {seed}", case.id);
        }
    }
}

/// The last elements of a result are whatever the memory held before.
fn unwritten(count: usize, from: usize) -> Faulty {
    Faulty::spoiling(move |seen, values| {
        let n = values.len();
        if n >= from
            && let Some(old) = seen.freed.iter().rev().find(|old| old.len() == n)
        {
            values[n - count..].copy_from_slice(&old[n - count..]);
        }
    })
}

#[test]
fn unwritten_elements_are_found() {
    all_find("poisoned", || unwritten(1, 2));
    let large = cases("r1/state/poisoned-large/");
    for case in large.iter().filter(|case| !case.id.contains("add_in_place")) {
        assert!(!found(case, unwritten(524, 1 << 20)).is_empty(), "{}", case.id);
    }
}

#[test]
fn one_wrong_element_of_a_million_is_found() {
    for case in cases("r1/state/poisoned-large/swiglu") {
        for wrong in [1e30, 22.0] {
            let fault = Faulty::spoiling(move |_, values| {
                let rms = (values.iter().map(|v| v * v).sum::<f32>() / values.len() as f32).sqrt();
                let at = values.len() / 3;
                values[at] = if wrong > 1e9 { wrong } else { values[at] + wrong * rms };
            });
            let defects = found(&case, fault);
            assert!(defects.iter().any(|d| d.contains("1 of 1048576")), "{defects:?}");
        }
    }
}

#[test]
fn a_result_kept_by_shape_is_found() {
    all_find("same-shape", || {
        let mut kept: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        Faulty::spoiling(move |seen, values| {
            let shapes: Vec<_> = seen.inputs.iter().map(|(_, shape, _)| shape).collect();
            let key = format!("{} {shapes:?}", seen.op);
            *values = kept.entry(key).or_insert_with(|| values.clone()).clone();
        })
    });
}

#[test]
fn a_result_kept_by_handle_is_found() {
    // Attention shows its query only, and has a new store each time.
    all_find("mutated-handle", || {
        let mut kept: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        Faulty::spoiling(move |seen, values| {
            let handles: Vec<_> = seen.inputs.iter().map(|(id, _, _)| id).collect();
            let key = format!("{} {handles:?}", seen.op);
            *values = kept.entry(key).or_insert_with(|| values.clone()).clone();
        })
    });
}

#[test]
fn a_result_kept_by_part_of_the_content_is_found() {
    all_find("same-prefix", || {
        let mut kept: BTreeMap<String, Vec<f32>> = BTreeMap::new();
        Faulty::spoiling(move |seen, values| {
            let ends = |v: &[f32]| format!("{:?}{:?}", &v[..v.len() / 3], &v[v.len() - v.len() / 3..]);
            let parts: Vec<_> = seen.inputs.iter().map(|(_, _, v)| ends(v)).collect();
            let key = format!("{} {parts:?}", seen.op);
            *values = kept.entry(key).or_insert_with(|| values.clone()).clone();
        })
    });
}

#[test]
fn a_race_in_one_run_of_fifty_is_found() {
    all_find("repeats", || {
        let mut runs = 0;
        Faulty::spoiling(move |_, values| {
            runs += 1;
            if runs % 50 == 0 {
                let at = values.len() / 2;
                values[at] = f32::from_bits(values[at].to_bits() ^ 1);
            }
        })
    });
}

#[test]
fn a_read_that_gives_the_tensor_before_is_found() {
    all_find("interleaved-reads", || {
        let mut before: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        let mut backend = Faulty::honest();
        backend.on_read = Box::new(move |_, values| {
            let now = values.clone();
            if let Some(old) = before.insert(now.len(), now) {
                *values = old;
            }
        });
        backend
    });
}

#[test]
fn a_store_that_keeps_its_rows_is_found() {
    let keeps = || {
        let mut backend = Faulty::honest();
        backend.keeps_rows = true;
        backend
    };
    let (_, missed) = hunt("store-reuse", keeps);
    assert_eq!(missed, [""; 0]);
}

#[test]
fn a_store_that_attention_changes_is_found() {
    let case = &cases("r1/attention/bound/kv33-")[0];
    let set = std::rc::Rc::new(std::cell::Cell::new(false));
    let get = std::rc::Rc::clone(&set);
    let mut backend = Faulty::spoiling(move |call, _| set.set(call.op == Op::Attention));
    backend.on_rows = Box::new(move |rows| {
        if get.get() {
            rows[0] += 1.0;
        }
    });
    let profile = backend.numerics();
    let wrong = defects(super::super::ops::check(
        case,
        1,
        &mut Kept::default(),
        &mut backend,
        Class::Approx,
        &profile,
    ));
    assert!(wrong.iter().any(|w| w.contains("keys of the store changed at [0]")), "{wrong:?}");
}
