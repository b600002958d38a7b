//! No Rust file of the program carries a tolerance, and every tolerance in the data says why.
//!
//! This is about errors of values; how much memory or time may differ is no tolerance in this sense. Tests may have
//! limits of their own, so folders named `tests` and what is below `#[cfg(test)]` are not searched.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop where it is")]

mod lex;
mod rules;

use std::path::{Path, PathBuf};

use rules::scan;

/// Numbers that look like tolerances and are none: file, literal, reason. An entry that matches nothing is an error.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("backends/vulkan/examples/decode.rs", "1e-5", "the eps argument of a norm"),
    ("evidence/src/record_checks.rs", "1.0", "the whole, of which a share cannot be more"),
    (
        "fixtures/zoo/src/elementwise.rs",
        "0.044_715",
        "a coefficient of the tanh form of GELU, which a mutant computes",
    ),
    ("reference/src/q8_0.rs", "0.5", "the contract's rounding of codes: away from zero from one half on"),
    ("src/model/config.rs", "1.0", "the range of an eps and of a theta in a configuration file"),
    (
        "src/runner/forward.rs",
        "2.0",
        "two answers, each within the same limit of the truth, are within twice it of each other",
    ),
    ("src/report/numerics.rs", "1.0", "a share of elements that is printed only, as all of them"),
    ("src/runner/caps/feed_forward.rs", "1e-5", "the eps argument of a norm"),
    ("src/runner/layer.rs", "1e-5", "the eps argument of a norm"),
    (
        "src/runner/metamorphic/norm.rs",
        "EPSILON",
        "the kit's own rounding of a length to f32 before it is compared",
    ),
    ("src/runner/numerics/elementwise.rs", "0.003_906_25", "input data, 2^-8"),
    ("src/runner/refusal.rs", "1e-5", "the eps argument of a call that must be refused"),
];

/// Fewest words of a reason.
const WORDS: usize = 3;

/// Keys of tables in suites and limits that allow an error.
const KEYS: [&str; 12] = [
    "slack",
    "exp_ulp",
    "trig_ulp",
    "rsqrt_ulp",
    "div_ulp",
    "angle_f32",
    "multiple",
    "cosine_floor",
    "reference_limit",
    "oracle_limit",
    "relative",
    "absolute",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Files below a folder with an extension, by path within the repository. Folders of tests, builds and hidden ones are
/// left out.
fn files(folder: &Path, extension: &str) -> Vec<(String, String)> {
    let (mut open, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "tests", "node_modules"].contains(&name) {
                    open.push(path);
                }
            } else if name != "tests.rs" && path.extension().is_some_and(|e| e == extension) {
                let within = path.strip_prefix(root()).unwrap().to_str().unwrap().replace('\\', "/");
                found.push((within, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_rust_file_carries_a_tolerance() {
    let sources = files(root(), "rs");
    for part in [
        "src/",
        "contract/src/",
        "reference/src/",
        "evidence/src/",
        "backends/candle/src/",
        "backends/vulkan/src/",
        "fixtures/zoo/src/",
    ] {
        assert!(sources.iter().any(|(path, _)| path.starts_with(part)), "nothing was searched in {part}");
    }
    let mut used = vec![false; ALLOWED.len()];
    let mut wrong = Vec::new();
    for (path, source) in &sources {
        for finding in scan(source) {
            let entry = ALLOWED.iter().position(|(file, what, _)| file == path && *what == finding.what);
            match entry {
                Some(entry) => used[entry] = true,
                None => wrong.push(format!("{path}:{}: {}: {}", finding.line, finding.what, finding.why)),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "these look like tolerances; move them to a suite with a `why`, or state in ALLOWED what else they are:\n{}",
        wrong.join("\n")
    );
    for ((file, what, why), used) in ALLOWED.iter().zip(used) {
        assert!(used, "ALLOWED lists {what} of {file}, which is no longer there");
        assert!(why.split_whitespace().count() >= WORDS, "{file} {what}: the reason is too short");
    }
}

#[test]
fn planted_tolerances_are_found() {
    for (source, what) in [
        ("const TOLERANCE: f64 = 2.0;", "2.0"),
        ("let rtol = 3;", "3"),
        ("let t = Tolerance::Bound { slack: 1.5, exp_ulp };", "1.5"),
        ("Allowance { exp_ulp: 16.0, ..none }", "16.0"),
        ("let abs_tol: Option<f64> = None; f(Spec { abs_tol: Some(-4.0) })", "4.0"),
        ("if error.abs() < 5 { pass() }", "5"),
        ("if (got - want).abs() <= 1e-5 * want { pass() }", "1e-5"),
        ("let near = |d: f32| d > 2.5;", "2.5"),
        ("if 0.999 <= cosine { pass() }", "0.999"),
        ("const LIMIT: f64 = 0.001;", "0.001"),
        ("let x = want * (1.0 + 1_e-3_f64);", "1_e-3_f64"),
        ("let ok = error <= bound * 2.0;", "2.0"),
        ("bounds.iter_mut().for_each(|bound| *bound *= 4.0);", "4.0"),
        ("let ok = error < limit + 0.5;", "0.5"),
        ("if error < f32::EPSILON { pass() }", "EPSILON"),
        ("if error < (-20f64).exp2() { pass() }", "exp2"),
        ("if (-20f64).exp2() >= error { pass() }", "exp2"),
        ("let text = r#\"a \" b\"#; let c = '\"'; let slack = 7.0; // \"", "7.0"),
        ("#[cfg(test)]\nmod tests { fn f() { let slack = 1.0; } }\nconst SLACK: f64 = 8.0;", "8.0"),
        ("#[cfg(test)]\nmod tests;\nconst SLACK: f64 = 9.0;", "9.0"),
        ("fn f<'a>(x: &'a f32) { let slack = 6.0; let c = 'x'; }", "6.0"),
    ] {
        let found: Vec<String> = scan(source).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, [what], "{source}");
    }
}

#[test]
fn what_is_no_tolerance_is_not_found() {
    for source in [
        "// const TOLERANCE: f64 = 1e-5;\n/* error.abs() < 1e-5 /* 1e-6 */ 1e-7 */",
        "let help = \"tolerance = 1e-5, \\\"0.01\\\"\"; let raw = br##\"slack = \"#2.0\"##;",
        "let exp_ulp: f64 = suite.exp_ulp; let slack = case.slack;",
        "Allowance { exp_ulp: 0.0, trig_ulp: 0.0 }",
        "for i in 0..5 { x.0.1.max(2.0); }",
        "if count < 5 && v > 0.0 && sum.abs() > 0.0 { half(0.5) }",
        "fn limit(x: Vec<f32>) -> Option<f64> { x.len() * limit }",
        "#[cfg(test)]\nmod tests { const TOLERANCE: f64 = 1e-5; }",
        "if ranks < 1usize || x < (n as f32).exp2() { small((-7f32).exp2()) }",
        "let mask = 0x1e-5 as u32; let bits = 0b1;",
    ] {
        assert_eq!(scan(source), [], "{source}");
    }
}

/// Tables that allow an error without a reason: every `tolerance`, and every table with a key of [`KEYS`].
fn unreasoned(path: &str, table: &toml::Table, named: bool, wrong: &mut Vec<String>) -> usize {
    let (mut tolerances, mut here) = (0, Vec::new());
    for (key, value) in table {
        if KEYS.contains(&key.as_str()) {
            here.push(key.as_str());
        }
        let inner: Vec<&toml::Table> = match value {
            toml::Value::Table(table) => vec![table],
            toml::Value::Array(list) => list.iter().filter_map(toml::Value::as_table).collect(),
            _ => Vec::new(),
        };
        for table in inner {
            tolerances += unreasoned(path, table, key == "tolerance", wrong);
        }
    }
    if !named && here.is_empty() {
        return tolerances;
    }
    let why = table.get("why").and_then(toml::Value::as_str).unwrap_or_default();
    if why.split_whitespace().count() < WORDS {
        wrong.push(format!(
            "{path}: a tolerance ({here:?}) has the reason {why:?}; say why in {WORDS} words or more"
        ));
    }
    tolerances + 1
}

#[test]
fn every_tolerance_in_the_data_says_why() {
    let (mut wrong, mut tolerances) = (Vec::new(), 0);
    for folder in ["suites", "golden"] {
        for (path, text) in files(&root().join(folder), "toml") {
            let found = unreasoned(&path, &toml::from_str(&text).unwrap(), false, &mut wrong);
            assert!(
                found > 0 || path.starts_with("suites/sets/") || path.ends_with("MANIFEST.toml")
                    // What cases accept is found out, not set.
                    || path == "suites/discrimination.toml",
                "{path}: no tolerance"
            );
            tolerances += found;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tolerances > 50, "{tolerances} tolerances were found");
}

#[test]
fn a_tolerance_without_a_reason_is_found() {
    for (text, bad) in [
        ("[[group]]\ntolerance = { kind = \"exact\", why = \"an index is right or wrong\" }", 0),
        ("[[group]]\ntolerance = { kind = \"exact\", why = \"\" }", 1),
        ("[[group]]\ntolerance = { kind = \"exact\" }", 1),
        ("[[group]]\nwhy = \"a reason of another thing\"\ntolerance = { kind = \"bound\", why = \"so\" }", 1),
        ("[rope]\nrelative = 1e-9", 1),
        ("[[group]]\nslack = 2.0\n[[group]]\nexp_ulp = 3.0", 2),
    ] {
        let mut wrong = Vec::new();
        unreasoned("a file", &toml::from_str(text).unwrap(), false, &mut wrong);
        assert_eq!(wrong.len(), bad, "{text}: {wrong:?}");
    }
}
