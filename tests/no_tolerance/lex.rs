//! Enough of Rust's lexical grammar to look for literals: no comment, string, character or attribute content remains,
//! and what stands below `#[cfg(test)]` is left out.

/// A token with the line that it is on.
#[derive(Debug, Clone, PartialEq)]
pub struct Token {
    pub line: usize,
    pub text: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Word,
    Number,
    /// One operator of one or two characters, or a bracket.
    Sign,
}

/// The tokens of a source without those of test modules.
pub fn tokens(source: &str) -> Vec<Token> {
    without_tests(all(source))
}

fn all(source: &str) -> Vec<Token> {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut i, mut line, mut found) = (0, 1, Vec::new());
    while i < chars.len() {
        let start = i;
        let kind = match (at(i), at(i + 1)) {
            ('/', '/') => {
                while i < chars.len() && at(i) != '\n' {
                    i += 1;
                }
                None
            }
            ('/', '*') => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => (depth, i) = (depth + 1, i + 2),
                        ('*', '/') => (depth, i) = (depth - 1, i + 2),
                        _ => i += 1,
                    }
                    if depth == 0 || i >= chars.len() {
                        break None;
                    }
                }
            }
            ('"', _) => {
                i = text_end(&chars, i);
                None
            }
            ('\'', c) if c == '\\' || at(i + 2) == '\'' => {
                i += if c == '\\' { 3 } else { 2 };
                while i < chars.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
                None
            }
            (c, _) if c.is_ascii_digit() => {
                i = number_end(&chars, i);
                Some(Kind::Number)
            }
            (c, _) if word(c) => {
                while word(at(i)) {
                    i += 1;
                }
                let prefix: String = chars[start..i].iter().collect();
                match (prefix.as_str(), at(i)) {
                    ("r" | "br" | "cr", '"' | '#') if raw_end(&chars, i).is_some() => {
                        i = raw_end(&chars, i).unwrap();
                        None
                    }
                    ("b" | "c", '"') => {
                        i = text_end(&chars, i);
                        None
                    }
                    _ => Some(Kind::Word),
                }
            }
            (c, _) if c.is_whitespace() => {
                i += 1;
                None
            }
            (a, b) => {
                let pair: String = [a, b].iter().collect();
                i += if PAIRS.contains(&pair.as_str()) { 2 } else { 1 };
                Some(Kind::Sign)
            }
        };
        let text: String = chars[start..i.min(chars.len())].iter().collect();
        if let Some(kind) = kind {
            found.push(Token { line, text: text.clone(), kind });
        }
        line += text.matches('\n').count();
    }
    found
}

const PAIRS: [&str; 12] = ["<=", ">=", "==", "!=", "*=", "+=", "-=", "/=", "=>", "->", "::", ".."];

/// Behind the closing quote of a string whose opening quote is at `i`.
fn text_end(chars: &[char], mut i: usize) -> usize {
    i += 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

/// Behind a raw string whose first `#` or quote is at `i`; `None` for a raw identifier.
fn raw_end(chars: &[char], i: usize) -> Option<usize> {
    let hashes = chars[i..].iter().take_while(|c| **c == '#').count();
    if chars.get(i + hashes) != Some(&'"') {
        return None;
    }
    let closes = |at: usize| chars[at] == '"' && chars[at + 1..].iter().take(hashes).all(|c| *c == '#');
    (i + hashes + 1..chars.len()).find(|&at| closes(at)).map(|at| at + 1 + hashes)
}

/// Behind a number: digits, a fraction (but not a range or a method), an exponent with its sign, a suffix.
fn number_end(chars: &[char], mut i: usize) -> usize {
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let hex = at(i) == '0' && matches!(at(i + 1), 'x' | 'b' | 'o');
    loop {
        let exponent = !hex && matches!(at(i), 'e' | 'E') && matches!(at(i + 1), '-' | '+');
        let fraction = at(i) == '.' && at(i + 1) != '.' && !at(i + 1).is_alphabetic() && at(i + 1) != '_';
        if exponent {
            i += 2;
        } else if at(i).is_alphanumeric() || at(i) == '_' || fraction {
            i += 1;
        } else {
            return i;
        }
    }
}

/// Drops each item behind `#[cfg(test)]`, up to the end of its braces or its semicolon.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut kept, mut i) = (Vec::new(), 0);
    while i < tokens.len() {
        let here = tokens[i..].iter().map(|t| t.text.as_str());
        if !here.take(CFG_TEST.len()).eq(CFG_TEST) {
            kept.push(tokens[i].clone());
            i += 1;
            continue;
        }
        i += CFG_TEST.len();
        let mut depth = 0;
        while i < tokens.len() {
            match tokens[i].text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 && matches!(tokens[i - 1].text.as_str(), "}" | ";") {
                break;
            }
        }
    }
    kept
}
