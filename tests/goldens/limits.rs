//! `golden/limits.toml`: how far the kit's float64 evaluations may be from the goldens, and why.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The limit of one op: `relative * size + absolute`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    pub relative: f64,
    pub absolute: f64,
    pub why: String,
}

/// Every limit, by op.
pub fn read() -> BTreeMap<String, Limit> {
    let text = String::from_utf8(crate::file::read("limits.toml")).unwrap();
    let limits: BTreeMap<String, Limit> = toml::from_str(&text).unwrap();
    for (op, limit) in &limits {
        assert!(limit.why.split_whitespace().count() >= 5, "{op}: a limit needs a reason");
        assert!(limit.relative >= 0.0 && limit.absolute >= 0.0, "{op}");
        let f32_would_pass = limit.relative > f64::from(f32::EPSILON) / 65536.0;
        assert!(!f32_would_pass, "{op}: the limit is too near to the rounding of f32 to tell anything");
    }
    limits
}
