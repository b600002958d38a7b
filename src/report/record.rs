//! The record as a sink: a line of `results.jsonl` for every case, as it happens.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use modelbench_evidence::results::ResultsWriter;

use crate::runner::{Event, Sink};

/// Name of the record while the run goes on. An interrupted run leaves this, never a row.
const UNFINISHED: &str = "results.unfinished.jsonl";

/// Writes the record to the run folder.
#[derive(Debug)]
pub struct RecordSink {
    path: PathBuf,
    file: Option<File>,
    writer: Option<ResultsWriter<File>>,
}

impl RecordSink {
    /// Creates the unfinished record in an existing folder.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(folder: &Path) -> io::Result<RecordSink> {
        let path = folder.join(UNFINISHED);
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
        Ok(RecordSink { path, file: Some(file), writer: None })
    }

    /// Ends the record and gives its bytes; the unfinished file is gone afterwards.
    ///
    /// # Errors
    /// If nothing was recorded, or the file cannot be read back.
    pub fn finish(mut self, finished: &str) -> io::Result<Vec<u8>> {
        let writer = self.writer.take().ok_or_else(|| io::Error::other("the run ended before it started"))?;
        writer.finish(finished).map_err(io::Error::other)?;
        let bytes = std::fs::read(&self.path)?;
        std::fs::remove_file(&self.path)?;
        Ok(bytes)
    }
}

impl Sink for RecordSink {
    fn event(&mut self, event: &Event<'_>) -> io::Result<()> {
        match event {
            Event::Started { header, .. } => {
                let file = self.file.take().ok_or_else(|| io::Error::other("the run started twice"))?;
                self.writer = Some(ResultsWriter::new(file, header).map_err(io::Error::other)?);
            }
            Event::CaseFinished { record } => {
                let writer =
                    self.writer.as_mut().ok_or_else(|| io::Error::other("a case before the header"))?;
                writer.case(record).map_err(io::Error::other)?;
            }
            Event::Measured { measured } => {
                let writer =
                    self.writer.as_mut().ok_or_else(|| io::Error::other("measurements before the header"))?;
                writer.measured(measured).map_err(io::Error::other)?;
            }
            Event::CaseStarted { .. } | Event::WorkerReplaced { .. } | Event::Measuring => {}
        }
        Ok(())
    }
}
