//! What looks like a tolerance in Rust.

use crate::lex::{Kind, Token, tokens};

/// Something that looks like a tolerance.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    pub line: usize,
    /// The literal, or the name where there is none.
    pub what: String,
    pub why: &'static str,
}

/// Parts of names, between underscores, that mean an allowed error.
const NAMES: [&str; 10] =
    ["tolerance", "tolerances", "tol", "epsilon", "atol", "rtol", "slack", "ulp", "ulps", "floor"];
/// Parts of names of quantities that a suite derives or states; Rust may not stretch them.
const LIMITS: [&str; 6] = ["bound", "bounds", "limit", "limits", "margin", "allowed"];
/// Numbers below this are too small to be anything but an error, a rate or an eps.
const SMALL: f64 = 0.1;

fn has_part(name: &str, parts: &[&str]) -> bool {
    name.to_lowercase().split('_').any(|part| parts.contains(&part))
}

/// A decimal literal without separators and without its suffix.
fn decimal(token: &Token) -> Option<String> {
    let hex = ["0x", "0b", "0o"].iter().any(|prefix| token.text.starts_with(prefix));
    if token.kind != Kind::Number || hex {
        return None;
    }
    let plain = token.text.replace('_', "");
    let plain = plain.trim_end_matches("f32").trim_end_matches("f64");
    // Suffixes of integers.
    plain.split(['u', 'i']).next().map(str::to_owned)
}

fn value(token: &Token) -> Option<f64> {
    decimal(token)?.parse().ok()
}

fn is_float(token: &Token) -> bool {
    let suffixed = token.text.ends_with("f32") || token.text.ends_with("f64");
    decimal(token).is_some_and(|text| suffixed || text.contains(['.', 'e', 'E']))
}

fn is_order(token: Option<&Token>) -> bool {
    token.is_some_and(|t| matches!(t.text.as_str(), "<" | "<=" | ">" | ">="))
}

/// Everything in a source that looks like a tolerance, in order.
pub fn scan(source: &str) -> Vec<Finding> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    for (i, token) in tokens.iter().enumerate() {
        let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
        let mut add = |what: &str, why| found.push(Finding { line: token.line, what: what.to_owned(), why });
        match token.kind {
            Kind::Number => {
                let Some(number) = value(token) else { continue };
                let before = if i > 0 && text(i - 1) == "-" { i - 1 } else { i };
                let compared =
                    is_order(tokens.get(i + 1)) || (before > 0 && is_order(tokens.get(before - 1)));
                if number != 0.0 && number.abs() < SMALL {
                    add(&token.text, "a small number");
                } else if is_float(token) && number != 0.0 && compared {
                    add(&token.text, "a comparison with a number");
                } else if number != 0.0
                    && before > 3
                    && is_order(tokens.get(before - 1))
                    && abs_call(&tokens, before - 1)
                {
                    add(&token.text, "a magnitude compared with a number");
                }
            }
            Kind::Word if token.text == "exp2" && text(i + 1) == "(" => {
                // `(-20f64).exp2()`: eight tokens from the bracket in front to the one behind.
                let literal = i >= 5 && text(i - 1) == "." && text(i - 2) == ")" && text(i - 4) == "-";
                let before = literal && i >= 6 && is_order(tokens.get(i - 6));
                if literal && (before || is_order(tokens.get(i + 3))) {
                    add("exp2", "a comparison with a power of two");
                }
            }
            Kind::Word if token.text == "EPSILON" => add("EPSILON", "the spacing of floats used as an error"),
            Kind::Word if has_part(&token.text, &NAMES) => {
                if let Some(given) = given(&tokens, i + 1).filter(|t| value(t) != Some(0.0)) {
                    add(&given.text.clone(), "a number given to the name of an allowed error");
                }
            }
            Kind::Word if has_part(&token.text, &LIMITS) => {
                let stretches = matches!(text(i + 1), "*" | "*=" | "+" | "+=" | "/" | "/=");
                if stretches && tokens.get(i + 2).is_some_and(is_float) {
                    add(text(i + 2), "a derived limit stretched by a number");
                }
            }
            _ => {}
        }
    }
    found
}

/// True if `abs()` stands right before the sign at `at`.
fn abs_call(tokens: &[Token], at: usize) -> bool {
    at >= 3 && tokens[at - 3].text == "abs" && tokens[at - 2].text == "(" && tokens[at - 1].text == ")"
}

/// The number that a name is given: `name = 1.0`, `name: 1.0`, `const NAME: f64 = 1.0`, `name: Some(1.0)`.
fn given(tokens: &[Token], mut at: usize) -> Option<&Token> {
    let text = |at: usize| tokens.get(at).map_or("", |t| t.text.as_str());
    if text(at) == ":" && text(at + 2) == "=" {
        at += 2;
    }
    if !matches!(text(at), "=" | ":") {
        return None;
    }
    at += 1;
    if text(at) == "Some" && text(at + 1) == "(" {
        at += 2;
    }
    if text(at) == "-" {
        at += 1;
    }
    tokens.get(at).filter(|t| value(t).is_some())
}
