//! Writes a run folder with a signed sample row, for the verifiers of other languages:
//! `cargo run -p modelbench-evidence --example sample_row -- FOLDER`. The folder must not exist yet.

use std::path::PathBuf;
use std::process::ExitCode;

use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::publish::{self, Published};

#[path = "../tests/sample/mod.rs"]
mod sample;

fn main() -> ExitCode {
    match write() {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write() -> Result<String, Box<dyn std::error::Error>> {
    let folder = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: sample_row FOLDER")?);
    std::fs::create_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let cases = sample::cases();
    let results = sample::bytes(&sample::header(&cases), &cases);
    match publish::write_run(&folder, &results, &PrivateKey::generate()?)? {
        Published::Row(row) => Ok(format!("{} {}", row.keyid, row.row.display())),
        Published::ResultsOnly => Err("the sample run is not filtered".into()),
    }
}
