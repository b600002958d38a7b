//! The text form of a tree: `((0 1) (2 3))`, one space between children and none elsewhere.

use std::fmt;
use std::str::FromStr;

use super::{MAX_LEAVES, Tree};

/// Why a text is no tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    /// The text breaks the grammar.
    #[error("summation tree: at byte {at} found {found}; expected {expected}, as in ((0 1) (2 3))")]
    Syntax {
        /// Position in the text.
        at: usize,
        /// What stands there.
        found: String,
        /// What should.
        expected: &'static str,
    },
    /// It is a tree, written in another way than the one that counts.
    #[error("summation tree: children must be sorted by their smallest term: expected {expected}, got {got}")]
    NotCanonical {
        /// How the tree is written, shortened.
        expected: String,
        /// How it was, shortened.
        got: String,
    },
    /// Terms are missing, repeated or beyond the end.
    #[error("summation tree of {product} over k={k}: expected the terms 0 to {last}, each once, got {leaves} terms{}",
        .wrong.map(|i| format!(" and term {i} missing or not alone")).unwrap_or_default())]
    Terms {
        /// The product.
        product: &'static str,
        /// Terms it should have.
        k: u64,
        /// The last of them.
        last: u64,
        /// Terms that it has.
        leaves: usize,
        /// The first of `0..k` that is not there exactly once.
        wrong: Option<usize>,
    },
    /// More terms than any probe asks for.
    #[error("summation tree: more than {MAX_LEAVES} terms or levels; no probe asks for that many")]
    TooLarge,
    /// One product was given two trees for the same number of terms.
    #[error("summation trees: {product} over k={k} occurs twice; expected one tree for each")]
    Twice {
        /// The product.
        product: &'static str,
        /// Terms.
        k: u64,
    },
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.children.is_empty() {
            return write!(f, "{}", self.first);
        }
        for (i, child) in self.children.iter().enumerate() {
            write!(f, "{}{child}", if i == 0 { "(" } else { " " })?;
        }
        f.write_str(")")
    }
}

impl FromStr for Tree {
    type Err = TreeError;

    /// Reads the text form. A tree has one text, so anything but that text is refused: other spaces, leading zeros,
    /// children in another order, nodes with one child. Which terms occur is not looked at.
    fn from_str(text: &str) -> Result<Tree, TreeError> {
        let mut reader = Reader { text, at: 0, terms: 0 };
        let tree = reader.tree()?;
        if reader.at < text.len() {
            return Err(reader.expected("the end"));
        }
        let canonical = tree.to_string();
        if canonical != text {
            let short = |text: &str| text.chars().take(60).collect();
            return Err(TreeError::NotCanonical { expected: short(&canonical), got: short(text) });
        }
        Ok(tree)
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    terms: usize,
}

impl Reader<'_> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> TreeError {
        let rest = self.text.get(self.at..).and_then(|rest| rest.chars().next());
        let found = rest.map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"));
        TreeError::Syntax { at: self.at, found, expected }
    }

    /// Nodes that are open are kept in a list, so that no text can exhaust the stack.
    fn tree(&mut self) -> Result<Tree, TreeError> {
        let mut open: Vec<Vec<Tree>> = Vec::new();
        loop {
            let mut done = match self.next() {
                Some(b'(') => {
                    self.at += 1;
                    open.push(Vec::new());
                    if open.len() > MAX_LEAVES {
                        return Err(TreeError::TooLarge);
                    }
                    continue;
                }
                Some(b'0'..=b'9') => self.term()?,
                _ => return Err(self.expected("a term or (")),
            };
            loop {
                let Some(children) = open.last_mut() else { return Ok(done) };
                children.push(done);
                match self.text.as_bytes().get(self.at) {
                    Some(b' ') => {
                        self.at += 1;
                        break;
                    }
                    Some(b')') if children.len() > 1 => {
                        self.at += 1;
                        let mut children = open.pop().unwrap_or_default().into_iter();
                        let Some(first) = children.next() else { return Err(self.expected("a child")) };
                        done = Tree::join(first, children);
                    }
                    _ => return Err(self.expected("a space and another child, or ) after two or more")),
                }
            }
        }
    }

    fn term(&mut self) -> Result<Tree, TreeError> {
        let digits = self.text.as_bytes()[self.at..].iter().take_while(|b| b.is_ascii_digit()).count();
        let number = self.text.get(self.at..self.at + digits).and_then(|text| text.parse::<usize>().ok());
        let Some(index) = number else { return Err(self.expected("a term's index")) };
        self.terms += 1;
        if self.terms > MAX_LEAVES {
            return Err(TreeError::TooLarge);
        }
        self.at += digits;
        Ok(Tree::leaf(index))
    }
}

/// Characters of a shortened text, about.
const SHORT: usize = 76;
/// Fewest terms in order that are written as a run.
const RUN: usize = 4;

/// The text form with terms that are added in order written as runs, such as `0..56/8` for 0, 8, ..., 56, cut where it
/// gets long.
pub(super) fn shortened(tree: &Tree) -> String {
    let mut text = String::new();
    write_short(tree, &mut text);
    if text.chars().count() > SHORT {
        text = text.chars().take(SHORT).collect();
        text.push('…');
    }
    text
}

fn write_short(tree: &Tree, into: &mut String) {
    if into.len() > SHORT * 2 {
        return;
    }
    if let Some(run) = run(tree) {
        into.push_str(&run);
    } else if tree.children.is_empty() {
        into.push_str(&tree.first.to_string());
    } else {
        for (i, child) in tree.children.iter().enumerate() {
            into.push(if i == 0 { '(' } else { ' ' });
            write_short(child, into);
        }
        into.push(')');
    }
}

/// `first..last/step` if the tree adds such terms one after the other.
fn run(tree: &Tree) -> Option<String> {
    let mut terms = Vec::new();
    let mut node = tree;
    loop {
        let [a, b] = node.children.as_slice() else { return None };
        match (a.children.is_empty(), b.children.is_empty()) {
            (true, true) => {
                // Which of the two comes first is a matter of what follows them.
                let follows = terms.last().copied().unwrap_or(b.first);
                let (near, far) = if follows.abs_diff(a.first) < follows.abs_diff(b.first) {
                    (a.first, b.first)
                } else {
                    (b.first, a.first)
                };
                terms.extend([near, far]);
                break;
            }
            (true, false) => {
                terms.push(a.first);
                node = b;
            }
            (false, true) => {
                terms.push(b.first);
                node = a;
            }
            (false, false) => return None,
        }
    }
    terms.reverse();
    let (first, last, step) = (*terms.first()?, *terms.last()?, terms[0].abs_diff(terms[1]));
    let steady = terms.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == step)
        && (terms.is_sorted() || terms.is_sorted_by(|a, b| a > b));
    let by = if step == 1 { String::new() } else { format!("/{step}") };
    (terms.len() >= RUN && steady).then(|| format!("{first}..{last}{by}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_round_trips() {
        for text in ["0", "(0 1)", "((0 1) (2 3))", "((0 2 4) (1 (3 5)))", "(0 (1 (2 3)))"] {
            assert_eq!(text.parse::<Tree>().map(|tree| tree.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn one_tree_has_one_text() {
        for text in [
            "",
            "(",
            ")",
            "()",
            "(0)",
            "(0 1",
            "(0 1))",
            "(0  1)",
            "( 0 1)",
            "(0 1 )",
            " (0 1)",
            "(0 1) ",
            "(0,1)",
            "(0 x)",
            "(0 -1)",
            "00",
            "(01 2)",
            "(1 0)",
            "((2 3) (0 1))",
            "(0 (2 1))",
            "(0(1 2))",
            "(0 18446744073709551616)",
            "0 1",
            "é",
            "(0 é)",
        ] {
            assert!(text.parse::<Tree>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn hostile_texts_end() {
        let deep = "(".repeat(1_000_000);
        assert_eq!(deep.parse::<Tree>(), Err(TreeError::TooLarge));
        let wide = format!("({})", vec!["0"; MAX_LEAVES + 1].join(" "));
        assert_eq!(wide.parse::<Tree>(), Err(TreeError::TooLarge));
    }

    #[test]
    fn runs_are_shortened() {
        let short = |text: &str| shortened(&text.parse().expect("a tree"));
        assert_eq!(short("((((0 1) 2) 3) 4)"), "0..4");
        assert_eq!(short("(0 (1 (2 (3 4))))"), "4..0");
        assert_eq!(short("((((0 8) 16) 24) (((1 9) 17) 25))"), "(0..24/8 1..25/8)");
        assert_eq!(short("(((0 1) 2) 4)"), "(((0 1) 2) 4)");
    }
}
