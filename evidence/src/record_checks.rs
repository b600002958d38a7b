//! What must hold within one line of `results.jsonl`, for the reader and the writer alike.

use modelbench_contract::{Op, is_backend_id};
use sha2::{Digest, Sha256};

use crate::expected::Rules;
use crate::mode::Mode;
use crate::outcome::{NotRun, Outcome};
use crate::record::{CaseRecord, FileDigest, Header, Quality, RESULTS_SCHEMA, Rung};
use crate::{tier, time};

/// More files than this are refused by verifiers of in-toto statements (1024 subjects, one of them the kit).
const MAX_BACKEND_FILES: usize = 1023;

/// A field with a value that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) found: String,
    pub(crate) expected: String,
}

pub(crate) fn wrong(
    field: impl Into<String>,
    found: impl Into<String>,
    expected: impl Into<String>,
) -> FieldError {
    FieldError { field: field.into(), found: found.into(), expected: expected.into() }
}

pub(crate) fn require(holds: bool, error: impl FnOnce() -> FieldError) -> Result<(), FieldError> {
    if holds { Ok(()) } else { Err(error()) }
}

/// A sha256 as the writer writes it.
pub(crate) fn digest(field: &str, text: &str) -> Result<(), FieldError> {
    let legal = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    require(legal, || wrong(field, format!("{text:?}"), "a sha256 as 64 lower-case hex digits"))
}

fn one_of(field: &str, found: &str, expected: &[&str]) -> Result<(), FieldError> {
    require(expected.contains(&found), || wrong(field, format!("{found:?}"), format!("one of {expected:?}")))
}

/// A plain name and a digest.
pub(crate) fn file(field: &str, file: &FileDigest) -> Result<(), FieldError> {
    let plain = !file.name.is_empty() && !file.name.contains(['/', '\\']);
    require(plain, || wrong(format!("{field}.name"), format!("{:?}", file.name), "a plain file name"))?;
    digest(&format!("{field}.sha256"), &file.sha256)
}

/// The header's own fields.
pub(crate) fn header(header: &Header) -> Result<(), FieldError> {
    require(header.schema == RESULTS_SCHEMA, || {
        wrong("schema", format!("{:?}", header.schema), format!("{RESULTS_SCHEMA:?}"))
    })?;
    let name = &header.backend.name;
    require(is_backend_id(name.strip_prefix("mock:").unwrap_or(name)), || {
        wrong("backend.name", format!("{name:?}"), "an id [a-z0-9][a-z0-9-]{0,31}")
    })?;
    file("kit", &header.kit)?;
    let files = header.backend_files.len();
    require((1..=MAX_BACKEND_FILES).contains(&files), || {
        wrong("backend_files", format!("{files} files"), format!("1 to {MAX_BACKEND_FILES}"))
    })?;
    // A name that stands for two digests would leave open which file the row is about.
    let mut named = std::collections::BTreeMap::from([(&header.kit.name, &header.kit.sha256)]);
    for (i, f) in header.backend_files.iter().enumerate() {
        file(&format!("backend_files[{i}]"), f)?;
        let first = *named.entry(&f.name).or_insert(&f.sha256);
        require(first == &f.sha256, || {
            let expected =
                format!("{first}, the digest of the other file {:?}; give each file its own name", f.name);
            wrong(format!("backend_files[{i}].sha256"), f.sha256.clone(), expected)
        })?;
    }
    digest("suite.digest", &header.suite.digest)?;
    digest("suite.cases_digest", &header.suite.cases_digest)?;
    let suite = &header.suite;
    require(suite.set != "full" || suite.cases == suite.full_cases, || {
        wrong("suite.cases", suite.cases.to_string(), format!("suite.full_cases = {}", suite.full_cases))
    })?;
    digest("model.sha256", &header.model.sha256)?;
    one_of("model.golden", &header.model.golden, &["stored", "computed"])?;
    let seed = header.seed.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    require(seed.is_some_and(|seed| format!("{seed:#x}") == header.seed), || {
        wrong(
            "seed",
            format!("{:?}", header.seed),
            "a 64-bit number as 0x and lower-case hex without leading zeros",
        )
    })?;
    for (i, entry) in header.expected.iter().enumerate() {
        entry.check().map_err(|e| wrong(format!("expected[{i}].{}", e.field), e.found, e.expected))?;
    }
    if let Some(challenge) = &header.challenge {
        digest("challenge.sha256", &challenge.sha256)?;
        let seed = tier::seed(&challenge.nonce, header).map_err(|e| {
            wrong("challenge.nonce", challenge.nonce.clone(), format!("a nonce that gives a seed: {e}"))
        })?;
        let open = time::parse(&challenge.expires).ok().zip(time::parse(&header.started).ok());
        require(open.is_some_and(|(expires, started)| started <= expires), || {
            let expected = format!("a time after {}, when the run started", header.started);
            wrong("challenge.expires", challenge.expires.clone(), expected)
        })?;
        require(header.seed == seed, || {
            let expected = format!("{seed}, which the challenge, the backend and the suites give");
            wrong("seed", header.seed.clone(), expected)
        })?;
    }
    let lenient = header.filter.is_some() || header.retries > 0 || !header.expected.is_empty();
    require(header.mode != Mode::Certify || !lenient, || {
        wrong("mode", "certify", "ci: a run with a filter, retries or known failures certifies nothing")
    })?;
    time::parse(&header.started)
        .map(drop)
        .map_err(|e| wrong("started", format!("{:?}", header.started), e.to_string()))
}

/// The rules that the header of a run gives.
pub(crate) fn rules(header: &Header) -> Result<Rules, FieldError> {
    Rules::of(header).map_err(|e| wrong(e.field, e.found, e.expected))
}

/// A case line's own fields, given the rules of the run and the number of retries.
pub(crate) fn case(case: &CaseRecord, rules: &Rules, retries: u32) -> Result<(), FieldError> {
    let first = case.id.split('/').next().unwrap_or_default();
    require(first == case.rung.as_str(), || {
        wrong("rung", case.rung.as_str(), format!("{first:?}, the first segment of the id {:?}", case.id))
    })?;
    let expected = rules.verdict(&case.id, &case.outcome);
    require(case.verdict == expected, || {
        let because = format!("{}, which the outcome {} gives", expected.as_str(), case.outcome.as_str());
        wrong("verdict", case.verdict.as_str(), because)
    })?;
    require(case.tries.len() as u64 <= u64::from(retries), || {
        let found = format!("{} tries before the last", case.tries.len());
        wrong("tries", found, format!("at most retries = {retries} of the header"))
    })?;
    for outcome in &case.tries {
        require(Outcome::NAMES[1..].contains(&outcome.as_str()), || {
            let failing = Outcome::NAMES[1..].join(", ");
            wrong("tries", format!("{outcome:?}"), format!("outcomes that are tried again: {failing}"))
        })?;
    }
    if let Outcome::NotRun { why: NotRun::CapNotAdvertised { cap } } = case.outcome {
        require(case.proves == Some(cap), || {
            let found = case.proves.map_or("absent", |cap| cap.as_str());
            wrong(
                "proves",
                found,
                format!("{}, the cap for whose absence the case did not run", cap.as_str()),
            )
        })?;
    }
    digest("output_sha256", &case.output_sha256)?;
    quality(&case.quality, &case.outcome)?;
    if let Some(numerics) = &case.numerics {
        require(case.subject == numerics.op.as_str(), || {
            let expected = format!("{:?}, the subject of the case", case.subject);
            wrong("numerics.op", numerics.op.as_str(), expected)
        })?;
    }
    outcome(case)?;
    // The gate decides by op names, so a name that it does not know could hide a delegated matmul.
    for (field, ops) in [("native", &case.native), ("delegated", &case.delegated)] {
        for (name, count) in ops {
            require(op_named(name).is_some(), || {
                wrong(field, format!("{name:?}"), "the name of an op of the contract")
            })?;
            require(*count > 0, || {
                wrong(format!("{field}.{name}"), "0", "at least 1; leave out what never ran")
            })?;
        }
    }
    Ok(())
}

/// Figures of a case that cannot be at the same time. Bits may be compared on more elements than an oracle judges, and a
/// wrong answer may be infinitely far off, which `worst` then does not show.
fn quality(quality: &Quality, outcome: &Outcome) -> Result<(), FieldError> {
    require(quality.bits_differ <= quality.bits_compared, || {
        let limit = format!("at most quality.bits_compared = {}", quality.bits_compared);
        wrong("quality.bits_differ", quality.bits_differ.to_string(), limit)
    })?;
    let figures =
        [("worst", quality.worst), ("p99", quality.p99), ("bias", quality.bias), ("inward", quality.inward)];
    for (name, value) in figures {
        let Some(value) = value else { continue };
        let field = || format!("quality.{name}");
        require(value.is_finite(), || {
            let expected = "a finite number; write the largest finite one for an infinite ratio";
            wrong(field(), value.to_string(), expected)
        })?;
        require(quality.elements > 0, || {
            wrong(field(), value.to_string(), "nothing, because quality.elements is 0")
        })?;
        require(name == "bias" || value >= 0.0, || wrong(field(), value.to_string(), "at least 0"))?;
        require(name != "inward" || value <= 1.0, || {
            wrong(field(), value.to_string(), "a share, at most 1")
        })?;
    }
    let held = matches!(outcome, Outcome::Pass | Outcome::Delegated { .. });
    if let (true, Some(p99)) = (held, quality.p99) {
        require(quality.worst.is_some_and(|worst| p99 <= worst), || {
            let worst = quality.worst.map_or_else(|| "absent".to_owned(), |worst| worst.to_string());
            wrong("quality.p99", p99.to_string(), format!("at most quality.worst, which is {worst}"))
        })?;
    }
    Ok(())
}

/// What an outcome excludes: help of the host in a pass, and any trace of work in a case that did not run.
fn outcome(case: &CaseRecord) -> Result<(), FieldError> {
    let names = |ops: &mut dyn Iterator<Item = &String>| format!("{:?}", ops.collect::<Vec<_>>());
    match &case.outcome {
        Outcome::Pass => {
            require(case.delegated.is_empty(), || {
                wrong(
                    "delegated",
                    names(&mut case.delegated.keys()),
                    "nothing in a pass; the outcome is `delegated`",
                )
            })?;
            if case.rung != Rung::R1 {
                return Ok(());
            }
            require(case.quality.worst.is_none_or(|worst| worst <= 1.0), || {
                let worst = case.quality.worst.unwrap_or_default().to_string();
                wrong("quality.worst", worst, "at most 1, the bound itself, in a pass")
            })?;
            let called = op_named(&case.subject).is_none_or(|op| case.native.contains_key(op.as_str()));
            require(called, || {
                let expected = format!("at least one call of {:?}, which the case is about", case.subject);
                wrong("native", names(&mut case.native.keys()), expected)
            })
        }
        Outcome::Delegated { ops } => {
            require(!ops.is_empty() && ops.iter().eq(case.delegated.keys()), || {
                let expected =
                    format!("the ops of `delegated`, at least one: {}", names(&mut case.delegated.keys()));
                wrong("outcome.ops", names(&mut ops.iter()), expected)
            })
        }
        Outcome::Crash { op: Some(op), .. } | Outcome::Timeout { op: Some(op), .. } => {
            require(op_named(op).is_some(), || {
                wrong("outcome.op", format!("{op:?}"), "the name of an op of the contract")
            })
        }
        Outcome::NotRun { .. } => {
            let nothing = hex::encode(Sha256::digest([]));
            let found = [
                ("native", names(&mut case.native.keys()), case.native.is_empty()),
                ("delegated", names(&mut case.delegated.keys()), case.delegated.is_empty()),
                ("notes", format!("{:?}", case.notes), case.notes.is_empty()),
                ("quality", format!("{:?}", case.quality), case.quality == Quality::default()),
                ("output_sha256", case.output_sha256.clone(), case.output_sha256 == nothing),
            ];
            found.into_iter().try_for_each(|(field, found, empty)| {
                require(empty, || wrong(field, found, "nothing, because the case did not run"))
            })
        }
        _ => Ok(()),
    }
}

/// The end of a run, given its start.
pub(crate) fn span(started: &str, finished: &str) -> Result<(), FieldError> {
    let time = |field: &str, text: &str| {
        time::parse(text).map_err(|error| wrong(field, format!("{text:?}"), error.to_string()))
    };
    require(time("started", started)? <= time("finished", finished)?, || {
        let expected = format!("{started} or later, when the run started; was the clock set back?");
        wrong("finished", finished, expected)
    })
}

/// The op of that name.
pub(crate) fn op_named(name: &str) -> Option<Op> {
    Op::ALL.iter().copied().find(|op| op.as_str() == name)
}
