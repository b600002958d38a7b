//! The first exchange, and every way in which it fails.

use std::thread;

use modelbench_contract::wire::{
    ConnectError, FrameError, MAGIC, RemoteBackend, Request, Response, ServeError, ServeOptions, Transport,
    frame, memory_pair, refuse, serve,
};
use modelbench_contract::{Backend, BackendError, Caps, Class, DType, DeviceInfo, ErrorKind, HostTensor};
use modelbench_contract::{NoKv, NumericProfile, Result};

use crate::backend::{HostMemory, Vector};
use crate::harness::{PATIENCE, hello_answer};

/// What the host makes of an answer to its hello.
fn host_gets(answer: Response) -> ConnectError {
    let (ours, mut theirs) = memory_pair();
    let thread = thread::spawn(move || {
        frame::read::<Request>(&mut theirs, 0).unwrap();
        frame::write(&mut theirs, &answer, &[]).unwrap();
    });
    let error = RemoteBackend::connect(ours, "mine", PATIENCE).unwrap_err();
    thread.join().unwrap();
    error
}

/// What the worker makes of a first request, and what it answers.
fn worker_gets(request: &Request) -> (Result<(), ServeError>, Option<Response>) {
    let (mut ours, mut theirs) = memory_pair();
    frame::write(&mut ours, request, &[]).unwrap();
    let mut backend = HostMemory::new(&Default::default());
    let end = thread::spawn(move || serve(&mut backend, &mut theirs, ServeOptions::default()));
    let answer = frame::read::<Response>(&mut ours, 0).ok().map(|(answer, _)| answer);
    drop(ours);
    (end.join().unwrap(), answer)
}

fn hello(magic: &str, min: u32, max: u32) -> Request {
    Request::Hello { magic: magic.to_owned(), min, max, nonce: "n".to_owned() }
}

#[test]
fn the_worker_takes_the_newest_common_version_and_repeats_the_nonce() {
    let (end, answer) = worker_gets(&hello(MAGIC, 0, 9));
    end.unwrap();
    let Some(Response::Hello { magic, version, nonce, .. }) = answer else { panic!("{answer:?}") };
    assert_eq!((magic.as_str(), version, nonce.as_str()), (MAGIC, 1, "n"));
}

#[test]
fn the_worker_refuses_versions_and_magic() {
    for (request, text) in [
        (hello(MAGIC, 2, 9), "versions 2 to 9"),
        (hello(MAGIC, 0, 0), "versions 0 to 0"),
        (hello(MAGIC, 9, 1), "versions 9 to 1"),
        (hello("MODELBENCHMARK", 1, 1), "MODELBENCHMARK"),
    ] {
        let (end, answer) = worker_gets(&request);
        assert!(matches!(end.unwrap_err(), ServeError::Hello(t) if t.contains(text)));
        let Some(Response::Error { error }) = answer else { panic!("{answer:?}") };
        assert!(error.kind == ErrorKind::InvalidArgument && error.message.contains(text), "{error}");
    }
}

#[test]
fn the_worker_wants_hello_first() {
    let (end, answer) = worker_gets(&Request::Sync);
    assert!(matches!(end.unwrap_err(), ServeError::Hello(_)) && answer.is_none());
}

#[test]
fn a_host_that_goes_before_hello_is_no_error() {
    let (ours, mut theirs) = memory_pair();
    drop(ours);
    serve(&mut HostMemory::new(&Default::default()), &mut theirs, ServeOptions::default()).unwrap();
}

#[test]
fn the_host_refuses_versions_magic_and_another_nonce() {
    for (answer, text) in [
        (hello_answer(MAGIC, 2, "mine"), "version 2"),
        (hello_answer(MAGIC, 0, "mine"), "version 0"),
        (hello_answer("modelbench", 1, "mine"), "\"modelbench\""),
        (hello_answer(MAGIC, 1, "yours"), "another nonce"),
        (Response::Done, "Done"),
    ] {
        let error = host_gets(answer);
        assert!(matches!(&error, ConnectError::Unexpected(t) if t.contains(text)), "{error}");
    }
}

#[test]
fn the_host_refuses_what_is_no_frame() {
    for (bytes, wrong) in [
        (&[0xff; 12][..], "a header of 4294967295 bytes"),
        (b"\x02\0\0\0\0\0\0\0\0\0\0\0{}", "no message"),
        (b"\x02\0\0\0\x01\0\0\0\0\0\0\0{}", "a body of 1 bytes"),
        (b"HT", "end of file"),
    ] {
        let (ours, mut theirs) = memory_pair();
        theirs.send(bytes).unwrap();
        // The stream ends behind these bytes, but only after hello went into it.
        let thread = thread::spawn(move || frame::read::<Request>(&mut theirs, 0).map(|_| ()));
        let error = RemoteBackend::connect(ours, "mine", PATIENCE).unwrap_err();
        thread.join().unwrap().unwrap();
        assert!(matches!(error, ConnectError::Frame(_)) && error.to_string().contains(wrong), "{error}");
    }
}

#[test]
fn no_hello_in_time() {
    let (ours, _theirs) = memory_pair();
    let error = RemoteBackend::connect(ours, "mine", std::time::Duration::from_millis(50)).unwrap_err();
    assert!(
        matches!(error, ConnectError::Frame(FrameError::Io(e)) if e.kind() == std::io::ErrorKind::TimedOut)
    );
}

#[test]
fn a_deadline_beyond_the_clock_is_none() {
    let (ours, mut theirs) = memory_pair();
    let thread = thread::spawn(move || {
        serve(&mut HostMemory::new(&Default::default()), &mut theirs, ServeOptions::default())
    });
    let mut remote = RemoteBackend::connect(ours, "mine", std::time::Duration::MAX).unwrap();
    remote.bye().unwrap();
    thread.join().unwrap().unwrap();
}

#[test]
fn a_worker_without_a_backend_refuses() {
    let (ours, mut theirs) = memory_pair();
    let error = BackendError::new(ErrorKind::Unavailable, "no such device");
    let told = error.clone();
    let thread = thread::spawn(move || refuse(&mut theirs, &told));
    let got = RemoteBackend::connect(ours, "mine", PATIENCE).unwrap_err();
    assert!(matches!(got, ConnectError::Refused(e) if e == error));
    thread.join().unwrap().unwrap();
}

/// A backend that does not even know its name.
struct Nameless;

impl Backend for Nameless {
    type Tensor = Vector;
    type Kv = NoKv;
    fn name(&self) -> &str {
        panic!("who am I")
    }
    fn version(&self) -> &str {
        "1"
    }
    fn tier(&self) -> &str {
        "scalar"
    }
    fn class(&self) -> Class {
        Class::Approx
    }
    fn caps(&self) -> Caps {
        Caps::new()
    }
    fn numerics(&self) -> NumericProfile {
        NumericProfile::F32
    }
    fn device(&self) -> DeviceInfo {
        HostMemory::new(&Default::default()).device()
    }
    fn upload(&mut self, _: &HostTensor, _: DType) -> Result<Vector> {
        Err(BackendError::unimplemented(modelbench_contract::Op::Upload))
    }
    fn host<'a>(&'a mut self, _: &'a Vector) -> Result<Option<std::borrow::Cow<'a, [f32]>>> {
        Ok(None)
    }
    fn read(&mut self, tensor: &Vector) -> Result<Vec<f32>> {
        Ok(tensor.values.clone())
    }
    fn free(&mut self, _: Vector) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_in_the_identity_is_a_refusal() {
    let (ours, mut theirs) = memory_pair();
    let thread = thread::spawn(move || serve(&mut Nameless, &mut theirs, ServeOptions::default()));
    let got = RemoteBackend::connect(ours, "mine", PATIENCE).unwrap_err();
    assert!(matches!(got, ConnectError::Refused(e) if e.message == "panicked: who am I"));
    thread.join().unwrap().unwrap();
}
