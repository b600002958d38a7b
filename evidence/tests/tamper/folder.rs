//! Run folders made through the public interface, and changes of them that can be taken back.

use std::collections::BTreeMap;
use std::path::Path;

use modelbench_contract::{Activation, Cap, DType, Op, Precision};
use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::numerics::Numerics;
use modelbench_evidence::outcome::{NotRun, Outcome};
use modelbench_evidence::publish::{Published, write_run};
use modelbench_evidence::record::{CaseRecord, Header};
use tempfile::TempDir;

use crate::sample;

/// Contents by name.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// What a change puts under a name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    Bytes(Vec<u8>),
    Nothing,
    Folder,
    /// A symbolic link to a file outside with these bytes.
    Link(Vec<u8>),
}

/// What a change leaves under the names that it touches.
pub(crate) type Delta = BTreeMap<String, Entry>;

/// The P-256 key of RFC 6979, appendix A.2.5: public, and good for nothing but tests.
pub(crate) fn signer() -> PrivateKey {
    let text = "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgya+p2EW6dRZrXCFX
Z7HWk05Qw9s26JsSe4piKxIPZyGhRANCAARg/tS6JVqdMclh63TGNW1owEm4kjth
+mzmaWIuYPKftnkD/hAIuLyZpBrp6VYovGTy8bIMLX6fUXejwpTURiKZ
-----END PRIVATE KEY-----
";
    PrivateKey::from_pem(text, "the RFC's key").expect("a good key")
}

/// Cases of every kind, on every rung.
pub(crate) fn cases() -> Vec<CaseRecord> {
    let mut cases = sample::cases();
    let detail = || "got 1 \"want\" 2\nä".to_owned();
    let outcomes = [
        Outcome::Mismatch { detail: detail() },
        Outcome::Error { detail: detail() },
        Outcome::Unsupported { detail: detail() },
        Outcome::Delegated { ops: vec!["rope".into(), "swiglu".into()] },
        Outcome::Crash { cause: "SIGSEGV".into(), op: Some("rope".into()), stderr: detail() },
        Outcome::Timeout { op: None, after: "5 s".into(), stderr: String::new() },
        Outcome::Mistrusted { detail: detail() },
    ];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let rung = ["r2", "r5", "r6"][i % 3];
        let id = format!("{rung}/forward/other/n{i}");
        cases.push(sample::with_outcome(sample::case(&id, "attention"), outcome));
    }
    let stopped = Outcome::NotRun { why: NotRun::Kit { reason: detail() } };
    cases.push(sample::not_run("r6/endurance/leak/n1", "leak", stopped));
    for cap in [Cap::Async, Cap::DeviceMemory, Cap::FusedAttn] {
        cases.push(sample::not_applicable(&format!("r3/{}/proof", cap.as_str()), cap));
    }
    for op in [Op::Rope, Op::Swiglu, Op::AddBias, Op::Argmax, Op::BatchedMatmul] {
        let mut asked = sample::case(&format!("r1/numerics/{}/sums", op.as_str()), op.as_str());
        asked.numerics = Some(Numerics {
            op,
            dtype: DType::F32,
            operand: Some(Precision::F32),
            accumulator: Some(Precision::Tf32),
            flush_to_zero: Some(false),
            activation: Some(Activation::Float),
        });
        cases.push(asked);
        for n in 1..4 {
            cases.push(sample::case(&format!("r1/{}/bound/n{n}", op.as_str()), op.as_str()));
        }
    }
    cases
}

/// A header for those cases; `run` tells two runs of the same backend apart.
pub(crate) fn header(cases: &[CaseRecord], run: usize) -> Header {
    let mut header = sample::header(cases);
    header.environment.insert("run".into(), run.to_string());
    header
}

/// A complete run folder.
pub(crate) struct Folder {
    dir: TempDir,
    outside: TempDir,
    pub(crate) files: Files,
}

impl Folder {
    /// Writes a run of the signer, with every case or without the last one.
    pub(crate) fn written(run: usize) -> Folder {
        let mut cases = cases();
        cases.truncate(cases.len() - run);
        let bytes = sample::bytes(&header(&cases, run), &cases);
        let dir = tempfile::tempdir().expect("a folder");
        assert!(matches!(write_run(dir.path(), &bytes, &signer()).expect("written"), Published::Row(_)));
        let files = std::fs::read_dir(dir.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .map(|path| {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                (name, std::fs::read(path).expect("a file"))
            })
            .collect();
        Folder { dir, outside: tempfile::tempdir().expect("a folder"), files }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Makes a change, lets somebody look at it, and takes it back.
    pub(crate) fn with<T>(&self, delta: &Delta, look: impl FnOnce(&Path) -> T) -> T {
        for (name, entry) in delta {
            self.put(name, entry);
        }
        let seen = look(self.path());
        for name in delta.keys() {
            self.put(name, &self.files.get(name).cloned().map_or(Entry::Nothing, Entry::Bytes));
        }
        seen
    }

    /// Puts an entry under a name. What was there is removed first: many file systems write a file through to the disk
    /// when it is emptied and written again.
    fn put(&self, name: &str, entry: &Entry) {
        let path = self.path().join(name);
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir(&path).expect("removed"),
            Ok(_) => std::fs::remove_file(&path).expect("removed"),
            Err(_) => {}
        }
        match entry {
            Entry::Bytes(bytes) => std::fs::write(&path, bytes).expect("written"),
            Entry::Nothing => {}
            Entry::Folder => std::fs::create_dir(&path).expect("a folder"),
            Entry::Link(bytes) => {
                let target = self.outside.path().join(name);
                std::fs::write(&target, bytes).expect("written");
                std::os::unix::fs::symlink(&target, &path).expect("a link");
            }
        }
    }
}
