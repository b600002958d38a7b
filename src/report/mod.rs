//! Sinks: everything that is printed or written.

mod progress;
mod record;
mod style;
mod summary;
mod terminal;

pub use progress::Progress;
pub use record::RecordSink;
pub use style::{Paint, Style};
pub use summary::{Summary, short};
pub use terminal::{describe, print, verdict};
