//! Collectives: the identities that define them, and every refusal.

use modelbench_contract::{Backend, BackendError, Collectives, DType, ErrorKind, HostTensor};
use modelbench_reference::{CpuRef, RefTensor};

fn ranked(cpu: &mut CpuRef, parts: &[Vec<f32>]) -> Vec<RefTensor> {
    cpu.init_ranks(parts.len()).expect("ranks");
    let upload = |(rank, values): (usize, &Vec<f32>)| {
        let tensor = HostTensor::from_f32(&[values.len()], values).expect("a good tensor");
        cpu.upload_rank(rank, &tensor).expect("uploaded")
    };
    parts.iter().enumerate().map(upload).collect()
}

fn values(tensors: &[RefTensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|t| t.as_f32().expect("f32").to_vec()).collect()
}

fn refs(tensors: &[RefTensor]) -> Vec<&RefTensor> {
    tensors.iter().collect()
}

/// `ranks` parts of `n` values whose sum depends on the order.
fn noisy(ranks: usize, n: usize) -> Vec<Vec<f32>> {
    let value =
        |r: usize, i: usize| ((r * 7919 + i * 613) % 2003) as f32 / 3.0 * [1.0, 1e7, -1e4][(r + i) % 3];
    (0..ranks).map(|r| (0..n).map(|i| value(r, i)).collect()).collect()
}

#[test]
fn sums_run_in_rank_order() {
    let mut cpu = CpuRef::new();
    let parts = ranked(&mut cpu, &[vec![1e30, 1.0], vec![-1e30, 1e30], vec![1.0, -1e30]]);
    let sums = cpu.all_reduce_sum(&refs(&parts)).expect("reduced");
    assert_eq!(values(&sums), vec![vec![1.0, 0.0]; 3], "(1e30 - 1e30) + 1 and (1 + 1e30) - 1e30");
}

#[test]
fn all_reduce_is_all_gather_of_reduce_scatter() {
    for ranks in [1, 2, 3, 5] {
        let mut cpu = CpuRef::new();
        let parts = ranked(&mut cpu, &noisy(ranks, 6 * ranks));
        let shards = cpu.reduce_scatter(&refs(&parts)).expect("scattered");
        assert!(values(&shards).iter().all(|shard| shard.len() == 6));
        let gathered = cpu.all_gather(&refs(&shards)).expect("gathered");
        let reduced = cpu.all_reduce_sum(&refs(&parts)).expect("reduced");
        assert_eq!(values(&gathered), values(&reduced), "{ranks} ranks");
    }
}

#[test]
fn all_gather_concatenates_in_rank_order() {
    let mut cpu = CpuRef::new();
    let parts = ranked(&mut cpu, &[vec![1.0, 2.0], vec![3.0, 4.0]]);
    let all = cpu.all_gather(&refs(&parts)).expect("gathered");
    assert_eq!(values(&all), vec![vec![1.0, 2.0, 3.0, 4.0]; 2]);
}

#[test]
fn all_to_all_transposes_shards_and_twice_is_the_identity() {
    let mut cpu = CpuRef::new();
    let parts = ranked(&mut cpu, &[vec![1.0, 2.0, 3.0, 4.0], vec![5.0, 6.0, 7.0, 8.0]]);
    let once = cpu.all_to_all(&refs(&parts)).expect("exchanged");
    assert_eq!(values(&once), [[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]);
    let twice = cpu.all_to_all(&refs(&once)).expect("exchanged");
    assert_eq!(values(&twice), values(&parts));
}

#[test]
fn one_rank_is_the_identity_and_inputs_stay() {
    let mut cpu = CpuRef::new();
    let parts = ranked(&mut cpu, &[vec![-0.0, 2.5, f32::MIN_POSITIVE / 4.0]]);
    let before = values(&parts);
    for result in [
        cpu.all_reduce_sum(&refs(&parts)),
        cpu.all_gather(&refs(&parts)),
        cpu.reduce_scatter(&refs(&parts)),
        cpu.all_to_all(&refs(&parts)),
    ] {
        let bits = |v: &[Vec<f32>]| v.iter().flatten().map(|x| x.to_bits()).collect::<Vec<u32>>();
        assert_eq!(bits(&values(&result.expect("one rank"))), bits(&before));
    }
    assert_eq!(values(&parts), before);
}

type Collective = fn(&mut CpuRef, &[&RefTensor]) -> Result<Vec<RefTensor>, BackendError>;
const ALL: [(&str, Collective); 4] = [
    ("all_reduce_sum", |c, p| c.all_reduce_sum(p)),
    ("all_gather", |c, p| c.all_gather(p)),
    ("reduce_scatter", |c, p| c.reduce_scatter(p)),
    ("all_to_all", |c, p| c.all_to_all(p)),
];

#[test]
fn bad_parts_are_refused_by_every_collective() {
    let mut cpu = CpuRef::new();
    let good = ranked(&mut cpu, &noisy(2, 4));
    let ragged = ranked(&mut cpu, &[vec![1.0; 4], vec![1.0; 6]]);
    let foreign = ranked(&mut CpuRef::new(), &noisy(2, 4));
    let half = HostTensor::from_f32(&[4], &[1.0; 4]).expect("good");
    let half = cpu.upload(&half, DType::F16).expect("narrowed");
    let matrix = HostTensor::from_f32(&[2, 2], &[1.0; 4]).expect("good");
    let matrix = cpu.upload(&matrix, DType::F32).expect("uploaded");
    let cases: [(&str, Vec<&RefTensor>, &str); 7] = [
        ("no parts", vec![], "0 parts"),
        ("too few", vec![&good[0]], "1 parts"),
        ("too many", vec![&good[0], &good[1], &good[0]], "3 parts"),
        ("ragged", refs(&ragged), "equal shapes"),
        ("another backend", vec![&good[0], &foreign[1]], "another backend"),
        ("not f32", vec![&good[0], &half], "f16"),
        ("not a vector", vec![&matrix, &matrix], "expected [n]"),
    ];
    for (op, collective) in ALL {
        collective(&mut cpu, &refs(&good)).expect("good parts are accepted");
        for (what, parts, message) in &cases {
            let error = collective(&mut cpu, parts).expect_err(what);
            assert_eq!(error.kind, ErrorKind::InvalidArgument, "{op}, {what}: {error}");
            assert!(error.message.contains(message), "{op}, {what}: {error} should say {message:?}");
            assert_eq!(error.op.map(|o| o.as_str()), Some(op));
        }
    }
}

#[test]
fn indivisible_lengths_are_refused_where_shards_are_needed() {
    let mut cpu = CpuRef::new();
    let parts = ranked(&mut cpu, &noisy(2, 5));
    assert_eq!(cpu.reduce_scatter(&refs(&parts)).expect_err("5 over 2").kind, ErrorKind::InvalidArgument);
    assert_eq!(cpu.all_to_all(&refs(&parts)).expect_err("5 over 2").kind, ErrorKind::InvalidArgument);
    cpu.all_reduce_sum(&refs(&parts)).expect("a sum needs no shards");
}

#[test]
fn ranks_are_needed_and_bounded() {
    let mut cpu = CpuRef::new();
    let tensor = HostTensor::from_f32(&[2], &[1.0, 2.0]).expect("good");
    let early = cpu.upload_rank(0, &tensor).expect_err("no ranks yet");
    assert_eq!(early.kind, ErrorKind::InvalidArgument);
    assert_eq!(cpu.init_ranks(0).expect_err("none").kind, ErrorKind::InvalidArgument);
    let uploaded = cpu.upload(&tensor, DType::F32).expect("uploaded");
    for (op, collective) in ALL {
        let error = collective(&mut cpu, &[&uploaded]).expect_err("no ranks yet");
        assert!(error.message.contains("init_ranks"), "{op}: {error}");
    }
    cpu.init_ranks(2).expect("ranks");
    assert_eq!(cpu.upload_rank(2, &tensor).expect_err("rank 2 of 2").kind, ErrorKind::InvalidArgument);
    let bytes = HostTensor::from_bytes(&[2], DType::F16, vec![0u8; 4]).expect("good");
    assert_eq!(cpu.upload_rank(0, &bytes).expect_err("f16").kind, ErrorKind::InvalidArgument);
}
