//! `modelbench worker`: the process that holds a backend. Started by the kit, never by people.

use std::process::ExitCode;

use super::exit;
use crate::bundled::{self, Bundled, MOCK_PREFIX};
use crate::worker::Channel;

pub(super) fn run(name: &str, self_test: bool) -> ExitCode {
    let channel = match Channel::enter() {
        Ok(channel) => channel,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    match Bundled::find(name) {
        Some(backend) => backend.serve(channel),
        None if self_test && name.starts_with(MOCK_PREFIX) => bundled::serve_mock(name, channel),
        None => {
            eprintln!("error: no backend {name:?} in this binary");
            ExitCode::from(exit::USAGE)
        }
    }
}
