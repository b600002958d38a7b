//! Serving a mock: the one behaviour that needs the transport sits here.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use modelbench_contract::wire::{ServeError, ServeOptions, Transport, serve};

use crate::mock::Mock;

/// Not the start of a frame: read as a length, the first four bytes are far above every limit.
const GARBAGE: &[u8] = b"this is not the protocol, whatever came before it\n";

/// A transport that sends garbage in place of the next frame whenever its mock asks for it.
#[derive(Debug)]
pub struct GarblingTransport<T> {
    inner: T,
    armed: Option<Arc<AtomicBool>>,
}

impl<T: Transport> Transport for GarblingTransport<T> {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let garble = self.armed.as_ref().is_some_and(|armed| armed.swap(false, Ordering::Relaxed));
        self.inner.send(if garble { GARBAGE } else { bytes })
    }
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.inner.receive(buffer)
    }
    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.inner.set_deadline(deadline);
    }
}

impl Mock {
    /// The transport that this mock must be served over.
    pub fn transport<T: Transport>(&self, inner: T) -> GarblingTransport<T> {
        GarblingTransport { inner, armed: self.twist.garbling() }
    }

    /// Serves this mock until the host says bye or closes the stream.
    ///
    /// # Errors
    /// As [`serve`].
    pub fn serve<T: Transport>(mut self, transport: T, options: ServeOptions) -> Result<(), ServeError> {
        let mut transport = self.transport(transport);
        serve(&mut self, &mut transport, options)
    }
}
