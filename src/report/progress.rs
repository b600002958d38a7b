//! The progress bar of a run, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::runner::{Event, Sink};

/// A bar with the rung and the case that runs now, on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    failed: u64,
}

impl Progress {
    /// A bar that appears with the first event.
    pub fn new() -> Progress {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        Progress { bar, failed: 0 }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Sink for Progress {
    fn event(&mut self, event: &Event<'_>) -> std::io::Result<()> {
        match event {
            Event::Started { cases, .. } => {
                self.bar.set_length(*cases as u64);
                if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {elapsed}  {wide_msg}")
                {
                    self.bar.set_style(style);
                }
            }
            Event::CaseStarted { id } => {
                let failed =
                    if self.failed > 0 { format!("{} failed  ", self.failed) } else { String::new() };
                self.bar.set_message(format!("{failed}{id}"));
            }
            Event::CaseFinished { record } => {
                use modelbench_evidence::outcome::Verdict;
                self.failed += u64::from(record.verdict == Verdict::Regression);
                self.bar.inc(1);
            }
            Event::Measuring => self.bar.set_message("measuring where the work was done"),
            Event::Measured { .. } => {}
            Event::WorkerReplaced { workers } => {
                self.bar.println(format!("the worker died; worker {workers} goes on"));
            }
        }
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
