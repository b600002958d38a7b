//! `golden/MANIFEST.toml` names every golden with its digest and origin, and nothing else lies in the folder.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Files of the folder that are not goldens.
const OTHERS: [&str; 2] = ["MANIFEST.toml", "limits.toml"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    golden: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: String,
    sha256: String,
    producer: String,
    version: String,
    command: String,
    #[serde(default)]
    model_sha256: Option<String>,
}

/// Every file below a folder but the generators, by path within it, with its digest.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(folder).unwrap().to_str().unwrap().replace('\\', "/");
            if path.is_dir() {
                if name != "generate" {
                    open.push(path);
                }
            } else if !OTHERS.contains(&name.as_str()) {
                found.insert(name, hex::encode(Sha256::digest(std::fs::read(&path).unwrap())));
            }
        }
    }
    found
}

/// What is wrong between files and manifest, in words.
fn differences(manifest: &str, files: &BTreeMap<String, String>) -> Vec<String> {
    let manifest: Manifest = toml::from_str(manifest).unwrap();
    let mut wrong = Vec::new();
    let mut listed = BTreeSet::new();
    for entry in &manifest.golden {
        let Entry { path, sha256, producer, version, command, model_sha256 } = entry;
        if !listed.insert(path.as_str()) {
            wrong.push(format!("{path} is listed twice"));
        }
        match files.get(path) {
            None => wrong.push(format!("{path} is listed and does not exist")),
            Some(digest) if digest != sha256 => {
                wrong.push(format!("{path} has sha256 {digest}, listed as {sha256}"))
            }
            Some(_) => {}
        }
        if [producer, version, command].iter().any(|text| text.trim().is_empty()) {
            wrong.push(format!("{path}: producer, version and command must say where it is from"));
        }
        if model_sha256.is_some() != path.starts_with("models/") {
            wrong.push(format!("{path}: model_sha256 belongs to the goldens of models, and only to them"));
        }
    }
    let unlisted = files.keys().filter(|path| !listed.contains(path.as_str()));
    wrong.extend(unlisted.map(|path| format!("{path} is not listed")));
    wrong
}

fn manifest() -> String {
    String::from_utf8(crate::file::read("MANIFEST.toml")).unwrap()
}

#[test]
fn every_golden_is_listed_with_its_digest_and_the_other_way_round() {
    assert_eq!(differences(&manifest(), &files(&crate::file::folder())), Vec::<String>::new());
}

#[test]
fn a_changed_a_missing_and_an_unlisted_file_are_found() {
    let (manifest, whole) = (manifest(), files(&crate::file::folder()));
    let found = |change: &dyn Fn(&mut BTreeMap<String, String>)| {
        let mut files = whole.clone();
        change(&mut files);
        differences(&manifest, &files).join("\n")
    };
    let ops = "ops_f64.safetensors";
    let changed = found(&|files| drop(files.insert(ops.to_owned(), "0".repeat(64))));
    assert!(changed.contains("ops_f64.safetensors has sha256 000"), "{changed}");
    assert!(found(&|files| drop(files.remove(ops))).contains("does not exist"));
    let unlisted = found(&|files| drop(files.insert("new.safetensors".to_owned(), String::new())));
    assert_eq!(unlisted, "new.safetensors is not listed");
}
