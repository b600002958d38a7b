//! The checks of rung 6 that need no worker, against faults of each kind.

use std::cell::Cell;
use std::rc::Rc;

use modelbench_contract::{Backend, Class};

use super::super::faulty::{Faulty, cases, defects};
use super::{churn, leak, sessions, shortage};

#[test]
fn a_free_that_does_nothing_is_a_leak() {
    for (free_is_no_op, found) in [(false, false), (true, true)] {
        for case in cases("r6/endurance/leak/").iter().filter(|c| !c.id.contains("/clones/")) {
            let mut backend = Faulty::honest();
            backend.free_is_no_op = free_is_no_op;
            let held = Rc::clone(&backend.held);
            let wrong = defects(leak::check(case, &mut backend, || Some(held.get())));
            assert_eq!(!wrong.is_empty(), found, "{}: {wrong:?}", case.id);
        }
    }
}

#[test]
fn memory_that_cannot_be_measured_is_no_pass() {
    let case = &cases("r6/endurance/leak/uploads/")[0];
    let finding = leak::check(case, &mut Faulty::honest(), || None).expect("it runs");
    assert!(finding.mistrusted.is_some_and(|why| why.contains("measured")));
}

#[test]
fn a_tensor_that_changes_while_it_lives_is_found() {
    for case in cases("r6/endurance/churn/") {
        assert_eq!(defects(churn::check(&case, 1, &mut Faulty::honest())), [""; 0], "{}", case.id);
        let mut backend = Faulty::honest();
        backend.on_read = Box::new(|id, values| {
            if id % 7 == 0 {
                values[0] += 1.0;
            }
        });
        assert!(!defects(churn::check(&case, 1, &mut backend)).is_empty(), "{}", case.id);
    }
}

#[test]
fn the_hundredth_call_must_be_as_right_as_the_first() {
    for case in cases("r6/endurance/many-ops/") {
        let run = |mut backend: Faulty| {
            let profile = backend.numerics();
            defects(churn::many_ops(&case, 1, &mut backend, Class::Approx, &profile))
        };
        assert_eq!(run(Faulty::honest()), [""; 0]);
        let mut calls = 0;
        let tired = Faulty::spoiling(move |_, values| {
            calls += 1;
            if calls == 100 {
                values[0] = f32::from_bits(values[0].to_bits() ^ 1);
            }
        });
        assert!(!run(tired).is_empty(), "{}", case.id);
    }
}

#[test]
fn a_session_that_keeps_rows_of_the_one_before_is_found() {
    for case in cases("r6/endurance/sessions/") {
        let run = |mut backend: Faulty| {
            let profile = backend.numerics();
            defects(sessions::check(&case, 1, &mut backend, Class::Approx, &profile))
        };
        assert_eq!(run(Faulty::honest()), [""; 0]);
        let mut keeps = Faulty::honest();
        keeps.keeps_rows = true;
        assert!(!run(keeps).is_empty(), "{}", case.id);
    }
}

#[test]
fn what_no_machine_holds_is_refused_and_nothing_else_happens() {
    for case in cases("r6/endurance/out-of-memory/") {
        assert_eq!(defects(shortage::check(&case, &mut Faulty::honest())), [""; 0], "{}", case.id);
        // A store that promises whatever it is asked for.
        let mut generous = Faulty::honest();
        generous.grants_any_store = true;
        let wrong = defects(shortage::check(&case, &mut generous));
        assert_eq!(!wrong.is_empty(), !case.id.contains("/result"), "{}: {wrong:?}", case.id);
    }
    // A tensor from before that is lost in the shortage.
    let case = &cases("r6/endurance/out-of-memory/positions")[0];
    let (mut backend, reads) = (Faulty::honest(), Cell::new(0));
    backend.on_read = Box::new(move |_, values| {
        reads.set(reads.get() + 1);
        if reads.get() > 3 {
            values.fill(0.0);
        }
    });
    assert!(!defects(shortage::check(case, &mut backend)).is_empty());
}
