//! Every cap: a backend that keeps the promise earns it, and one that lies is caught by a case that says why.

use serde_json::Value;

use super::run::Scratch;

/// The cases of a filter that ran, with the exit code.
fn ran(behaviour: &str, filter: &str) -> (i32, Vec<(String, String, Value)>) {
    let scratch = Scratch::new();
    let name = format!("mock:{behaviour}");
    let done = scratch.run(&["-backend", &name, "-self-test", "-filter", filter]);
    assert!([0, 1].contains(&done.code), "{behaviour}: {}{}", done.stdout, done.stderr);
    let cases = done.cases().into_iter().filter(|(_, outcome, _)| outcome != "not-run").collect();
    (done.code, cases)
}

/// Every case of the cap that a filter finds is passed, and there is at least one.
fn keeps(behaviour: &str, promises: &[&str]) {
    let (code, cases) = ran(behaviour, "r3/**");
    assert_eq!(code, 0, "{behaviour}: {cases:?}");
    for cap in promises {
        let of_cap: Vec<_> = cases.iter().filter(|(_, _, line)| line["proves"] == **cap).collect();
        assert!(!of_cap.is_empty(), "{behaviour}: no case of {cap} ran");
        for (id, outcome, line) in of_cap {
            assert_eq!(outcome, "pass", "{behaviour}: {id}: {line}");
        }
    }
}

/// A case of the group catches the lie and says so.
fn caught(behaviour: &str, group: &str, says: &str) {
    // A group without axes is one case, named like the group itself.
    let below = if group == "host-capacity" { "" } else { "/**" };
    let (code, cases) = ran(behaviour, &format!("r3/caps/{group}{below}"));
    assert_eq!(code, 1, "{behaviour}: {cases:?}");
    let told = |(_, outcome, line): &(String, String, Value)| {
        outcome != "pass" && line["outcome"].to_string().contains(says)
    };
    assert!(cases.iter().any(told), "{behaviour} should say {says:?}: {cases:?}");
}

#[test]
fn kept_promises_are_proven() {
    keeps("honest-graph", &["GraphCompile"]);
    keeps("honest-async", &["Async"]);
    keeps("honest-fused", &["FusedAttn", "FusedFFN"]);
    keeps("honest-probes", &["DeviceMemory", "CapacityProbe", "HostCapacityProbe"]);
}

#[test]
fn lies_about_memory_are_caught() {
    caught("lies-about-device-memory", "device-memory", "the host can view the tensor");
    caught("lies-about-device-growth", "device-memory-growth", "stay in host memory");
    caught("lies-about-capacity-probe", "capacity", "free memory fell from");
    caught("lies-about-capacity-total", "capacity", "total is 0");
    caught("lies-about-host-capacity-probe", "host-capacity", "exceeds total");
}

#[test]
fn lies_about_speed_are_caught() {
    caught("lies-about-async", "async", "calls return when their work is done");
    caught("lies-about-async-waiting", "async", "calls return when their work is done");
    caught("lies-about-fused-attn", "fused-attn", "the worker's memory grew by");
    caught("lies-about-fused-attn-dispatches", "fused-attn", "3 dispatches for one call");
    caught("lies-about-fused-ffn", "fused-ffn", "5 dispatches for the 5 ops");
    caught("lies-about-fused-ffn-uncounted", "fused-ffn", "reports no dispatches");
    caught("lies-about-fused-ffn-count", "fused-ffn", "the counter does not count");
}

#[test]
fn lies_about_op_lists_are_caught() {
    caught("lies-about-graph-compile", "graph", "unimplemented");
    caught("lies-about-graph-inputs", "graph", "the same calls one by one gave");
    caught("lies-about-graph-inputs", "graph-exact", "the same calls one by one gave");
}

#[test]
fn the_note_says_what_was_not_measured() {
    let (_, cases) = ran("honest-probes", "r3/caps/device-memory-growth/**");
    assert!(cases[0].2["notes"].to_string().contains("does not apply"), "{cases:?}");
    let (_, cases) = ran("lies-about-fused-attn", "r3/caps/fused-attn/**");
    assert!(cases[0].2["outcome"].to_string().contains("33554432"), "{cases:?}");
}
