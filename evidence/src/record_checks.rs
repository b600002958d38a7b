//! What must hold within one line of `results.jsonl`, for the reader and the writer alike.

use modelbench_contract::{Caps, Op, is_backend_id};

use crate::outcome::{NotRun, Outcome, Verdict};
use crate::record::{CaseRecord, FileDigest, Header, RESULTS_SCHEMA};
use crate::time;

/// More files than this are refused by verifiers of in-toto statements (1024 subjects, one of them the kit).
const MAX_BACKEND_FILES: usize = 1023;

/// A field with a value that cannot be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) found: String,
    pub(crate) expected: String,
}

fn wrong(field: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> FieldError {
    FieldError { field: field.into(), found: found.into(), expected: expected.into() }
}

fn require(holds: bool, error: impl FnOnce() -> FieldError) -> Result<(), FieldError> {
    if holds { Ok(()) } else { Err(error()) }
}

/// A sha256 as the writer writes it.
pub(crate) fn digest(field: &str, text: &str) -> Result<(), FieldError> {
    let legal = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    require(legal, || wrong(field, format!("{text:?}"), "a sha256 as 64 lower-case hex digits"))
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
    time::parse(&header.started)
        .map(drop)
        .map_err(|e| wrong("started", format!("{:?}", header.started), e.to_string()))
}

/// A case line's own fields, given the advertised caps.
pub(crate) fn case(case: &CaseRecord, caps: &Caps) -> Result<(), FieldError> {
    let first = case.id.split('/').next().unwrap_or_default();
    require(first == case.rung.as_str(), || {
        wrong("rung", case.rung.as_str(), format!("{first:?}, the first segment of the id {:?}", case.id))
    })?;
    let expected = Verdict::of(&case.outcome, caps);
    require(case.verdict == expected, || {
        let because = format!("{}, which the outcome {} gives", expected.as_str(), case.outcome.as_str());
        wrong("verdict", case.verdict.as_str(), because)
    })?;
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
    let quality = &case.quality;
    require(quality.bits_differ <= quality.bits_compared, || {
        let limit = format!("at most quality.bits_compared = {}", quality.bits_compared);
        wrong("quality.bits_differ", quality.bits_differ.to_string(), limit)
    })?;
    for (name, value) in
        [("worst", quality.worst), ("p99", quality.p99), ("bias", quality.bias), ("inward", quality.inward)]
    {
        require(value.is_none_or(f64::is_finite), || {
            let expected = "a finite number; write the largest finite one for an infinite ratio";
            wrong(format!("quality.{name}"), value.unwrap_or_default().to_string(), expected)
        })?;
    }
    if let Some(numerics) = &case.numerics {
        require(case.subject == numerics.op.as_str(), || {
            let expected = format!("{:?}, the subject of the case", case.subject);
            wrong("numerics.op", numerics.op.as_str(), expected)
        })?;
    }
    // The gate decides by op names, so a name that it does not know could hide a delegated matmul.
    for (field, ops) in [("native", &case.native), ("delegated", &case.delegated)] {
        for name in ops.keys() {
            require(op_named(name).is_some(), || {
                wrong(field, format!("{name:?}"), "the name of an op of the contract")
            })?;
        }
    }
    Ok(())
}

/// The op of that name.
pub(crate) fn op_named(name: &str) -> Option<Op> {
    Op::ALL.iter().copied().find(|op| op.as_str() == name)
}
