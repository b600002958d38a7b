//! `results.jsonl`: written line by line, read back whole and strictly.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::expected::Rules;
use crate::measured::Measured;
use crate::record::{CaseRecord, Footer, Header, Line};
use crate::record_checks::{self, FieldError};
use crate::{json, measured_checks, time};

/// The file name of the record of a run.
pub const RESULTS_FILE: &str = "results.jsonl";

/// Why a record of a run is refused. Lines count from 1.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// No complete record: it ends in the middle.
    #[error("the record ends after line {line} without {missing}: the run was interrupted; run it again")]
    Incomplete {
        /// The last line.
        line: usize,
        /// What is missing.
        missing: &'static str,
    },
    /// Not a line of a known kind.
    #[error("line {line}: {reason}; expected one JSON object of the kind header, case, measured or footer")]
    Malformed {
        /// Where.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A line in the wrong place.
    #[error("line {line}: found a {found} line, expected {expected}")]
    Order {
        /// Where.
        line: usize,
        /// Kind of the line.
        found: &'static str,
        /// What belongs there.
        expected: &'static str,
    },
    /// A field has a value that cannot be.
    #[error("line {line}: {field} is {found}, expected {expected}")]
    Field {
        /// Where.
        line: usize,
        /// Path of the field within the line.
        field: String,
        /// Its value.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// A line says the right thing in other bytes than the writer's.
    #[error(
        "line {line}, byte {byte}: found {found:?}, expected {expected:?}: the line was edited after the run"
    )]
    NotCanonical {
        /// Where.
        line: usize,
        /// First byte that differs, from 1.
        byte: usize,
        /// The text from there.
        found: String,
        /// What the writer would have written.
        expected: String,
    },
    /// A case id twice.
    #[error("line {line}: case {id:?} was already recorded at line {first}; every case has exactly one line")]
    Duplicate {
        /// Where.
        line: usize,
        /// The id.
        id: String,
        /// Its first line.
        first: usize,
    },
    /// The sink failed.
    #[error("cannot write the record of the run")]
    Write(#[from] io::Error),
    /// A line could not be turned into JSON.
    #[error("line {line} cannot be written as JSON: {reason}")]
    Encode {
        /// The line to be written.
        line: usize,
        /// Why.
        reason: String,
    },
}

impl FieldError {
    fn at(self, line: usize) -> ResultsError {
        let FieldError { field, found, expected } = self;
        ResultsError::Field { line, field, found, expected }
    }
}

/// A complete record of a run, read strictly.
#[derive(Debug, Clone, PartialEq)]
pub struct Results {
    /// The first line.
    pub header: Header,
    /// The case lines, in the order of the file.
    pub cases: Vec<CaseRecord>,
    /// What was measured beside the cases; absent in a run that asked for no row and no gate.
    pub measured: Option<Measured>,
    /// The last line.
    pub footer: Footer,
    /// sha256 of the whole file, lower-case hex.
    pub sha256: String,
}

impl Results {
    /// Reads the bytes of a `results.jsonl`.
    ///
    /// Every line must be one JSON object of a known kind without unknown or repeated keys, byte for byte as
    /// [`ResultsWriter`] writes it; the header comes first and the footer last, with the right count and digest; no
    /// case appears twice; every verdict is the one that its outcome gives.
    ///
    /// # Errors
    /// [`ResultsError`] for the first line that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Results, ResultsError> {
        let mut hash = Sha256::new();
        let mut header: Option<(Header, Rules)> = None;
        let mut cases = Vec::new();
        let mut measured = None;
        let mut lines_of = HashMap::new();
        let mut footer = None;
        let mut number = 0;
        for raw in bytes.split_inclusive(|b| *b == b'\n') {
            number += 1;
            let Some(text) = raw.strip_suffix(b"\n") else {
                return Err(ResultsError::Incomplete { line: number, missing: "the end of that line" });
            };
            let line = read_line(number, text)?;
            match (line, header.as_ref(), footer.as_ref()) {
                (line, _, Some(_)) => return Err(misplaced(number, &line, "nothing after the footer")),
                (Line::Header(first), None, None) => {
                    record_checks::header(&first).map_err(|e| e.at(number))?;
                    let rules = record_checks::rules(&first).map_err(|e| e.at(number))?;
                    header = Some((*first, rules));
                }
                (line, None, None) => return Err(misplaced(number, &line, "a header")),
                (line @ Line::Header(_), Some(_), None) => {
                    return Err(misplaced(number, &line, "a case or the footer"));
                }
                (line @ (Line::Case(_) | Line::Measured(_)), Some(_), None) if measured.is_some() => {
                    return Err(misplaced(number, &line, "the footer"));
                }
                (Line::Measured(all), Some((header, _)), None) => {
                    measured_checks::check(&all, header, &cases).map_err(|e| e.at(number))?;
                    measured = Some(*all);
                }
                (Line::Case(case), Some((header, rules)), None) => {
                    record_checks::case(&case, rules, header.retries).map_err(|e| e.at(number))?;
                    if let Some(first) = lines_of.insert(case.id.clone(), number) {
                        return Err(ResultsError::Duplicate { line: number, id: case.id, first });
                    }
                    cases.push(*case);
                }
                (Line::Footer(last), Some((header, _)), None) => {
                    if header.filter.is_none() && measured.is_none() {
                        return Err(unmeasured(number));
                    }
                    check_footer(number, &last, cases.len() as u64, &hex::encode(hash.clone().finalize()))?;
                    record_checks::span(&header.started, &last.finished).map_err(|e| e.at(number))?;
                    footer = Some(last);
                }
            }
            hash.update(raw);
        }
        let (header, _) = header.ok_or(ResultsError::Incomplete { line: number, missing: "a header" })?;
        let footer = footer.ok_or(ResultsError::Incomplete { line: number, missing: "a footer" })?;
        Ok(Results { header, cases, measured, footer, sha256: hex::encode(hash.finalize()) })
    }
}

fn unmeasured(line: usize) -> ResultsError {
    ResultsError::Order { line, found: "footer", expected: "a measured line before it" }
}

fn misplaced(line: usize, found: &Line, expected: &'static str) -> ResultsError {
    let found = match found {
        Line::Header(_) => "header",
        Line::Case(_) => "case",
        Line::Measured(_) => "measured",
        Line::Footer(_) => "footer",
    };
    ResultsError::Order { line, found, expected }
}

fn check_footer(line: usize, footer: &Footer, cases: u64, sha256: &str) -> Result<(), ResultsError> {
    let wrong = |field: &str, found: &str, expected: String| ResultsError::Field {
        line,
        field: field.to_owned(),
        found: found.to_owned(),
        expected,
    };
    if footer.cases != cases {
        return Err(wrong("cases", &footer.cases.to_string(), format!("{cases}, the number of case lines")));
    }
    if footer.sha256 != sha256 {
        return Err(wrong("sha256", &footer.sha256, format!("{sha256}, the digest of the lines above")));
    }
    time::valid_until(&footer.finished)
        .map(drop)
        .map_err(|error| wrong("finished", &format!("{:?}", footer.finished), error.to_string()))
}

/// The longest line is that of the measurements: some 3 MiB.
const MAX_LINE_BYTES: usize = 16 << 20;

fn read_line(number: usize, bytes: &[u8]) -> Result<Line, ResultsError> {
    let malformed = |reason: String| ResultsError::Malformed { line: number, reason };
    if bytes.len() > MAX_LINE_BYTES {
        return Err(malformed(format!("it has {} bytes, more than {MAX_LINE_BYTES}", bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
    json::strict(text).map_err(malformed)?;
    let line: Line = serde_json::from_str(text).map_err(|error| malformed(error.to_string()))?;
    let canonical = match &line {
        Line::Header(header) => encode(number, &LineRef::Header(header)),
        Line::Case(case) => encode(number, &LineRef::Case(case)),
        Line::Measured(all) => encode(number, &LineRef::Measured(all)),
        Line::Footer(footer) => encode(number, &LineRef::Footer(footer)),
    }?;
    if canonical.as_bytes() == bytes {
        return Ok(line);
    }
    let same = canonical.bytes().zip(bytes).take_while(|(a, b)| a == *b).count();
    let excerpt = |text: &[u8]| String::from_utf8_lossy(&text[same..text.len().min(same + 40)]).into_owned();
    Err(ResultsError::NotCanonical {
        line: number,
        byte: same + 1,
        found: excerpt(bytes),
        expected: excerpt(canonical.as_bytes()),
    })
}

/// [`Line`] by reference, so that writing clones nothing.
#[derive(Serialize)]
#[serde(tag = "line", rename_all = "lowercase")]
enum LineRef<'a> {
    Header(&'a Header),
    Case(&'a CaseRecord),
    Measured(&'a Measured),
    Footer(&'a Footer),
}

fn encode(line: usize, content: &LineRef<'_>) -> Result<String, ResultsError> {
    serde_json::to_string(content).map_err(|error| ResultsError::Encode { line, reason: error.to_string() })
}

/// Writes a `results.jsonl` and hashes it on the way. What it writes, [`Results::parse`] accepts: a wrong line is
/// refused before a byte of it is written.
#[derive(Debug)]
pub struct ResultsWriter<W> {
    sink: W,
    hash: Sha256,
    header: Header,
    rules: Rules,
    cases: Vec<CaseRecord>,
    lines_of: HashMap<String, usize>,
    is_measured: bool,
}

impl<W: Write> ResultsWriter<W> {
    /// Starts a record with its header.
    ///
    /// # Errors
    /// [`ResultsError::Field`] for a header that cannot be, [`ResultsError::Write`] if the sink fails.
    pub fn new(sink: W, header: &Header) -> Result<Self, ResultsError> {
        record_checks::header(header).map_err(|e| e.at(1))?;
        let rules = record_checks::rules(header).map_err(|e| e.at(1))?;
        let mut writer = ResultsWriter {
            sink,
            hash: Sha256::new(),
            header: header.clone(),
            rules,
            cases: Vec::new(),
            lines_of: HashMap::new(),
            is_measured: false,
        };
        writer.line(1, &LineRef::Header(header))?;
        Ok(writer)
    }

    /// Adds a case line and flushes it, so that an interrupted run keeps what it had.
    ///
    /// # Errors
    /// [`ResultsError::Field`] for a case that cannot be, [`ResultsError::Duplicate`], [`ResultsError::Order`] after
    /// the measurements, [`ResultsError::Write`].
    pub fn case(&mut self, case: &CaseRecord) -> Result<(), ResultsError> {
        let line = self.cases.len() + 2;
        if self.is_measured {
            return Err(ResultsError::Order { line: line + 1, found: "case", expected: "the footer" });
        }
        record_checks::case(case, &self.rules, self.header.retries).map_err(|e| e.at(line))?;
        if let Some(first) = self.lines_of.get(&case.id) {
            return Err(ResultsError::Duplicate { line, id: case.id.clone(), first: *first });
        }
        self.line(line, &LineRef::Case(case))?;
        self.lines_of.insert(case.id.clone(), line);
        self.cases.push(case.clone());
        Ok(())
    }

    /// Adds what was measured beside the cases.
    ///
    /// # Errors
    /// [`ResultsError::Field`] for measurements that do not fit the cases, [`ResultsError::Order`] for a second line of
    /// them, [`ResultsError::Write`].
    pub fn measured(&mut self, all: &Measured) -> Result<(), ResultsError> {
        let line = self.cases.len() + 2;
        if self.is_measured {
            return Err(ResultsError::Order { line: line + 1, found: "measured", expected: "the footer" });
        }
        measured_checks::check(all, &self.header, &self.cases).map_err(|e| e.at(line))?;
        self.is_measured = true;
        self.line(line, &LineRef::Measured(all))
    }

    /// Ends the record with its footer; `finished` is RFC 3339 UTC. Gives the sink back, and the sha256 of every byte
    /// written.
    ///
    /// # Errors
    /// [`ResultsError::Field`] if `finished` is not a time, [`ResultsError::Order`] if the measurements of a run
    /// without a filter are missing, [`ResultsError::Write`] if the sink fails.
    pub fn finish(mut self, finished: &str) -> Result<(W, String), ResultsError> {
        let cases = self.cases.len();
        let line = cases + 2 + usize::from(self.is_measured);
        if self.header.filter.is_none() && !self.is_measured {
            return Err(unmeasured(line));
        }
        let sha256 = hex::encode(self.hash.clone().finalize());
        let footer = Footer { cases: cases as u64, sha256: sha256.clone(), finished: finished.to_owned() };
        check_footer(line, &footer, cases as u64, &sha256)?;
        record_checks::span(&self.header.started, finished).map_err(|e| e.at(line))?;
        self.line(line, &LineRef::Footer(&footer))?;
        Ok((self.sink, hex::encode(self.hash.finalize())))
    }

    fn line(&mut self, number: usize, content: &LineRef<'_>) -> Result<(), ResultsError> {
        let mut text = encode(number, content)?;
        text.push('\n');
        self.sink.write_all(text.as_bytes())?;
        self.sink.flush()?;
        self.hash.update(text.as_bytes());
        Ok(())
    }
}

/// sha256 over the ids sorted by bytes, each followed by a newline, as lower-case hex: how a set pins its cases.
pub fn ids_digest<'a>(ids: impl IntoIterator<Item = &'a str>) -> String {
    let mut ids: Vec<&str> = ids.into_iter().collect();
    ids.sort_unstable();
    let mut hash = Sha256::new();
    for id in ids {
        hash.update(id.as_bytes());
        hash.update(b"\n");
    }
    hex::encode(hash.finalize())
}
