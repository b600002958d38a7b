//! Sinks: everything that is printed or written.

mod numerics;
mod progress;
mod record;
mod style;
mod summary;
mod terminal;

pub use numerics::print as print_numerics;
pub use progress::Progress;
pub use record::RecordSink;
pub use style::{Paint, Style};
pub use summary::{Summary, short};
pub use terminal::{describe, print, verdict};
