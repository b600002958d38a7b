//! Time on the device, kernel by kernel, as the API's timestamps tell it.

use std::collections::BTreeMap;
use std::sync::Arc;

use vulkano::command_buffer::RecordingCommandBuffer;
use vulkano::query::{QueryPool, QueryPoolCreateInfo, QueryResultFlags, QueryType};
use vulkano::sync::PipelineStage;

use super::{Device, Fault, Kernel};

/// Kernels in one submission that are timed.
pub(super) const MOST_TIMED: u32 = 1024;

/// Calls and nanoseconds on the device, by the kernel's name.
pub type Times = BTreeMap<&'static str, (u64, u64)>;

/// The timestamps of one submission.
#[derive(Debug)]
pub(super) struct Timer {
    pool: Arc<QueryPool>,
    kernels: Vec<Kernel>,
}

impl Timer {
    /// A timer for the command buffer that is recorded.
    pub(super) fn begin(device: &Device, recording: &mut RecordingCommandBuffer) -> Result<Timer, Fault> {
        let count = 2 * MOST_TIMED;
        let info = QueryPoolCreateInfo {
            query_count: count,
            ..QueryPoolCreateInfo::query_type(QueryType::Timestamp)
        };
        let pool = QueryPool::new(Arc::clone(device.logical()), info)
            .map_err(Fault::checked("vkCreateQueryPool"))?;
        // SAFETY: the pool is new, of this device, and outlives the commands beside them.
        unsafe { recording.reset_query_pool_unchecked(&pool, 0..count) };
        Ok(Timer { pool, kernels: Vec::new() })
    }

    /// True if another kernel would find no place.
    pub(super) fn full(&self) -> bool {
        self.kernels.len() as u32 >= MOST_TIMED
    }

    /// A timestamp before (`end` 0) or after (1) the kernel that is recorded next or was recorded last.
    pub(super) fn stamp(&mut self, recording: &mut RecordingCommandBuffer, kernel: Kernel, end: u32) {
        if self.full() {
            return;
        }
        let query = 2 * self.kernels.len() as u32 + end;
        // SAFETY: the query is inside the pool, was reset, and is written once.
        unsafe { recording.write_timestamp_unchecked(&self.pool, query, PipelineStage::BottomOfPipe) };
        if end == 1 {
            self.kernels.push(kernel);
        }
    }

    /// Adds the times of a finished submission; `period` is the length of a tick in nanoseconds.
    pub(super) fn collect(&self, period: f32, times: &mut Times) -> Result<(), Fault> {
        let count = 2 * self.kernels.len();
        if count == 0 {
            return Ok(());
        }
        let mut ticks = vec![0u64; count];
        self.pool
            .get_results(0..count as u32, &mut ticks, QueryResultFlags::WAIT)
            .map_err(Fault::checked("vkGetQueryPoolResults"))?;
        for (kernel, ticks) in self.kernels.iter().zip(ticks.as_chunks::<2>().0) {
            let (calls, spent) = times.entry(kernel.name()).or_default();
            *calls += 1;
            *spent += (ticks[1].saturating_sub(ticks[0]) as f64 * f64::from(period)) as u64;
        }
        Ok(())
    }
}
