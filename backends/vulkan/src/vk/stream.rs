//! The one stream of commands: recorded until somebody must wait, with a barrier only where two commands meet.
//!
//! Why that is enough, by the specification:
//! - Within a submission [`Hazards`] asks for a barrier wherever two commands touch the same bytes and one of them writes.
//! - Between submissions nothing is remembered, and nothing needs to be: every command buffer begins with the same
//!   barrier, and the first scope of a barrier outside a render pass is every command earlier in submission order, which
//!   crosses command buffers and submissions of one queue. There is one queue, and one thread has it.
//! - From host to device: `vkQueueSubmit` itself makes visible what the host wrote into coherent mapped memory before it.
//!   Bytes of the staging ring are written once between two waits (`staged` only grows), so the host never writes what a
//!   command may still read; after a wait on every fence, that a read comes before a write needs no memory dependency.
//! - From device to host: a fence alone makes nothing visible to the host, so every command buffer ends with a barrier
//!   towards it. The next submission, which writes the same download buffer, is ordered after the host's reading by
//!   `vkQueueSubmit`, and after the earlier copy by the barrier in front.
//! - Memory that is freed while recorded commands use it is only ever given to later commands of this stream, which meet
//!   the earlier ones as above; it goes back to the device right after a wait, when nothing is recorded.

#[cfg(test)]
mod injected;
mod transfer;

use std::sync::Arc;

use ash::vk;
use vulkano::VulkanObject;
use vulkano::command_buffer::{
    CommandBuffer, CommandBufferBeginInfo, CommandBufferLevel, CommandBufferUsage, RecordingCommandBuffer,
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
    /// The next submission fails as if the device had no memory for it.
    #[cfg(test)]
    pub(crate) refused: bool,
    /// The next submission begins without its barrier.
    #[cfg(test)]
    pub(crate) unordered: bool,
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
            #[cfg(test)]
            refused: false,
            #[cfg(test)]
            unordered: false,
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
            self.own(part)?;
        }
        // Before hazards are looked at, since a submission forgets them.
        if self.timer.as_ref().is_some_and(Timer::full) {
            self.submit()?;
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

    /// Gives the device what is recorded, without waiting.
    ///
    /// # Errors
    /// `DeviceLost`, then and ever after, whatever went wrong: results that were promised will never be there.
    pub(crate) fn submit(&mut self) -> Result<(), Fault> {
        let Some(recording) = self.recording.take() else { return Ok(()) };
        self.submissions += 1;
        self.dispatches += std::mem::take(&mut self.kernels_recorded);
        self.recorded = 0;
        self.hazards.clear();
        self.give(recording).map_err(|fault| {
            let text =
                format!("recorded commands never reached the device ({fault}); only a new worker helps");
            self.lost = Some(fault.to_string());
            BackendError::new(ErrorKind::DeviceLost, text).into()
        })
    }

    fn give(&mut self, mut recording: RecordingCommandBuffer) -> Result<(), Fault> {
        #[cfg(test)]
        if std::mem::take(&mut self.refused) {
            return Err(Fault::vulkan("a submission")(vulkano::VulkanError::OutOfDeviceMemory));
        }
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
        result.result().map_err(|error| Fault::vulkan("vkQueueSubmit")(error.into()))?;
        self.in_flight.push((commands, fence, self.timer.take()));
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

    /// Refuses a range outside its buffer, and memory of another instance: Vulkan has no call for two devices.
    fn own(&self, part: &Part) -> Result<(), Fault> {
        part.buffer.check(part.offset, part.len)?;
        if part.buffer.is_of(&self.device) {
            return Ok(());
        }
        let text = "an operand was made by another instance of this backend; expected one of this instance: read it there and upload it here";
        Err(BackendError::invalid(text).into())
    }

    /// Refuses work on a lost device.
    pub(crate) fn ready(&self) -> Result<(), Fault> {
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
            #[cfg(test)]
            let ordered = !std::mem::take(&mut self.unordered);
            #[cfg(not(test))]
            let ordered = true;
            if ordered {
                // SAFETY: the barrier names stages and accesses of any queue.
                unsafe { begun.pipeline_barrier_unchecked(&barriers::between()) };
            }
            if self.device.tick.is_some() {
                self.timer = Some(Timer::begin(&self.device, &mut begun)?);
            }
            self.recording = Some(begun);
        }
        self.recording.as_mut().ok_or_else(no_recording)
    }

    /// Records a barrier if a command that reads and writes such bytes needs one.
    fn order(&mut self, reads: &[Span], writes: &[Span]) -> Result<(), Fault> {
        if self.hazards.barrier_before(reads, writes) {
            let recording = self.recording()?;
            // SAFETY: the barrier names stages and accesses that this queue has.
            unsafe { recording.pipeline_barrier_unchecked(&barriers::between()) };
            self.barriers += 1;
        }
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
