//! Changes of JSON that leave the rest of the text as it is: a re-serialiser would sort the keys, and every change would
//! be refused for that alone.

use std::ops::Range;

use crate::random::Random;

/// A member of an object, an element of an array, or the whole text.
#[derive(Clone)]
pub(crate) struct Node {
    /// The key with its quotes, if it is a member.
    key: Option<Range<usize>>,
    value: Range<usize>,
    /// Where the next sibling begins and ends, if there is one.
    next: Option<Range<usize>>,
    root: bool,
}

impl Node {
    fn entry(&self) -> Range<usize> {
        self.key.as_ref().map_or(self.value.start, |key| key.start)..self.value.end
    }
}

/// Every node of a compact JSON text, outer ones first.
pub(crate) fn nodes(text: &str) -> Vec<Node> {
    let mut nodes = vec![Node { key: None, value: 0..0, next: None, root: true }];
    let end = value(text.as_bytes(), 0, &mut nodes);
    nodes[0].value = 0..end;
    assert_eq!(end, text.trim_end().len(), "not one JSON text: {text}");
    nodes
}

/// Reads the value at `at`, adds the nodes within it, and gives its end.
fn value(text: &[u8], at: usize, nodes: &mut Vec<Node>) -> usize {
    match text[at] {
        b'{' | b'[' => {
            let close = if text[at] == b'{' { b'}' } else { b']' };
            let (mut at, mut last) = (at + 1, None::<usize>);
            while text[at] != close {
                at += usize::from(text[at] == b',');
                let begin = at;
                let key = (close == b'}').then(|| at..string(text, at));
                let start = key.as_ref().map_or(at, |key| key.end + 1);
                let this = nodes.len();
                nodes.push(Node { key, value: start..start, next: None, root: false });
                at = value(text, start, nodes);
                nodes[this].value.end = at;
                if let Some(last) = last.replace(this) {
                    nodes[last].next = Some(begin..at);
                }
            }
            at + 1
        }
        b'"' => string(text, at),
        _ => at + text[at..].iter().take_while(|b| !b",]}\n".contains(b)).count(),
    }
}

fn string(text: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    while text[end] != b'"' {
        end += if text[end] == b'\\' { 2 } else { 1 };
    }
    end + 1
}

/// What is done to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edit {
    Value,
    Type,
    Name,
    Remove,
    Repeat,
    Swap,
    Add,
    Space,
}

pub(crate) const EDITS: [Edit; 8] =
    [Edit::Value, Edit::Type, Edit::Name, Edit::Remove, Edit::Repeat, Edit::Swap, Edit::Add, Edit::Space];

/// The text with one node changed; `None` if that edit has no meaning there.
pub(crate) fn edited(text: &str, node: &Node, edit: Edit, random: &mut Random) -> Option<String> {
    let replaced =
        |range: Range<usize>, new: &str| Some(format!("{}{new}{}", &text[..range.start], &text[range.end..]));
    let old = &text[node.value.clone()];
    let entry = node.entry();
    match edit {
        Edit::Value => replaced(node.value.clone(), &other_value(old, random)),
        Edit::Type => {
            let quoted = format!("{:?}", old.trim_matches('"'));
            let types = ["null", "true", "0", "[]", "{}", quoted.as_str(), &format!("[{old}]")];
            replaced(node.value.clone(), random.pick(&types))
        }
        Edit::Name => {
            let key = node.key.clone()?;
            let name = &text[key.start + 1..key.end - 1];
            let names = [format!("{name}x"), name.to_uppercase(), format!("{name}\u{200b}"), String::new()];
            replaced(key, &format!("\"{}\"", random.pick(&names)))
        }
        Edit::Remove if node.root => None,
        Edit::Remove => {
            let bytes = text.as_bytes();
            let before = bytes[entry.start - 1] == b',';
            let after = bytes[entry.end] == b',';
            let start = entry.start - usize::from(before && !after);
            replaced(start..entry.end + usize::from(after), "")
        }
        Edit::Repeat if node.root => None,
        Edit::Repeat => replaced(entry.clone(), &format!("{0},{0}", &text[entry.clone()])),
        Edit::Swap => {
            let next = node.next.clone()?;
            let (first, second) = (&text[entry.clone()], &text[next.clone()]);
            replaced(entry.start..next.end, &format!("{second},{first}"))
        }
        Edit::Add if old == "{}" => replaced(node.value.clone(), "{\"extra\":null}"),
        Edit::Add if old.starts_with('{') => {
            replaced(node.value.start..node.value.start + 1, "{\"extra\":null,")
        }
        Edit::Add if old == "[]" => replaced(node.value.clone(), "[null]"),
        Edit::Add if old.starts_with('[') => replaced(node.value.start..node.value.start + 1, "[null,"),
        Edit::Add => None,
        Edit::Space => replaced(node.value.start..node.value.start, random.pick(&[" ", "\t"])),
    }
}

/// Another value of the same type.
fn other_value(old: &str, random: &mut Random) -> String {
    match old.as_bytes()[0] {
        b'"' => {
            let inner = &old[1..old.len() - 1];
            let mut choices = vec![format!("\"{inner}x\""), "\"\"".to_owned(), format!("\"{inner} \"")];
            if inner.is_ascii() && !inner.contains('\\') && !inner.is_empty() {
                let at = random.within(0..inner.len());
                let swapped = if inner.as_bytes()[at] == b'0' { '1' } else { '0' };
                choices.push(format!("\"{}{swapped}{}\"", &inner[..at], &inner[at + 1..]));
                choices.push(format!("\"{}{}\"", &inner[..at], &inner[at + 1..]));
            }
            random.pick(&choices)
        }
        b't' => "false".to_owned(),
        b'f' => "true".to_owned(),
        b'n' => "0".to_owned(),
        b'{' => if old == "{}" { "{\"x\":0}" } else { "{}" }.to_owned(),
        b'[' => if old == "[]" { "[0]" } else { "[]" }.to_owned(),
        _ => {
            let number: f64 = old.parse().expect("a number");
            let choices = match old.parse::<u64>() {
                Ok(n) => {
                    vec![(n + 1).to_string(), n.saturating_sub(1).to_string(), format!("{old}0"), "0".into()]
                }
                Err(_) => vec![
                    format!("{:?}", number / 2.0),
                    format!("{old}1"),
                    format!("{:?}", -number),
                    "0".into(),
                ],
            };
            random.pick(&choices)
        }
    }
}
