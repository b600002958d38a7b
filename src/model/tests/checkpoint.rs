//! The real checkpoint of the smollm2-135m golden, 98 MB, which is not part of the repository.

use std::path::Path;

use super::*;

/// Bytes of the largest resident set so far, where the system tells.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[test]
#[ignore = "needs SmolLM2-135M-Instruct.Q4_1.gguf (98 MB): set MODELBENCH_SMOLLM2 to its path"]
fn smollm2_meets_its_golden() {
    let path =
        std::env::var_os("MODELBENCH_SMOLLM2").expect("MODELBENCH_SMOLLM2 is the path of the checkpoint");
    let model = Model::open(Path::new(&path)).unwrap();
    assert_eq!(model.parameters(), 134_515_008);
    let golden =
        bundled_golden(model.digest()).expect("the checkpoint that the golden was made from").unwrap();
    let output = run(&mut cpu(), &model, &golden.input_ids);
    for (position, want) in golden.argmax.as_ref().unwrap().iter().enumerate() {
        let row = &output.logits[position];
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(best, *want, "position {position}");
        let ids = golden.top8_ids.as_ref().unwrap().row(position).unwrap();
        let got: Vec<f32> = ids.iter().map(|&id| row[id]).collect();
        let off = difference(&got, golden.top8_logits.as_ref().unwrap().row(position).unwrap());
        assert!(off < 1e-3, "top 8 of position {position} are off by {off}");
    }
    let last = difference(output.logits.last().unwrap(), golden.last_logits.as_ref().unwrap());
    assert!(last < 1e-3, "last logits are off by {last}");
    let want = golden.final_hidden.as_ref().unwrap();
    let largest = want.values.iter().fold(0.0f64, |a, x| a.max(x.abs()));
    let hidden = difference(output.hidden.last().unwrap(), &want.values) / largest;
    assert!(hidden < 2e-5, "final hidden states are off by {hidden} of the largest value");
    println!("last logits off by {last:.2e}, final hidden by {hidden:.2e}, peak {:?} bytes", peak_resident());
}
