//! Flags of the commands about signed evidence: challenges, waivers, countersignatures, and the comparison of runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use modelbench_evidence::ttl;

/// What can be done with a challenge.
#[derive(Debug, Subcommand)]
pub(super) enum ChallengeCommand {
    /// Sign a random nonce for one backend file and a short time
    New(NewChallenge),
    /// Print a challenge, and exit with 7 unless it is open now
    Show(ShowArgs),
}

/// Options of `challenge new`.
#[derive(Debug, Args)]
pub(super) struct NewChallenge {
    /// File of the backend that the challenge is for; for a bundled backend the modelbench binary
    #[arg(long, value_name = "FILE")]
    pub subject: PathBuf,
    /// For how long it is open: 30m, 24h, 7d; at most 30d
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_ttl)]
    pub ttl: Duration,
    /// The verifier's private key (PKCS#8 PEM, P-256); not the key that will sign the row
    #[arg(long, value_name = "PEM")]
    pub key: PathBuf,
    /// Where the challenge goes; an existing file is never overwritten
    #[arg(long, value_name = "FILE", default_value = "challenge.dsse.json")]
    pub out: PathBuf,
}

/// What can be done with a waiver.
#[derive(Debug, Subcommand)]
pub(super) enum WaiverCommand {
    /// Sign an excuse; the cases stay in every count, and the row says that they are waived
    New(NewWaiver),
    /// Print a waiver, and exit with 7 unless it holds now
    Show(ShowArgs),
}

/// Options of `waiver new`.
#[derive(Debug, Args)]
pub(super) struct NewWaiver {
    /// Cases that are excused; * stays within a segment, ** crosses them
    #[arg(long, value_name = "GLOB")]
    pub cases: String,
    /// Id of the backend
    #[arg(long, value_name = "ID")]
    pub backend: String,
    /// Hardware name of the device; * stands for any text
    #[arg(long, value_name = "GLOB")]
    pub device: String,
    /// Address of the public issue, https://…
    #[arg(long, value_name = "URL")]
    pub issue: String,
    /// Why the cases are excused, in one line
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// For how long: 30m, 24h, 90d; at most 366d
    #[arg(long, value_name = "TIME", value_parser = parse_ttl)]
    pub ttl: Duration,
    /// A maintainer's private key (PKCS#8 PEM, P-256); not the key that signs the row
    #[arg(long, value_name = "PEM")]
    pub key: PathBuf,
    /// Where the waiver goes; an existing file is never overwritten
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Suite tree to find the cases in, in place of the embedded one
    #[arg(long, value_name = "DIR")]
    pub suites: Option<PathBuf>,
}

/// Options of `challenge show` and `waiver show`.
#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The file
    pub file: PathBuf,
    /// Public key (SPKI PEM) of the signer; without it the signature is not checked
    #[arg(long = "pub", value_name = "KEY")]
    pub public: Option<PathBuf>,
    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// Options of `countersign`.
#[derive(Debug, Args)]
pub(super) struct CountersignArgs {
    /// The row to countersign: a run folder or a row file
    pub row: PathBuf,
    /// Your own run of the same backend: a run folder or a row file, signed with your key
    pub rerun: PathBuf,
    /// Your private key (PKCS#8 PEM, P-256)
    #[arg(long, value_name = "PEM")]
    pub key: PathBuf,
    /// Public key (SPKI PEM) of the row's signer
    #[arg(long = "pub", value_name = "KEY")]
    pub public: PathBuf,
}

/// Options of `diff`.
#[derive(Debug, Args)]
pub(super) struct DiffArgs {
    /// A run folder, its results.jsonl, or a row file with results.jsonl beside it
    pub first: PathBuf,
    /// What it is compared with, likewise
    pub second: PathBuf,
    /// Print one JSON object on standard output, with every case
    #[arg(long)]
    pub json: bool,
}

fn parse_ttl(text: &str) -> Result<Duration, ttl::TtlError> {
    ttl::parse(text)
}
