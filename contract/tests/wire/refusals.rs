//! Requests that are wrong by themselves: the serve loop refuses them and the backend never hears of them.

use std::io;
use std::thread;

use modelbench_contract::wire::{
    FrameError, MAGIC, Request, Response, ServeError, ServeOptions, Transport, frame, memory_pair, serve,
};
use modelbench_contract::{Backend, DType, ErrorKind, KvConfig, Op};

use crate::backend::{HostMemory, Trip, Watch};
use crate::harness::{assert_invalid, served};

const KV: KvConfig = KvConfig { layers: 1, kv_heads: 1, head_dim: 2, capacity: 4, theta: 1e4 };

#[test]
fn ill_shaped_requests_do_not_reach_the_backend() {
    let mut s = served();
    let w = s.upload(&[2, 3], &[1.0; 6]).handle;
    let x = s.upload(&[3], &[1.0; 3]).handle;
    let y = s.upload(&[2], &[1.0; 2]).handle;
    let cube = s.upload(&[1, 1, 3], &[1.0; 3]).handle;
    let kv = s.remote.kv_store().unwrap().new_kv(&KV).unwrap().handle;
    s.remote.sync().unwrap();
    let before = s.watch.calls().iter().filter(|op| **op != Op::Sync).count();
    let (out, layer, pos, group, scale, causal) = (90, 0, 0, 1, 1.0, true);
    let bad = [
        Request::Matmul { out, w, x: y },
        Request::Matmul { out, w: x, x },
        Request::Matmul { out, w, x: w },
        Request::BatchedMatmul { out, w, x },
        Request::RmsNorm { out, x: w, weight: y, eps: 1e-5 },
        Request::RmsNorm { out, x, weight: x, eps: 1e300 },
        Request::Rope { out, x, pos, n_heads: 1, head_dim: 3, theta: 1e4 },
        Request::Rope { out, x: y, pos, n_heads: usize::MAX, head_dim: 2, theta: 1e4 },
        Request::Rope { out, x: y, pos, n_heads: 1, head_dim: 2, theta: -1.0 },
        Request::Swiglu { out, gate: x, up: y },
        Request::Swiglu { out, gate: cube, up: cube },
        Request::AddInPlace { dst: x, src: y },
        Request::AddBias { dst: w, bias: y },
        Request::Attention { out, q: x, kv, layer, group, scale, causal },
        Request::Attention { out, q: y, kv, layer: 1, group, scale, causal },
        Request::Attention { out, q: y, kv, layer, group: 0, scale, causal },
        Request::NewKv { out, config: KvConfig { head_dim: 3, ..KV } },
        Request::NewKv { out, config: KvConfig { capacity: usize::MAX, ..KV } },
        Request::KvAppend { kv, layer: 1, k_raw: y, k_rope: y, v: y, pos },
        Request::KvAppend { kv, layer, k_raw: y, k_rope: y, v: x, pos },
        Request::AllReduceSum { out: vec![90], parts: vec![x, y] },
        Request::AllGather { out: vec![], parts: vec![x] },
        Request::ReduceScatter { out: vec![90, 91], parts: vec![x] },
        Request::AllToAll { out: vec![90], parts: vec![] },
        Request::UploadRank { out, rank: 0, shape: vec![5] },
    ];
    for request in &bad {
        let error = s.refused(request, &[]);
        assert_eq!((error.kind, error.op), (ErrorKind::InvalidArgument, request.op()), "{error}");
    }
    for request in
        [Request::Argmax { logits: w }, Request::KvKeys { kv, layer: 1 }, Request::KvValues { kv, layer: 9 }]
    {
        assert_invalid(&s.remote.call(&request, &[], 0).unwrap_err(), "expected");
    }
    let after = s.watch.calls().iter().filter(|op| **op != Op::Sync).count();
    assert_eq!(after, before, "{:?}", s.watch.calls());
    s.bye();
}

#[test]
fn an_upload_whose_body_is_not_its_shape() {
    let mut s = served();
    let upload = |shape: &[usize], dtype| Request::Upload {
        out: 90,
        shape: shape.to_vec(),
        dtype,
        as_dtype: dtype,
        quant: None,
    };
    let bad: [(&[usize], DType, usize); 7] = [
        (&[2], DType::F32, 4),
        (&[2], DType::F32, 12),
        (&[], DType::F32, 4),
        (&[0], DType::F32, 0),
        (&[1, 1, 1, 1, 1], DType::F32, 4),
        (&[usize::MAX, usize::MAX], DType::F32, 4),
        (&[33], DType::Q8_0, 34),
    ];
    for (shape, dtype, bytes) in bad {
        let error = s.refused(&upload(shape, dtype), &vec![0; bytes]);
        assert_invalid(&error, "shape");
        assert_eq!(error.op, Some(Op::Upload));
    }
    assert!(!s.watch.calls().contains(&Op::Upload));
    s.bye();
}

#[test]
fn a_second_hello() {
    let mut s = served();
    let hello = Request::Hello { magic: MAGIC.to_owned(), min: 1, max: 1, nonce: String::new() };
    assert_invalid(&s.remote.call(&hello, &[], 0).unwrap_err(), "twice");
    s.bye();
}

#[test]
fn a_collective_with_too_few_results_is_the_backends_defect_and_leaks_nothing() {
    let mut s = served();
    s.remote.collectives().unwrap().init_ranks(2).unwrap();
    let (a, b) = (s.upload(&[2], &[1.0, 2.0]), s.upload(&[2], &[1.0, 2.0]));
    s.watch.trip(Op::AllGather, Trip::Short);
    s.remote.collectives().unwrap().all_gather(&[&a, &b]).unwrap();
    let error = s.remote.sync().unwrap_err();
    assert_eq!((error.kind, error.op), (ErrorKind::Internal, Some(Op::AllGather)));
    assert_eq!(s.watch.live(), 2);
    s.bye();
}

/// What the worker makes of bytes after a good hello.
fn worker_reads(bytes: &[u8]) -> (ServeError, Option<Response>) {
    let (mut ours, mut theirs) = memory_pair();
    let thread = thread::spawn(move || {
        let mut backend = HostMemory::new(&Default::default());
        let options = ServeOptions { body_limit: 64, ..ServeOptions::default() };
        serve(&mut backend, &mut theirs, options).unwrap_err()
    });
    let hello = Request::Hello { magic: MAGIC.to_owned(), min: 1, max: 1, nonce: String::new() };
    frame::write(&mut ours, &hello, &[]).unwrap();
    frame::read::<Response>(&mut ours, 0).unwrap();
    ours.send(bytes).unwrap();
    let error = thread.join().unwrap();
    (error, frame::read::<Response>(&mut ours, 0).ok().map(|(answer, _)| answer))
}

#[test]
fn bytes_that_are_no_frame_end_the_worker() {
    let start = |header: u32, body: u64| [&header.to_le_bytes()[..], &body.to_le_bytes()].concat();
    let (error, answer) = worker_reads(&start(frame::HEADER_LIMIT + 1, 0));
    assert!(matches!(error, ServeError::Frame(FrameError::Header { length: 65_537 })) && answer.is_none());
    let (error, _) = worker_reads(&start(0, 0));
    assert!(matches!(error, ServeError::Frame(FrameError::Header { length: 0 })));
    let (error, _) = worker_reads(&start(10, 65));
    assert!(matches!(error, ServeError::Frame(FrameError::Body { length: 65, limit: 64 })));
    let (error, _) = worker_reads(&[&start(5, 0)[..], b"{\xff}}}"].concat());
    assert!(matches!(error, ServeError::Frame(FrameError::Json { .. })));
    let unknown = br#"{"op":"explode"}"#;
    let (error, _) = worker_reads(&[&start(unknown.len() as u32, 0)[..], unknown].concat());
    assert!(error.to_string().contains("explode"), "{error}");
}

/// A stream with nothing behind the first bytes, that remembers how much it was asked for.
pub struct Recorder {
    pub bytes: Vec<u8>,
    pub asked: usize,
}

impl Transport for Recorder {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.extend(bytes);
        Ok(())
    }
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.asked += buffer.len();
        if self.bytes.len() < buffer.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.copy_from_slice(&self.bytes[..buffer.len()]);
        self.bytes.drain(..buffer.len());
        Ok(())
    }
    fn set_deadline(&mut self, _: Option<std::time::Instant>) {}
}

#[test]
fn lengths_that_are_refused_ask_for_nothing_more() {
    for (header, body) in [(u32::MAX, 0u64), (0, 0), (2, u64::MAX), (2, 101)] {
        let bytes = [&header.to_le_bytes()[..], &body.to_le_bytes()].concat();
        let mut stream = Recorder { bytes, asked: 0 };
        assert!(matches!(
            frame::read::<Request>(&mut stream, 100).unwrap_err(),
            FrameError::Header { .. } | FrameError::Body { .. }
        ));
        assert_eq!(stream.asked, 12);
    }
}

#[test]
fn a_body_that_never_comes_costs_one_piece() {
    let header = br#"{"op":"sync"}"#;
    let length = (header.len() as u32).to_le_bytes();
    let bytes = [&length[..], &(16u64 << 30).to_le_bytes(), header].concat();
    let mut stream = Recorder { bytes, asked: 0 };
    assert!(matches!(frame::read::<Request>(&mut stream, u64::MAX).unwrap_err(), FrameError::Io(_)));
    assert!(stream.asked <= 2 << 20, "{}", stream.asked);
}

#[test]
fn a_watch_counts_what_is_alive() {
    // The other tests lean on this count, so it must be able to be wrong.
    let watch = std::sync::Arc::new(Watch::default());
    let mut backend = HostMemory::new(&watch);
    let tensor = backend.tensor(&[1], vec![1.0]);
    assert_eq!(watch.live(), 1);
    backend.free(tensor).unwrap();
    assert_eq!(watch.live(), 0);
}
