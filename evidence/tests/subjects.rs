//! Files on disk against the subjects of a row, by digest.

use std::path::{Path, PathBuf};

use modelbench_evidence::keys::PrivateKey;
use modelbench_evidence::publish::write_run;
use modelbench_evidence::record::FileDigest;
use modelbench_evidence::subjects::SubjectError;
use modelbench_evidence::time;
use modelbench_evidence::verify::{Expectations, Verified, VerifyError, verify_expecting};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

mod sample;

/// Writes a file and gives its digest.
fn file(dir: &Path, name: &str, text: &str) -> FileDigest {
    std::fs::write(dir.join(name), text).expect("written");
    FileDigest { name: name.into(), sha256: hex::encode(Sha256::digest(text)) }
}

/// A run of a backend of two files; the files lie beside the run folder.
fn run() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let cases = sample::cases();
    let mut header = sample::header(&cases);
    header.backend_files =
        vec![file(dir.path(), "libvendor_x.so", "library"), file(dir.path(), "kernels.bin", "kernels")];
    header.kit = file(dir.path(), "modelbench", "kit");
    let run = dir.path().join("run");
    std::fs::create_dir(&run).expect("a folder");
    let key = PrivateKey::generate().expect("a key");
    write_run(&run, &sample::bytes(&header, &cases), &key).expect("written");
    (dir, run)
}

fn verify(dir: &TempDir, run: &Path, names: &[&str]) -> Result<Verified, VerifyError> {
    let subjects: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
    let now = time::parse(sample::FINISHED).expect("a time");
    verify_expecting(
        run,
        &Expectations {
            public_key: None,
            kit: None,
            maintainers: &[],
            challenge: None,
            subjects: &subjects,
            now,
        },
    )
}

fn refusal(dir: &TempDir, run: &Path, names: &[&str]) -> SubjectError {
    match verify(dir, run, names) {
        Err(VerifyError::Subject(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_files_that_were_tested_are_the_subjects() {
    let (dir, run) = run();
    assert!(verify(&dir, &run, &[]).expect("it holds").subjects.is_empty(), "nothing was compared");
    let verified = verify(&dir, &run, &["libvendor_x.so", "kernels.bin"]).expect("it holds");
    let names: Vec<&str> = verified.subjects.iter().map(|s| s.names[0].as_str()).collect();
    assert_eq!(names, ["libvendor_x.so", "kernels.bin"]);
    assert_eq!(verified.subjects[1].sha256, hex::encode(Sha256::digest("kernels")));
    let with_kit = ["modelbench", "kernels.bin", "libvendor_x.so"];
    assert_eq!(verify(&dir, &run, &with_kit).expect("it holds").subjects.len(), 3);
    // A file is known by its content: on the disk it may have another name.
    std::fs::rename(dir.path().join("kernels.bin"), dir.path().join("k2.bin")).expect("renamed");
    let renamed = verify(&dir, &run, &["libvendor_x.so", "k2.bin"]).expect("it holds");
    assert_eq!(renamed.subjects[1].names, ["kernels.bin"]);
}

#[test]
fn another_file_is_refused_with_both_digests() {
    let (dir, run) = run();
    let library = hex::encode(Sha256::digest("library"));
    let changed = file(dir.path(), "libvendor_x.so", "library 2");
    let error = refusal(&dir, &run, &["libvendor_x.so", "kernels.bin"]);
    assert!(matches!(error, SubjectError::NotASubject { .. }));
    for part in ["libvendor_x.so has", &changed.sha256, &library, "kernels.bin (", "modelbench ("] {
        assert!(error.to_string().contains(part), "{part:?} is not in: {error}");
    }
}

#[test]
fn every_file_of_the_backend_must_be_given() {
    let (dir, run) = run();
    for given in [["kernels.bin"].as_slice(), &["modelbench", "kernels.bin"]] {
        let error = refusal(&dir, &run, given);
        assert!(matches!(&error, SubjectError::NotGiven { name, .. } if name == "libvendor_x.so"), "{error}");
        assert!(error.to_string().contains(&hex::encode(Sha256::digest("kernels"))), "{error}");
    }
    assert!(matches!(refusal(&dir, &run, &["modelbench"]), SubjectError::NotGiven { .. }));
}

#[test]
fn what_is_no_file_cannot_be_compared() {
    let (dir, run) = run();
    for name in ["absent", "run"] {
        let error = refusal(&dir, &run, &["libvendor_x.so", "kernels.bin", name]);
        assert!(matches!(&error, SubjectError::Read { path, .. } if path.ends_with(name)), "{error}");
    }
}
