//! The one stream of commands: recorded until somebody must wait, with a barrier only where two commands meet.

use std::sync::Arc;

use ash::vk;
use vulkano::VulkanObject;
use vulkano::command_buffer::{
    BufferCopy, CommandBuffer, CommandBufferBeginInfo, CommandBufferLevel, CommandBufferUsage,
    CopyBufferInfo, RecordingCommandBuffer,
};
use vulkano::pipeline::PipelineBindPoint;
use vulkano::sync::fence::{Fence, FenceCreateInfo};

use super::kernel::Kernels;
use super::sets::Sets;
use super::timing::{Timer, Times};
use super::{Buffer, Device, Fault, Kernel, Kind, PUSH_WORDS, barriers};
use crate::hazard::{Hazards, Span};
use modelbench_contract::{BackendError, ErrorKind};

/// Bytes that the host can hand over, or take back, before it must wait.
const STAGING: u64 = 8 << 20;
/// Commands after which the device is given what there is, so that it does not idle.
const MOST_RECORDED: usize = 4096;
/// Submissions in flight after which recording waits, so that a caller who never waits is held back.
const MOST_IN_FLIGHT: usize = 8;

/// Some bytes of a buffer.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    /// The buffer.
    pub(crate) buffer: Arc<Buffer>,
    /// First byte; for a kernel a multiple of [`crate::pool::ALIGNMENT`].
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl Part {
    pub(super) fn span(&self) -> Span {
        self.buffer.span(self.offset, self.len)
    }
}

/// Records, submits and waits.
#[derive(Debug)]
pub(crate) struct Stream {
    device: Arc<Device>,
    kernels: Kernels,
    recording: Option<RecordingCommandBuffer>,
    recorded: usize,
    in_flight: Vec<(CommandBuffer, Fence, Option<Timer>)>,
    timer: Option<Timer>,
    /// Time on the device by kernel, if that is asked for.
    pub(crate) times: Times,
    hazards: Hazards,
    sets: Sets,
    /// Buffers that recorded commands use.
    held: Vec<Arc<Buffer>>,
    upload: Buffer,
    staged: u64,
    download: Buffer,
    kernels_recorded: u64,
    /// Kernels given to the device so far.
    pub(crate) dispatches: u64,
    /// Submissions so far.
    pub(crate) submissions: u64,
    /// Barriers so far.
    pub(crate) barriers: u64,
    lost: Option<String>,
}

impl Stream {
    /// A stream of its own for the device's queue.
    pub(crate) fn new(device: Arc<Device>) -> Result<Stream, Fault> {
        let kernels = Kernels::new(Arc::clone(device.logical()), Arc::clone(&device.layout));
        let upload = Buffer::new(&device, STAGING, Kind::Upload)?;
        let download = Buffer::new(&device, STAGING, Kind::Download)?;
        Ok(Stream {
            device,
            kernels,
            recording: None,
            recorded: 0,
            in_flight: Vec::new(),
            timer: None,
            times: Times::new(),
            hazards: Hazards::default(),
            sets: Sets::default(),
            held: Vec::new(),
            upload,
            staged: 0,
            download,
            kernels_recorded: 0,
            dispatches: 0,
            submissions: 0,
            barriers: 0,
            lost: None,
        })
    }

    /// Records a kernel over `groups` groups of `lanes`; binding `kernel.written()` is written, the others are read.
    ///
    /// # Errors
    /// `ResourceExhausted` if the device cannot count so many groups; what Vulkan refuses.
    pub(crate) fn dispatch(
        &mut self,
        kernel: Kernel,
        (lanes, unpack_is_exact): (u32, bool),
        parts: &[&Part],
        push: [u32; PUSH_WORDS],
        groups: u64,
    ) -> Result<(), Fault> {
        self.ready()?;
        let [most_x, most_y] = self.device.facts().groups.map(u64::from);
        let x = groups.clamp(1, most_x);
        let y = groups.div_ceil(x).max(1);
        if y > most_y {
            let text = format!("{groups} groups of {kernel:?}; the device counts to {most_x} times {most_y}");
            return Err(BackendError::new(ErrorKind::ResourceExhausted, text).into());
        }
        for part in parts {
            part.buffer.check(part.offset, part.len)?;
        }
        let set = self.sets.get(&self.device, kernel, parts)?;
        let pipeline = Arc::clone(self.kernels.get(kernel, lanes, unpack_is_exact)?);
        let written = kernel.written();
        let spans = |write: bool| -> Vec<Span> {
            let chosen = parts.iter().enumerate().filter(|(i, _)| (*i == written) == write);
            chosen.map(|(_, part)| part.span()).collect()
        };
        self.order(&spans(false), &spans(true))?;
        let layout = Arc::clone(self.kernels.layout());
        if self.timer.as_ref().is_some_and(Timer::full) {
            self.submit()?;
        }
        self.recording()?;
        let Some(recording) = self.recording.as_mut() else { return Err(no_recording()) };
        if let Some(timer) = &mut self.timer {
            timer.stamp(recording, kernel, 0);
        }
        // SAFETY: pipeline, set and layout belong together and to this device; the set's ranges lie inside buffers that
        // `self.held` keeps alive until the commands are done; hazards have their barrier; the group counts are legal.
        unsafe {
            recording.bind_pipeline_compute_unchecked(&pipeline);
            recording.bind_descriptor_sets_unchecked(
                PipelineBindPoint::Compute,
                &layout,
                0,
                &[set.as_raw()],
                &[],
            );
            recording.push_constants_unchecked(&layout, 0, &push);
            recording.dispatch_unchecked([x as u32, y as u32, 1]);
        }
        if let Some(timer) = &mut self.timer {
            timer.stamp(recording, kernel, 1);
        }
        self.held.extend(parts.iter().map(|part| Arc::clone(&part.buffer)));
        self.kernels_recorded += 1;
        self.noted()
    }

    /// Records a copy of bytes; the parts are equally long and do not overlap.
    pub(crate) fn copy(&mut self, from: &Part, to: &Part) -> Result<(), Fault> {
        self.ready()?;
        if from.len != to.len {
            let text = format!("{} bytes into {}", from.len, to.len);
            return Err(Fault::Invalid { call: "a copy", text });
        }
        self.copy_between(&from.buffer, from.offset, &to.buffer, to.offset, from.len)?;
        self.held.extend([Arc::clone(&from.buffer), Arc::clone(&to.buffer)]);
        self.noted()
    }

    /// Hands bytes over to the device; waits only when much is on its way already.
    pub(crate) fn upload(&mut self, bytes: &[u8], to: &Part) -> Result<(), Fault> {
        self.ready()?;
        to.buffer.check(to.offset, to.len)?;
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
        from.buffer.check(from.offset, from.len)?;
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

    /// Gives the device what is recorded, without waiting.
    pub(crate) fn submit(&mut self) -> Result<(), Fault> {
        let Some(mut recording) = self.recording.take() else { return Ok(()) };
        // SAFETY: the barrier names stages and accesses of any queue; recording is complete.
        let commands = unsafe {
            recording.pipeline_barrier_unchecked(&barriers::towards_host());
            recording.end()
        };
        let commands = commands.map_err(Fault::vulkan("vkEndCommandBuffer"))?;
        let device = self.device.logical();
        let fence = Fence::new(Arc::clone(device), FenceCreateInfo::default())
            .map_err(Fault::checked("vkCreateFence"))?;
        let handles = [commands.handle()];
        let info = [vk::SubmitInfo::default().command_buffers(&handles)];
        let fns = device.fns();
        let queue = &self.device.queue;
        // SAFETY: queue, command buffer and fence belong to this device; the lock of `with` keeps the queue to this
        // thread; commands, fence and every buffer stay alive in `in_flight` and `held` until the fence is signalled.
        let result = queue.with(|_locked| unsafe {
            (fns.v1_0.queue_submit)(queue.handle(), 1, info.as_ptr(), fence.handle())
        });
        self.submissions += 1;
        self.dispatches += std::mem::take(&mut self.kernels_recorded);
        self.recorded = 0;
        self.hazards.clear();
        match result.result() {
            Ok(()) => self.in_flight.push((commands, fence, self.timer.take())),
            Err(error) => return Err(self.failed(Fault::vulkan("vkQueueSubmit")(error.into()))),
        }
        Ok(())
    }

    /// Submits and waits until the device has done everything.
    ///
    /// # Errors
    /// `DeviceLost`, then and ever after; what the validation layer says.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        self.ready()?;
        self.submit()?;
        for (_, fence, _) in &self.in_flight {
            if let Err(error) = fence.wait(None) {
                return Err(self.failed(Fault::vulkan("vkWaitForFences")(error)));
            }
        }
        for (_, _, timer) in self.in_flight.drain(..) {
            if let (Some(timer), Some(tick)) = (timer, self.device.tick) {
                timer.collect(tick, &mut self.times)?;
            }
        }
        self.held.clear();
        self.staged = 0;
        self.sets.trim();
        self.device.messages.check()
    }

    /// Forgets everything that refers to buffers which are about to go; call it right after [`Stream::finish`].
    pub(crate) fn forget_buffers(&mut self) {
        self.sets.clear();
    }

    /// Refuses work on a lost device.
    fn ready(&self) -> Result<(), Fault> {
        match &self.lost {
            None => Ok(()),
            Some(how) => {
                let text = format!("the device was lost before ({how}); only a new worker helps");
                Err(BackendError::new(ErrorKind::DeviceLost, text).into())
            }
        }
    }

    fn failed(&mut self, fault: Fault) -> Fault {
        if fault.lost() {
            self.lost = Some(fault.to_string());
        }
        fault
    }

    /// Counts a command.
    fn noted(&mut self) -> Result<(), Fault> {
        self.recorded += 1;
        if self.recorded >= MOST_RECORDED {
            self.submit()?;
        }
        if self.in_flight.len() > MOST_IN_FLIGHT { self.finish() } else { Ok(()) }
    }

    /// The command buffer; a new one waits for everything before it.
    fn recording(&mut self) -> Result<&mut RecordingCommandBuffer, Fault> {
        if self.recording.is_none() {
            let info = CommandBufferBeginInfo {
                usage: CommandBufferUsage::OneTimeSubmit,
                ..CommandBufferBeginInfo::default()
            };
            let family = self.device.queue.queue_family_index();
            let allocator = Arc::clone(&self.device.commands);
            let mut begun = RecordingCommandBuffer::new(allocator, family, CommandBufferLevel::Primary, info)
                .map_err(Fault::checked("vkBeginCommandBuffer"))?;
            // SAFETY: the barrier names stages and accesses of any queue.
            unsafe { begun.pipeline_barrier_unchecked(&barriers::between()) };
            if self.device.tick.is_some() {
                self.timer = Some(Timer::begin(&self.device, &mut begun)?);
            }
            self.recording = Some(begun);
        }
        self.recording.as_mut().ok_or_else(no_recording)
    }

    /// Records a barrier if a command that reads and writes such bytes needs one.
    fn order(&mut self, reads: &[Span], writes: &[Span]) -> Result<(), Fault> {
        if self.hazards.barrier_before(reads, writes) && !self.device.without_barriers {
            let recording = self.recording()?;
            // SAFETY: the barrier names stages and accesses that this queue has.
            unsafe { recording.pipeline_barrier_unchecked(&barriers::between()) };
            self.barriers += 1;
        }
        Ok(())
    }

    fn copy_between(
        &mut self,
        from: &Arc<Buffer>,
        from_at: u64,
        to: &Arc<Buffer>,
        to_at: u64,
        len: u64,
    ) -> Result<(), Fault> {
        from.check(from_at, len)?;
        to.check(to_at, len)?;
        self.order(&[from.span(from_at, len)], &[to.span(to_at, len)])?;
        self.record_copy(from.whole(), from_at, to.whole(), to_at, len)
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

impl Drop for Stream {
    fn drop(&mut self) {
        // Buffers must outlive the commands that use them; there is nobody to tell about an error.
        for (_, fence, _) in &self.in_flight {
            let _ = fence.wait(None);
        }
    }
}

fn no_recording() -> Fault {
    Fault::Invalid { call: "recording", text: "no command buffer".to_owned() }
}
