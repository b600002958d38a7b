//! The command line: what may be written, not what it does.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use modelbench_evidence::mode::Mode;

use super::args_attest::{ChallengeCommand, CountersignArgs, DiffArgs, WaiverCommand};
use super::args_backend::BackendArgs;
use super::exit;

/// Loads an ML compute backend by name, checks it against golden suites and the CPU reference, proves that the
/// reference did not do the work, and writes a signed support row.
///
/// Every option may be written with one dash or two: -backend NAME, --backend=NAME.
#[derive(Debug, Parser)]
#[command(name = "modelbench", version, after_help = exit::HELP, args_conflicts_with_subcommands = true)]
pub(super) struct Cli {
    /// What to do; without one, the conformance run.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// The conformance run.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Options of the conformance run.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// The backend under test.
    #[command(flatten)]
    pub candidate: BackendArgs,
    /// Fail with exit code 3 unless it is shown that the CPU reference did not do the work
    #[arg(long)]
    pub require_non_reference: bool,
    /// As -require-non-reference, and fail too if the device is a program that runs on the CPU (llvmpipe, WARP, SwiftShader)
    #[arg(long)]
    pub require_hardware: bool,
    /// ci: known failures and retries are allowed, and the row says PARTIAL at most. certify: every case of the kit once,
    /// with inputs that derive from a challenge; only its row says more
    #[arg(long, value_name = "MODE", default_value = "ci", value_parser = parse_mode)]
    pub mode: Mode,
    /// A verifier's challenge (modelbench challenge new), from which the seed derives
    #[arg(long, value_name = "FILE", conflicts_with = "seed")]
    pub challenge: Option<PathBuf>,
    /// Known failures, with reasons and issues; one that passes fails the run [default: expected/<backend>.toml, if there]
    #[arg(long, value_name = "FILE")]
    pub expected: Option<PathBuf>,
    /// A maintainer's signed waiver; may be given several times
    #[arg(long, value_name = "FILE", requires = "maintainer")]
    pub waiver: Vec<PathBuf>,
    /// Public key (SPKI PEM) of a maintainer whose waivers count; may be given several times
    #[arg(long, value_name = "KEY")]
    pub maintainer: Vec<PathBuf>,
    /// How often a case that fails is tried again on a fresh worker; a pass on a retry is shown as one
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=9))]
    pub retries: u32,
    /// Model under test: a Hugging Face folder, a .safetensors or a .gguf file [default: the bundled kjv]
    #[arg(long, value_name = "PATH")]
    pub model: Option<PathBuf>,
    /// Set of suites to run (see: modelbench list suites)
    #[arg(long, value_name = "SET", default_value = "full")]
    pub set: String,
    /// Run only the cases whose id matches; * stays within a segment, ** crosses them. Writes results but no row
    #[arg(long, value_name = "GLOB")]
    pub filter: Option<String>,
    /// Folder for the results and the row [default: reports/runs/<time>-<backend>]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Private key (PKCS#8 PEM, P-256) that signs the row [default: a per-user key, made on first use]
    #[arg(long, value_name = "PEM")]
    pub key: Option<PathBuf>,
    /// Seed of every generated input, decimal or 0x…
    #[arg(long, value_name = "N", default_value = "0x5eed", value_parser = parse_seed)]
    pub seed: u64,
    /// Label that exit code 0 needs [default: Approx or better; for smoke, PARTIAL with no failed case]
    #[arg(long, value_name = "LABEL")]
    pub require: Option<RequiredLabel>,
    /// Suite tree to use in place of the embedded one; the row then shows its digest
    #[arg(long, value_name = "DIR")]
    pub suites: Option<PathBuf>,
    /// Print only the verdict
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
    /// Print the inferred arithmetic of every op, and how its errors lie within their bounds
    #[arg(long, conflicts_with = "quiet")]
    pub numerics: bool,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Labels that `-require` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum RequiredLabel {
    /// Bit-equal to cpu-ref.
    #[value(name = "Reference", alias = "reference")]
    Reference,
    /// Within bounds, by its own arithmetic.
    #[value(name = "Approx", alias = "approx")]
    Approx,
    /// Something is proven, with gaps.
    #[value(name = "PARTIAL", alias = "partial", alias = "Partial")]
    Partial,
}

/// The other things that the program does.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List what there is
    List(ListArgs),
    /// Check a signed row and re-derive every figure in it from results.jsonl
    Verify(VerifyArgs),
    /// Say what changed between two runs: outcomes, bits, errors, caps, environment
    Diff(DiffArgs),
    /// A verifier's nonce, from which a run derives its inputs
    #[command(subcommand)]
    Challenge(ChallengeCommand),
    /// A maintainer's signed excuse for cases of one backend on one kind of device
    #[command(subcommand)]
    Waiver(WaiverCommand),
    /// Say, beside a row, that a run of your own came to the same outcomes
    Countersign(CountersignArgs),
    /// Make a P-256 key pair; an existing file is never overwritten
    Keygen {
        /// Where the private key goes; the public key gets the same name with .pub.pem
        #[arg(long, value_name = "PEM", default_value = "modelbench-key.pem")]
        out: PathBuf,
    },
    /// Say what is available here, what is missing and how to get it
    Doctor,
    /// Say why a case exists, what it allows and how to run it alone
    Explain {
        /// The case's id
        case: String,
        /// Seed of the inputs
        #[arg(long, value_name = "N", default_value = "0x5eed", value_parser = parse_seed)]
        seed: u64,
        /// Suite tree to use in place of the embedded one
        #[arg(long, value_name = "DIR")]
        suites: Option<PathBuf>,
    },
    /// Try every case of a suite tree on wrong answers; write discrimination.toml and the pins of the sets
    BuildSuites {
        /// The tree, a folder with r0/ to r6/ and sets/
        dir: PathBuf,
        /// Seed of the inputs that the cases are tried with
        #[arg(long, value_name = "N", default_value = "0x5eed", value_parser = parse_seed)]
        seed: u64,
    },
    /// Try the kit on its zoo of misbehaving backends: every one must be caught, every allowed variation must pass
    Selftest(SelftestArgs),
    /// Find the order in which a backend adds up products, and say whether it is cpu-ref's
    Fingerprint(FingerprintArgs),
    /// The worker process
    #[command(hide = true)]
    Worker {
        /// Backend to serve
        #[arg(long)]
        backend: String,
        /// Allow self-test backends
        #[arg(long)]
        self_test: bool,
    },
}

/// Options of `verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// Run folder, row.dsse.json or row.sigstore.json
    pub path: PathBuf,
    /// Public key (SPKI PEM) of the signer; without it the key beside the row is used, which proves no identity
    #[arg(long = "pub", value_name = "KEY")]
    pub public: Option<PathBuf>,
    /// A file that the row must be about, by its sha256; give every file of the backend [may be repeated]
    #[arg(long = "subject", value_name = "FILE")]
    pub subjects: Vec<PathBuf>,
    /// The challenge that you posed: the run must have answered it, and its answers are computed again
    #[arg(long, value_name = "FILE", requires = "challenge_key")]
    pub challenge: Option<PathBuf>,
    /// Your public key, which signed the challenge
    #[arg(long, value_name = "KEY", requires = "challenge")]
    pub challenge_key: Option<PathBuf>,
    /// Where used nonces are kept; a nonce counts for one row [default: beside the challenge, with .used]
    #[arg(long, value_name = "FILE", requires = "challenge")]
    pub ledger: Option<PathBuf>,
    /// Public key of a maintainer whose waivers count [may be repeated]
    #[arg(long, value_name = "KEY")]
    pub maintainer: Vec<PathBuf>,
    /// Accept a label above PARTIAL of another version of the kit, whose cases this one cannot check
    #[arg(long)]
    pub other_kit: bool,
    /// Public key of an independent verifier who must have countersigned the row [may be repeated]
    #[arg(long, value_name = "KEY")]
    pub countersigner: Vec<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// What `list` lists.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// backends, suites or cases
    pub what: Listed,
    /// Set whose cases are listed
    #[arg(long, value_name = "SET", default_value = "full")]
    pub set: String,
    /// List only the cases whose id matches
    #[arg(long, value_name = "GLOB")]
    pub filter: Option<String>,
    /// Suite tree to use in place of the embedded one
    #[arg(long, value_name = "DIR")]
    pub suites: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `selftest`.
#[derive(Debug, Args)]
pub(super) struct SelftestArgs {
    /// Try only the behaviours whose name matches
    #[arg(long, value_name = "GLOB", conflicts_with = "write")]
    pub only: Option<String>,
    /// Behaviours that are tried at a time [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub jobs: Option<u8>,
    /// Seed of every generated input, decimal or 0x…
    #[arg(long, value_name = "N", default_value = "0x5eed", value_parser = parse_seed)]
    pub seed: u64,
    /// Fail if what catches each behaviour is not what this file says
    #[arg(long, value_name = "FILE")]
    pub killers: Option<PathBuf>,
    /// Write what catches each behaviour to this file
    #[arg(long, value_name = "FILE")]
    pub write: Option<PathBuf>,
    /// Suite tree to use in place of the embedded one
    #[arg(long, value_name = "DIR")]
    pub suites: Option<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Options of `fingerprint`.
///
/// Products whose terms are 1, but for two huge ones that cancel, tell how many terms are added after these two met; from
/// many such counts follows the tree of the sum.
#[derive(Debug, Args)]
pub(super) struct FingerprintArgs {
    /// The backend.
    #[command(flatten)]
    pub candidate: BackendArgs,
    /// Seed of the probes, decimal or 0x…
    #[arg(long, value_name = "N", default_value = "0x5eed", value_parser = parse_seed)]
    pub seed: u64,
    /// Print one JSON object on standard output, with the full trees
    #[arg(long)]
    pub json: bool,
}

/// Things that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Listed {
    /// Backends known here.
    Backends,
    /// Suite files and sets.
    Suites,
    /// Cases of a set.
    Cases,
}

fn parse_mode(text: &str) -> Result<Mode, String> {
    [Mode::Ci, Mode::Certify]
        .into_iter()
        .find(|mode| mode.as_str() == text)
        .ok_or_else(|| "expected ci or certify".to_owned())
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a whole number from 0 to 2^64-1, decimal or 0x…"))
}

/// Turns `-backend` into `--backend`, so that both spellings work everywhere. Single letters stay as they are, and so
/// does everything after `--`.
pub(super) fn normalise(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut verbatim = false;
    args.into_iter()
        .map(|arg| {
            verbatim |= arg == "--";
            let single = arg.to_str().is_some_and(|text| {
                let bytes = text.as_bytes();
                bytes.len() > 2 && bytes[0] == b'-' && bytes[1].is_ascii_alphabetic() && bytes[2] != b'='
            });
            if single && !verbatim {
                let mut double = OsString::from("-");
                double.push(&arg);
                double
            } else {
                arg
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_one() {
        let both = ["modelbench -backend candle -set=smoke -h", "modelbench --backend candle --set=smoke -h"];
        let [one, two] = both.map(|line| normalise(line.split(' ').map(OsString::from)));
        assert_eq!(one, two);
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
