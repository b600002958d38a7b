//! Nothing in a run folder can be changed without `verify` refusing it, whatever is changed and by whom.

mod change;
mod folder;
mod json_text;
mod random;
#[path = "../sample/mod.rs"]
mod sample;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use change::{OPERATORS, Operator, draw, everywhere, of_files, payload_of, signature_of};
use folder::{Delta, Entry, Folder, signer};
use modelbench_evidence::bundle::Bundle;
use modelbench_evidence::dsse::{Envelope, Signature};
use modelbench_evidence::keys::{PrivateKey, PublicKey};
use modelbench_evidence::publish::{BUNDLE_FILE, PUBLIC_KEY_FILE, ROW_FILE, write_run};
use modelbench_evidence::results::{RESULTS_FILE, Results};
use modelbench_evidence::statement::Statement;
use modelbench_evidence::time;
use modelbench_evidence::verify::{Signer, Verified, VerifyError, verify_at};
use random::Random;

/// Random changes of content; those of whole files come on top.
const CHANGES: usize = 5_000;

/// Changes that `verify` accepts, because they change nothing that anybody relies on.
const WITHOUT_MEANING: [(&str, &str); 1] = [(
    "added",
    "a file under a name that no part of the row speaks about; `verify` lists it as vouched for by nobody",
)];

fn now() -> SystemTime {
    time::parse(sample::FINISHED).expect("a time") + Duration::from_secs(60)
}

fn check(path: &Path, key: Option<&PublicKey>) -> Result<Verified, VerifyError> {
    verify_at(path, key, None, now())
}

/// Who accepts the folder after a change: with the signer's key given, and with the key in the folder.
fn accepted(folder: &Folder, delta: &Delta, key: &PublicKey) -> Vec<&'static str> {
    folder.with(delta, |path| {
        let given = check(path, Some(key)).is_ok().then_some("with the signer's key");
        let contained = check(path, None).is_ok().then_some("with the key in the folder");
        given.into_iter().chain(contained).collect()
    })
}

fn told(delta: &Delta) -> String {
    let show = |entry: &Entry| match entry {
        Entry::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    };
    delta.iter().map(|(name, entry)| format!("\n--- {name}:\n{}", show(entry))).collect()
}

#[test]
fn no_change_of_a_run_folder_is_accepted() {
    let (folder, other, key) = (Folder::written(0), Folder::written(1), signer().public_key());
    assert!(check(folder.path(), Some(&key)).expect("it holds").unnamed.is_empty());
    check(other.path(), Some(&key)).expect("it holds");
    let mut random = Random::new(0x5eed);
    let mut seen = BTreeSet::new();
    let mut tried = BTreeMap::<Operator, usize>::new();
    for operator in OPERATORS.iter().cycle() {
        if seen.len() == CHANGES {
            break;
        }
        let Some(delta) = draw(*operator, &folder.files, &mut random) else { continue };
        if !seen.insert(delta.clone()) {
            continue;
        }
        let by = accepted(&folder, &delta, &key);
        assert!(by.is_empty(), "{operator:?} is accepted {by:?}: {}", told(&delta));
        *tried.entry(*operator).or_default() += 1;
    }
    for operator in OPERATORS {
        assert!(tried.get(&operator).is_some_and(|count| *count >= 10), "{operator:?}: {tried:?}");
    }
    for (what, delta) in of_files(&folder.files, &other.files) {
        let by = accepted(&folder, &delta, &key);
        assert!(by.is_empty(), "{what} is accepted {by:?}: {}", told(&delta));
    }
    check(folder.path(), None).expect("every change was taken back");
}

#[test]
fn changes_without_meaning_are_listed_and_told() {
    let (folder, key) = (Folder::written(0), signer().public_key());
    let names = ["notes.txt", ".DS_Store", "row.dsse.json.bak", "results.jsonl~", "row2.dsse.json"];
    let contents = [Vec::new(), b"mine".to_vec(), folder.files[ROW_FILE].clone()];
    let mut accepted = BTreeSet::new();
    for name in names {
        for entry in contents.iter().cloned().map(Entry::Bytes).chain([Entry::Folder]) {
            let delta = Delta::from([(name.to_owned(), entry)]);
            folder.with(&delta, |path| {
                if let Ok(verified) = check(path, Some(&key)) {
                    assert_eq!(verified.unnamed, [name], "what nobody vouches for is told");
                    accepted.insert("added");
                }
            });
        }
    }
    assert_eq!(accepted.into_iter().collect::<Vec<_>>(), WITHOUT_MEANING.map(|(what, _)| what));
}

/// Changes of `results.jsonl` that a strict reader still accepts, each with the row that follows from it.
fn other_rows(folder: &Folder, count: usize) -> Vec<(Vec<u8>, String)> {
    let mut random = Random::new(7);
    let mut found = BTreeMap::new();
    for _ in 0..100 * count {
        if found.len() == count {
            break;
        }
        let Some(delta) = draw(Operator::CarefulLine, &folder.files, &mut random) else { continue };
        let Some(Entry::Bytes(bytes)) = delta.into_values().next() else { continue };
        let Ok(results) = Results::parse(&bytes) else { continue };
        let Ok(statement) = Statement::of(&results) else { continue };
        let text = String::from_utf8(statement.to_bytes().expect("JSON")).expect("text");
        found.insert(bytes, text);
    }
    assert_eq!(found.len(), count, "too few edits of the record are plausible");
    found.into_iter().collect()
}

/// The files of a run with another record, another row and these signatures.
fn forged(results: Vec<u8>, payload: &str, signature: Signature, key: Option<&PublicKey>) -> Delta {
    let envelope = Envelope {
        payload: STANDARD.encode(payload),
        payload_type: "application/vnd.in-toto+json".into(),
        signatures: vec![signature],
    };
    let bundle = Bundle::of(envelope.clone()).expect("bundled").to_bytes().expect("JSON");
    let row = envelope.to_bytes().expect("JSON");
    let mut delta = Delta::from(
        [(RESULTS_FILE, results), (ROW_FILE, row), (BUNDLE_FILE, bundle)]
            .map(|(name, bytes)| (name.to_owned(), Entry::Bytes(bytes))),
    );
    if let Some(key) = key {
        let pem = key.to_pem().expect("PEM").into_bytes();
        delta.insert(PUBLIC_KEY_FILE.to_owned(), Entry::Bytes(pem));
    }
    delta
}

#[test]
fn whoever_cannot_sign_cannot_change_the_record() {
    let (folder, key) = (Folder::written(0), signer().public_key());
    let envelope = Envelope::parse(&folder.files[ROW_FILE]).expect("an envelope");
    let old = envelope.signature().expect("one").clone();
    let thief = PrivateKey::generate().expect("a key");
    for (results, payload) in other_rows(&folder, 200) {
        let theirs = Envelope::sign(payload.as_bytes(), &thief).expect("signed").signatures.remove(0);
        let renamed = Signature { keyid: old.keyid.clone(), ..theirs.clone() };
        let thiefs = thief.public_key();
        for (what, signature, pem) in [
            ("the old signature", old.clone(), None),
            ("another key's signature", theirs.clone(), None),
            ("another key's signature under the signer's name", renamed.clone(), None),
            ("another key's signature under the signer's name, with that key", renamed, Some(&thiefs)),
        ] {
            let delta = forged(results.clone(), &payload, signature, pem);
            let by = accepted(&folder, &delta, &key);
            assert!(by.is_empty(), "{what} is accepted {by:?}: {}", told(&delta));
        }
        // Whoever signs with a key of their own has made a row of their own: only the signer's key tells them apart.
        let own = tempfile::tempdir().expect("a folder");
        write_run(own.path(), &results, &thief).expect("written");
        assert!(check(own.path(), Some(&key)).is_err(), "another key is accepted as the signer's");
        let verified = check(own.path(), None).expect("a row of their own");
        assert_eq!((verified.signer, verified.keyid), (Signer::SelfContained, thief.public_key().keyid()));
    }
}

#[test]
fn even_the_signer_cannot_say_what_does_not_follow_from_the_record() {
    let (folder, key) = (Folder::written(0), signer());
    let mut random = Random::new(11);
    let mut seen = BTreeSet::new();
    while seen.len() < 600 {
        let Some(delta) = draw(Operator::Payload, &folder.files, &mut random) else { continue };
        let Some((name, Entry::Bytes(changed))) = delta.first_key_value() else { continue };
        let (Some((old, _)), Some((_, lie))) = (payload_of(&folder.files[name]), payload_of(changed)) else {
            continue;
        };
        if !seen.insert(lie.clone()) {
            continue;
        }
        let sig = signature_of(&folder.files[name]);
        let signed = Envelope::sign(lie.as_bytes(), &key).expect("signed");
        let mut files = folder.files.clone();
        for (old, new) in [(&old, &signed.payload), (&sig, &signed.signatures[0].sig)] {
            for (name, entry) in everywhere(&files, old, new) {
                if let Entry::Bytes(bytes) = entry {
                    files.insert(name, bytes);
                }
            }
        }
        let delta: Delta = files.into_iter().map(|(name, bytes)| (name, Entry::Bytes(bytes))).collect();
        let by = accepted(&folder, &delta, &key.public_key());
        assert!(by.is_empty(), "a signed lie is accepted {by:?}:\n{lie}");
    }
}
