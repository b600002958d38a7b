//! The command line. Only here are flags parsed, errors turned into text and exit codes chosen.

mod args;
mod args_attest;
mod args_backend;
mod build_suites;
mod challenge;
mod countersign;
mod diff;
mod doctor;
mod exit;
mod explain;
mod failure;
mod fingerprint;
mod keygen;
mod list;
mod load;
mod run;
mod selftest;
mod told;
mod verify;
mod waiver;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};
use failure::Failure;

/// Parses the arguments, does what they say, and gives the exit code.
pub fn main() -> ExitCode {
    let cli = Cli::parse_from(args::normalise(std::env::args_os()));
    let mut out = std::io::stdout();
    let done = match &cli.command {
        None => run::run(&cli.run),
        Some(Command::List(args)) => list::run(args, &mut out),
        Some(Command::Verify(args)) => verify::run(args, &mut out),
        Some(Command::Diff(args)) => diff::run(args, &mut out),
        Some(Command::Challenge(command)) => challenge::run(command, &mut out),
        Some(Command::Waiver(command)) => waiver::run(command, &mut out),
        Some(Command::Countersign(args)) => countersign::run(args, &mut out),
        Some(Command::Keygen { out: path }) => keygen::run(path, &mut out),
        Some(Command::Doctor) => doctor::run(&mut out),
        Some(Command::BuildSuites { dir, seed }) => build_suites::run(dir, *seed, &mut out),
        Some(Command::Explain { case, seed, suites }) => {
            explain::run(case, *seed, suites.as_deref(), &mut out)
        }
        Some(Command::Selftest(args)) => selftest::run(args, &mut out),
        Some(Command::Fingerprint(args)) => fingerprint::run(args, &mut out),
        Some(Command::Worker { backend, self_test }) => return worker::run(backend, *self_test),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        // As if SIGPIPE had ended the program: never 0, since nobody saw the verdict.
        Err(Failure { error, .. }) if broken_pipe(&error) => ExitCode::from(128 + 13),
        Err(Failure { code, error }) => {
            eprintln!("error: {error:#}");
            ExitCode::from(code)
        }
    }
}

/// True if the reader of our output left, as `head` does.
fn broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
