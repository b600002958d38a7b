//! The same conversation over a Unix socket.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use modelbench_contract::wire::{Fault, RemoteBackend, Request, ServeOptions, SocketTransport, serve};
use modelbench_contract::{Backend, DType, HostTensor, Op};

use crate::backend::{HostMemory, Watch};
use crate::harness::PATIENCE;

#[test]
fn a_large_tensor_goes_there_and_back() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let watch = Arc::new(Watch::default());
    let mut backend = HostMemory::new(&watch);
    let thread = thread::spawn(move || {
        serve(&mut backend, &mut SocketTransport::new(theirs), ServeOptions::default())
    });
    let mut remote = RemoteBackend::connect(SocketTransport::new(ours), "n", PATIENCE).unwrap();
    // Larger than a socket's buffer and than one piece of a body.
    let values: Vec<f32> = (0..700_000).map(|i| i as f32).collect();
    let tensor = HostTensor::from_f32(&[700, 1000], &values).unwrap();
    let tensor = remote.upload(&tensor, DType::F32).unwrap();
    assert!(remote.read(&tensor).unwrap() == values);
    drop(remote);
    thread.join().unwrap().unwrap();
    assert_eq!(watch.live(), 0);
}

/// A socket whose backend is served, and then taken over by the test.
fn greeted() -> (RemoteBackend<SocketTransport>, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let kept = theirs.try_clone().unwrap();
    let thread = thread::spawn(move || {
        let mut backend = HostMemory::new(&Arc::default());
        serve(&mut backend, &mut SocketTransport::new(theirs), ServeOptions::default())
    });
    let mut remote = RemoteBackend::connect(SocketTransport::new(ours), "n", PATIENCE).unwrap();
    remote.bye().unwrap();
    thread.join().unwrap().unwrap();
    (remote, kept)
}

#[test]
fn silence_is_a_timeout_and_a_closed_socket_is_closed() {
    let deadline = Duration::from_millis(200);
    let (mut remote, kept) = greeted();
    remote.set_deadline(deadline);
    remote.sync().unwrap_err();
    assert_eq!(remote.fault(), Some(&Fault::Timeout { op: Some(Op::Sync), after: deadline }));
    drop(kept);

    let (mut remote, kept) = greeted();
    drop(kept);
    remote.sync().unwrap_err();
    assert_eq!(remote.fault(), Some(&Fault::Closed { op: Some(Op::Sync) }));
}

#[test]
fn a_peer_that_does_not_read_is_a_timeout_of_the_request_sent() {
    let deadline = Duration::from_millis(200);
    let (mut remote, _kept) = greeted();
    remote.set_deadline(deadline);
    let upload = Request::UploadRank { out: 1, rank: 0, shape: vec![1] };
    remote.submit(&upload, &vec![0; 64 << 20]).unwrap_err();
    assert_eq!(remote.fault(), Some(&Fault::Timeout { op: Some(Op::UploadRank), after: deadline }));
}
