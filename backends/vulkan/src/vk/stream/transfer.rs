//! Copies: between tensors, from the host to the device, and back.

use std::sync::Arc;

use modelbench_contract::{BackendError, ErrorKind};
use vulkano::command_buffer::{BufferCopy, CopyBufferInfo};

use super::{Fault, Part, STAGING, Stream};

impl Stream {
    /// Records a copy of bytes; the parts are equally long and do not overlap.
    pub(crate) fn copy(&mut self, from: &Part, to: &Part) -> Result<(), Fault> {
        self.ready()?;
        if from.len != to.len {
            let text = format!("{} bytes into {}", from.len, to.len);
            return Err(Fault::Invalid { call: "a copy", text });
        }
        self.own(from)?;
        self.own(to)?;
        self.order(&[from.span()], &[to.span()])?;
        self.record_copy(from.buffer.whole(), from.offset, to.buffer.whole(), to.offset, from.len)?;
        self.held.extend([Arc::clone(&from.buffer), Arc::clone(&to.buffer)]);
        self.noted()
    }

    /// Hands bytes over to the device; waits only when much is on its way already.
    pub(crate) fn upload(&mut self, bytes: &[u8], to: &Part) -> Result<(), Fault> {
        self.ready()?;
        self.own(to)?;
        if bytes.len() as u64 > to.len {
            let text = format!("{} bytes into {}", bytes.len(), to.len);
            return Err(Fault::Invalid { call: "an upload", text });
        }
        let mut offset = to.offset;
        for chunk in bytes.chunks(STAGING as usize) {
            let len = chunk.len() as u64;
            if self.staged + len > STAGING {
                self.finish()?;
            }
            let at = self.staged;
            // SAFETY: `staged` only grows until everything submitted is done, so that no command uses these bytes.
            unsafe { self.upload.write(at, chunk)? };
            self.staged = (at + len).next_multiple_of(4);
            let source = self.upload.whole();
            self.order(&[self.upload.span(at, len)], &[to.buffer.span(offset, len)])?;
            self.record_copy(source, at, to.buffer.whole(), offset, len)?;
            offset += len;
        }
        self.held.push(Arc::clone(&to.buffer));
        self.noted()
    }

    /// Waits for everything and takes bytes back.
    pub(crate) fn download(&mut self, from: &Part) -> Result<Vec<u8>, Fault> {
        self.ready()?;
        self.own(from)?;
        let mut bytes = Vec::new();
        let size = usize::try_from(from.len).unwrap_or(usize::MAX);
        bytes.try_reserve_exact(size).map_err(|_| {
            BackendError::new(ErrorKind::ResourceExhausted, format!("no host memory for {size} bytes"))
        })?;
        let mut done = 0;
        while done < from.len {
            let len = (from.len - done).min(STAGING);
            let target = self.download.whole();
            let spans = (from.buffer.span(from.offset + done, len), self.download.span(0, len));
            self.order(&[spans.0], &[spans.1])?;
            self.record_copy(from.buffer.whole(), from.offset + done, target, 0, len)?;
            self.held.push(Arc::clone(&from.buffer));
            self.finish()?;
            // SAFETY: everything is done, and `submit` ends with a barrier towards the host.
            unsafe { self.download.read(0, len, &mut bytes)? };
            done += len;
        }
        Ok(bytes)
    }

    fn record_copy(
        &mut self,
        from: vulkano::buffer::Subbuffer<[u8]>,
        from_at: u64,
        to: vulkano::buffer::Subbuffer<[u8]>,
        to_at: u64,
        len: u64,
    ) -> Result<(), Fault> {
        let region =
            BufferCopy { src_offset: from_at, dst_offset: to_at, size: len, ..BufferCopy::default() };
        let info = CopyBufferInfo { regions: [region].into(), ..CopyBufferInfo::buffers(from, to) };
        let recording = self.recording()?;
        // SAFETY: the callers have checked both ranges and recorded the barrier that they need; both buffers have the
        // usage for it, and stay alive until the commands are done.
        unsafe { recording.copy_buffer_unchecked(&info) };
        Ok(())
    }
}
