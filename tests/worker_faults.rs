//! Real workers that misbehave: each fault is charged to what caused it, and a fresh worker does the rest.

use std::time::Duration;

use modelbench::worker::{Cause, Death, Environment, Exit, Remote, Worker, WorkerError, WorkerSpec};
use modelbench_contract::{
    AttentionSpec, Backend, DType, DeviceTensor, ErrorKind, HostTensor, KvConfig, KvStore, Op, Result,
    RopeSpec,
};

const SOON: Duration = Duration::from_secs(60);
const ROPE: RopeSpec = RopeSpec { pos: 1, n_heads: 1, head_dim: 4, theta: 10_000.0 };

fn program(program: &str, args: &[&str]) -> WorkerSpec {
    WorkerSpec {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
        environment: Environment::from_host(),
        memory_limit_bytes: 1 << 30,
        start_deadline: SOON,
        request_deadline: SOON,
    }
}

fn spec(behaviour: &str) -> WorkerSpec {
    let backend = format!("mock:{behaviour}");
    program(env!("CARGO_BIN_EXE_modelbench"), &["worker", "--backend", &backend, "--self-test"])
}

fn launch(behaviour: &str) -> Worker {
    Worker::launch(&spec(behaviour)).expect("the worker says hello")
}

fn upload(remote: &mut Remote, shape: &[usize]) -> Result<<Remote as Backend>::Tensor> {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| (i % 7) as f32 - 3.0).collect();
    let tensor = HostTensor::from_f32(shape, &values).expect("tensor");
    remote.upload(&tensor, DType::F32)
}

/// Runs one op with `n` as its size and reads the result.
fn work(remote: &mut Remote, op: Op, n: usize) -> Result<Vec<f32>> {
    let result = match op {
        Op::Matmul => {
            let (w, x) = (upload(remote, &[n, 4])?, upload(remote, &[4])?);
            remote.matmul(&w, &x)?
        }
        Op::RmsNorm => {
            let (x, w) = (upload(remote, &[n])?, upload(remote, &[n])?);
            remote.rms_norm(&x, &w, 1e-5)?
        }
        Op::Rope => {
            let x = upload(remote, &[4])?;
            remote.rope(&x, ROPE)?
        }
        Op::Swiglu => {
            let x = upload(remote, &[n])?;
            remote.swiglu(&x, &x)?
        }
        Op::AddBias => {
            let (mut x, b) = (upload(remote, &[n])?, upload(remote, &[n])?);
            remote.add_bias(&mut x, &b)?;
            x
        }
        Op::Argmax => {
            let x = upload(remote, &[n])?;
            return remote.argmax(&x).map(|index| vec![index as f32]);
        }
        other => panic!("no recipe for {other}"),
    };
    // Another op is sent before the fence, so that the last request sent is not the one that is to blame. A
    // worker that died fast is already gone by then.
    let bystander = upload(remote, &[2])?;
    remote.free(bystander)?;
    remote.read(&result)
}

/// Lets the worker fail in `op` and opens it up.
fn death(spec: &WorkerSpec, op: Op, n: usize) -> Death {
    let mut worker = Worker::launch(spec).expect("the worker says hello");
    let error = work(worker.remote(), op, n).expect_err("this op is fatal");
    assert!(worker.remote().fault().is_some(), "no fault after: {error}");
    let again = work_after_fault(worker.remote());
    assert_eq!(again.kind, ErrorKind::Unavailable, "{again}");
    worker.autopsy()
}

fn work_after_fault(remote: &mut Remote) -> modelbench_contract::BackendError {
    let tensor = HostTensor::from_f32(&[1], &[1.0]).expect("tensor");
    remote.upload(&tensor, DType::F32).and_then(|t| remote.read(&t)).expect_err("the worker is gone")
}

#[test]
fn an_honest_worker_works_and_ends_cleanly() {
    let mut worker = launch("honest");
    assert_eq!(worker.identity().name, "mock:honest");
    let got = work(worker.remote(), Op::Matmul, 3).expect("matmul");
    assert_eq!(got, [14.0, -10.0, 8.0]);
    let argmax = work(worker.remote(), Op::Argmax, 7).expect("argmax");
    assert_eq!(argmax, [6.0]);
    for measure in ["filesystem", "network", "signals", "core dumps", "life", "environment", "memory"] {
        assert!(worker.sandbox().contains_key(measure), "{measure}: {:?}", worker.sandbox());
    }
    let farewell = worker.shutdown();
    assert_eq!(farewell.exit, Some(Exit::Code(0)), "{farewell:?}");
    #[cfg(target_os = "linux")]
    assert!(farewell.usage.peak_rss_bytes.is_some_and(|bytes| bytes > 1 << 16), "{farewell:?}");
}

#[test]
fn kv_and_attention_cross_the_process_boundary() {
    let mut worker = launch("honest");
    let remote = worker.remote();
    let config = KvConfig { layers: 1, kv_heads: 1, head_dim: 4, capacity: 4, theta: 10_000.0 };
    let mut kv = remote.new_kv(&config).expect("kv");
    let rows = upload(remote, &[2, 4]).expect("rows");
    remote.append(&mut kv, 0, &rows, &rows, &rows, 0).expect("append");
    let q = upload(remote, &[1, 8]).expect("q");
    let spec = AttentionSpec { group: 2, scale: 0.5, causal: true };
    let out = remote.attention(&q, &kv, 0, spec).expect("attention");
    assert_eq!(out.desc().shape, [1, 8]);
    assert_eq!(remote.read(&out).expect("read").len(), 8);
    assert_eq!(remote.len(&kv).expect("len"), 2);
    assert_eq!(worker.shutdown().exit, Some(Exit::Code(0)));
}

#[test]
fn a_segfault_costs_one_case_and_names_the_op() {
    let mut worker = launch("crash-segv");
    assert_eq!(work(worker.remote(), Op::Matmul, 5).expect("other sizes work").len(), 5);
    work(worker.remote(), Op::Matmul, 33).expect_err("33 outputs are fatal");
    let death = worker.autopsy();
    assert_eq!(death.cause, Cause::Crash(Exit::Signal(11)), "{death}");
    assert_eq!(death.cause.to_string(), "SIGSEGV");
    assert_eq!(death.last_op, Some(Op::Matmul));
    let mut fresh = launch("crash-segv");
    assert_eq!(work(fresh.remote(), Op::Matmul, 5).expect("the rest goes on").len(), 5);
}

#[test]
fn an_abort_keeps_its_last_words() {
    let death = death(&spec("crash-abort"), Op::Rope, 4);
    assert_eq!(death.cause, Cause::Crash(Exit::Signal(6)), "{death}");
    assert_eq!(death.last_op, Some(Op::Rope));
    assert!(death.stderr_tail(3).contains("giving up in rope"), "{death:?}");
}

#[test]
fn exit_code_0_before_the_end_is_a_crash() {
    let death = death(&spec("exit-zero"), Op::Swiglu, 4);
    assert_eq!(death.cause, Cause::Crash(Exit::Code(0)), "{death}");
    assert_eq!(death.last_op, Some(Op::Swiglu));
    assert!(death.to_string().contains("exited 0 before the work was done"), "{death}");
}

#[test]
fn a_hang_ends_at_its_deadline_even_without_sigterm() {
    for behaviour in ["hang", "hang-sigterm"] {
        let after = Duration::from_millis(300);
        let death = death(&WorkerSpec { request_deadline: after, ..spec(behaviour) }, Op::RmsNorm, 4);
        assert!(
            matches!(death.cause, Cause::Timeout { after: got, .. } if got == after),
            "{behaviour}: {death}"
        );
        assert_eq!(death.last_op, Some(Op::RmsNorm), "{behaviour}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_balloon_bursts_at_its_limit() {
    let limit = 256 << 20;
    let death = death(&WorkerSpec { memory_limit_bytes: limit, ..spec("balloon") }, Op::AddBias, 4);
    let Cause::MemoryLimit { rss, limit: named } = death.cause else { panic!("{death}") };
    assert!(rss > limit && named == limit, "{death}");
    assert_eq!(death.last_op, Some(Op::AddBias));
    assert!(death.usage.peak_rss_bytes.is_some_and(|peak| peak >= rss), "{:?}", death.usage);
}

#[test]
fn garbage_is_garbage_and_no_crash() {
    let death = death(&spec("garbage-frame"), Op::Argmax, 4);
    assert!(matches!(death.cause, Cause::Garbage { .. }), "{death}");
    assert_eq!(death.last_op, Some(Op::Argmax));
}

#[test]
fn a_panic_is_an_error_and_the_worker_goes_on() {
    let mut worker = launch("panic");
    let error = work(worker.remote(), Op::Rope, 4).expect_err("rope panics");
    assert_eq!((error.kind, error.op), (ErrorKind::Internal, Some(Op::Rope)), "{error}");
    assert!(worker.remote().fault().is_none());
    assert_eq!(work(worker.remote(), Op::Matmul, 2).expect("it goes on").len(), 2);
    let farewell = worker.shutdown();
    assert_eq!(farewell.exit, Some(Exit::Code(0)), "{farewell:?}");
}

#[test]
fn a_short_read_is_noticed() {
    let mut worker = launch("short-read");
    let error = work(worker.remote(), Op::RmsNorm, 4).expect_err("one value is missing");
    assert_ne!(error.kind, ErrorKind::Unimplemented, "{error}");
}

#[test]
fn noise_is_bounded_and_harms_nothing() {
    let mut worker = launch("noisy");
    for _ in 0..20 {
        assert_eq!(work(worker.remote(), Op::Matmul, 2).expect("it works").len(), 2);
    }
    let farewell = worker.shutdown();
    assert_eq!(farewell.exit, Some(Exit::Code(0)), "{farewell:?}");
    assert!(farewell.stdout.starts_with("MODELBENCH"), "{}", farewell.stdout);
    assert!(farewell.stderr.contains("bytes dropped"), "{} bytes kept", farewell.stderr.len());
    assert!(farewell.stderr.len() < 24 * 1024, "{} bytes kept", farewell.stderr.len());
}

#[test]
fn a_backend_that_cannot_be_made_says_why() {
    let error = Worker::launch(&spec("no-such-behaviour")).expect_err("no such backend");
    let WorkerError::Unavailable(why) = &error else { panic!("{error:?}") };
    assert_eq!(
        error.to_string(),
        why.to_string(),
        "whoever shows it says that the backend could not be loaded"
    );
    assert!(why.message.contains("no-such-behaviour"), "{why}");
}

#[test]
fn programs_that_are_no_workers_are_told_apart() {
    let missing = Worker::launch(&program("/nowhere/at/all", &[])).expect_err("no such program");
    assert!(matches!(missing, WorkerError::Start { .. }), "{missing:?}");
    assert!(missing.to_string().contains("/nowhere/at/all"), "{missing}");
    let early = Worker::launch(&program("/bin/sh", &["-c", "echo oh no >&2; exit 0"])).expect_err("no hello");
    let text = early.to_string();
    assert!(text.contains("exited 0 before the work was done") && text.contains("oh no"), "{text}");
    let mute = WorkerSpec { start_deadline: Duration::from_millis(200), ..program("/bin/sleep", &["600"]) };
    let WorkerError::Died { death, .. } = Worker::launch(&mute).expect_err("no hello") else {
        panic!("not dead")
    };
    assert!(matches!(death.cause, Cause::Timeout { .. }), "{death}");
    let babble = program("/bin/sh", &["-c", "head -c 4096 /dev/zero >&0; sleep 600"]);
    let WorkerError::Died { death, .. } = Worker::launch(&babble).expect_err("no hello") else {
        panic!("not dead")
    };
    assert!(matches!(death.cause, Cause::Garbage { .. }), "{death}");
}

#[test]
fn a_worker_gets_a_cleared_environment_and_an_empty_folder() {
    let script = "env; echo folder; ls -A; echo end; exit 7";
    let environment = Environment::select([
        ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
        ("LD_PRELOAD".into(), "".into()),
        ("SECRET_OF_THE_HOST".into(), "x".into()),
    ]);
    let spec = WorkerSpec { environment, ..program("/bin/sh", &["-c", script]) };
    let WorkerError::Died { death, .. } = Worker::launch(&spec).expect_err("no hello") else {
        panic!("not dead")
    };
    assert_eq!(death.cause, Cause::Crash(Exit::Code(7)), "{death}");
    assert!(death.stdout.contains("TMPDIR="), "{}", death.stdout);
    assert!(death.stdout.contains("folder\nend\n"), "{}", death.stdout);
    for absent in ["SECRET_OF_THE_HOST", "LD_PRELOAD", "HOME="] {
        assert!(!death.stdout.contains(absent), "{}", death.stdout);
    }
}

#[test]
fn nothing_is_left_of_a_dropped_worker() {
    let worker = launch("honest");
    let pid = worker.pid();
    assert!(std::path::Path::new(&format!("/proc/{pid}")).exists());
    drop(worker);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}
