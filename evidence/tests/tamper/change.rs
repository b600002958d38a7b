//! What may happen to a run folder between its writer and its reader, by accident or by intent.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use modelbench_evidence::keys::PrivateKey;
use p256::ecdsa::Signature;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::folder::{Delta, Entry, Files};
use crate::json_text::{EDITS, edited, nodes};
use crate::random::Random;

/// A change of the content of one file, or of the same text in several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operator {
    FlipBit,
    OtherByte,
    InsertByte,
    DeleteByte,
    SwapLines,
    DeleteLine,
    RepeatLine,
    Truncate,
    Append,
    Json,
    /// A change of the JSON in a payload, the same in every file that carries that payload.
    Payload,
    /// A change of the JSON of a line of `results.jsonl`, after which the footer fits again.
    CarefulLine,
    /// Base64 text of an envelope with other characters, the same in every file that carries it.
    Base64,
}

pub(crate) const OPERATORS: [Operator; 13] = [
    Operator::FlipBit,
    Operator::OtherByte,
    Operator::InsertByte,
    Operator::DeleteByte,
    Operator::SwapLines,
    Operator::DeleteLine,
    Operator::RepeatLine,
    Operator::Truncate,
    Operator::Append,
    Operator::Json,
    Operator::Payload,
    Operator::CarefulLine,
    Operator::Base64,
];

/// One change by an operator; `None` if the place that chance chose does not allow it, or nothing would change.
pub(crate) fn draw(operator: Operator, files: &Files, random: &mut Random) -> Option<Delta> {
    let names: Vec<&String> = files.keys().collect();
    let name = random.pick(&names);
    let bytes = &files[name];
    let one = |bytes: Vec<u8>| Some(Delta::from([(name.clone(), Entry::Bytes(bytes))]));
    let delta = match operator {
        Operator::Json if name.ends_with(".pem") => None,
        Operator::Json => {
            let (start, line) = line_at(bytes, random);
            let new = json(line, random)?;
            one([&bytes[..start], new.as_bytes(), &bytes[start + line.len()..]].concat())
        }
        Operator::Payload => payload(files, name, random),
        Operator::CarefulLine if name.ends_with(".jsonl") => one(careful_line(bytes, random)?),
        Operator::CarefulLine => None,
        Operator::Base64 => base64(files, name, random),
        _ => one(raw(operator, bytes, random)?),
    }?;
    let changes = delta.iter().any(|(name, entry)| *entry != Entry::Bytes(files[name].clone()));
    changes.then_some(delta)
}

fn raw(operator: Operator, bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let at = random.within(0..bytes.len());
    let mut new = bytes.to_vec();
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    let (i, j) = (random.within(0..lines.len()), random.within(0..lines.len()));
    match operator {
        Operator::FlipBit => new[at] ^= 1 << random.within(0..8),
        Operator::OtherByte => new[at] = random.byte(),
        Operator::InsertByte => {
            let byte =
                if random.within(0..2) == 0 { random.pick(b" \n\r\t0,}".as_slice()) } else { random.byte() };
            new.insert(random.within(0..bytes.len() + 1), byte);
        }
        Operator::DeleteByte => drop(new.remove(at)),
        Operator::Truncate => new.truncate(at),
        Operator::Append => {
            let tails: [&[u8]; 6] = [b"\n", b" ", b"{}\n", b"\0", lines[i], bytes];
            new.extend_from_slice(random.pick(&tails));
        }
        Operator::SwapLines => {
            lines.swap(i, j);
            new = lines.concat();
        }
        Operator::DeleteLine => {
            lines.remove(i);
            new = lines.concat();
        }
        Operator::RepeatLine => {
            lines.insert(j, lines[i]);
            new = lines.concat();
        }
        _ => return None,
    }
    Some(new)
}

/// A line, and where it begins.
fn line_at<'a>(bytes: &'a [u8], random: &mut Random) -> (usize, &'a str) {
    let text = std::str::from_utf8(bytes).expect("files are text");
    let lines: Vec<&str> = text.lines().collect();
    let line = random.pick(&lines);
    (line.as_ptr() as usize - text.as_ptr() as usize, line)
}

/// The JSON text with one node changed.
fn json(text: &str, random: &mut Random) -> Option<String> {
    let nodes = nodes(text);
    let (edit, node) = (random.pick(&EDITS), random.pick(&nodes));
    edited(text, &node, edit, random)
}

/// The JSON of an envelope, or of the one within a bundle.
fn envelope_of(file: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(file).ok()?;
    Some(value.get_mut("dsseEnvelope").map(Value::take).unwrap_or(value))
}

/// The first signature of an envelope.
pub(crate) fn signature_of(file: &[u8]) -> String {
    let envelope = envelope_of(file).expect("an envelope");
    envelope["signatures"][0]["sig"].as_str().expect("a signature").to_owned()
}

/// The JSON of a payload, if the file is an envelope or has one within.
pub(crate) fn payload_of(file: &[u8]) -> Option<(String, String)> {
    let encoded = envelope_of(file)?.get("payload")?.as_str()?.to_owned();
    let text = String::from_utf8(STANDARD.decode(&encoded).ok()?).ok()?;
    Some((encoded, text))
}

fn payload(files: &Files, name: &str, random: &mut Random) -> Option<Delta> {
    let (encoded, text) = payload_of(&files[name])?;
    let new = STANDARD.encode(json(&text, random)?);
    Some(everywhere(files, &encoded, &new))
}

/// Replaces a text in every file that has it.
pub(crate) fn everywhere(files: &Files, old: &str, new: &str) -> Delta {
    let with = files.iter().filter_map(|(name, bytes)| {
        let text = std::str::from_utf8(bytes).expect("files are text");
        text.contains(old).then(|| (name.clone(), Entry::Bytes(text.replace(old, new).into_bytes())))
    });
    with.collect()
}

/// Other characters for the same bytes where a lax decoder would not mind, and the other signature that fits.
fn base64(files: &Files, name: &str, random: &mut Random) -> Option<Delta> {
    let envelope = envelope_of(&files[name])?;
    let texts = [envelope.get("payload")?.as_str()?, envelope["signatures"][0]["sig"].as_str()?];
    let old = random.pick(&texts);
    let at = random.within(0..old.len() + 1);
    let new = match random.within(0..5) {
        0 => old.replace('=', ""),
        1 => format!("{old}="),
        2 => format!("{}\\n{}", &old[..at], &old[at..]),
        3 => loose_bits(old)?,
        _ => {
            let signature = Signature::from_der(&STANDARD.decode(texts[1]).ok()?).ok()?;
            let respelled = respelled(&signature);
            return Some(everywhere(files, texts[1], &STANDARD.encode(respelled)));
        }
    };
    Some(everywhere(files, old, &new))
}

/// The signature (r, n - s) for (r, s).
fn respelled(signature: &Signature) -> Vec<u8> {
    let (r, s) = signature.split_scalars();
    let other = Signature::from_scalars(*r, -*s).expect("a scalar that is not zero");
    other.to_der().as_bytes().to_vec()
}

/// The last character before the padding with its unused bits set.
fn loose_bits(old: &str) -> Option<String> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let padding = old.bytes().rev().take_while(|b| *b == b'=').count();
    if padding == 0 {
        return None;
    }
    let at = old.len() - padding - 1;
    let digit = ALPHABET.iter().position(|c| *c == old.as_bytes()[at])?;
    let loose = char::from(ALPHABET[digit | 1]);
    Some(format!("{}{loose}{}", &old[..at], &old[at + 1..]))
}

fn careful_line(bytes: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).expect("files are text");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let i = random.within(0..lines.len() - 1);
    lines[i] = json(&lines[i], random)?;
    Some(refooted(&lines))
}

/// The lines, with a footer that fits the ones above it.
fn refooted(lines: &[String]) -> Vec<u8> {
    let (footer, above) = lines.split_last().expect("several lines");
    let body = above.join("\n") + "\n";
    let old = footer.split("\"sha256\":\"").nth(1).expect("a digest").split('"').next().expect("a digest");
    (body.clone() + &footer.replace(old, &hex::encode(Sha256::digest(&body))) + "\n").into_bytes()
}

/// Every change of whole files: gone, empty, something else, renamed, spelled otherwise, exchanged with that of another run
/// of the same signer, alone and in pairs, exchanged with each other; and a key that is another's.
pub(crate) fn of_files(files: &Files, other: &Files) -> Vec<(&'static str, Delta)> {
    let mut all = Vec::new();
    for (name, bytes) in files {
        let mut add = |what, entry| all.push((what, Delta::from([(name.clone(), entry)])));
        add("deleted", Entry::Nothing);
        add("emptied", Entry::Bytes(Vec::new()));
        add("a folder", Entry::Folder);
        add("a link", Entry::Link(bytes.clone()));
        let text = std::str::from_utf8(bytes).expect("files are text");
        add("with the line ends of Windows", Entry::Bytes(text.replace('\n', "\r\n").into_bytes()));
        add("with a byte order mark", Entry::Bytes(format!("\u{feff}{text}").into_bytes()));
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            let pretty = serde_json::to_vec_pretty(&value).expect("JSON");
            add("printed for people", Entry::Bytes(pretty));
        }
        if name.ends_with(".pem") {
            let stranger = PrivateKey::generate().expect("a key").public_key().to_pem().expect("PEM");
            add("another key", Entry::Bytes(stranger.into_bytes()));
        }
        for new in [format!("{name}.bak"), name.to_uppercase(), format!(" {name}")] {
            let renamed = Delta::from([(name.clone(), Entry::Nothing), (new, Entry::Bytes(bytes.clone()))]);
            all.push(("renamed", renamed));
        }
        for (second, theirs) in files.iter().filter(|(second, _)| *second != name) {
            all.push((
                "copied from a neighbour",
                Delta::from([(name.clone(), Entry::Bytes(theirs.clone()))]),
            ));
            if name < second {
                let exchanged =
                    [(name, theirs), (second, bytes)].map(|(n, b)| (n.clone(), Entry::Bytes(b.clone())));
                all.push(("exchanged with a neighbour", Delta::from(exchanged)));
            }
            let foreign = [name, second].map(|n| (n.clone(), Entry::Bytes(other[n].clone())));
            all.push(("two of another run", Delta::from(foreign)));
        }
        all.push(("one of another run", Delta::from([(name.clone(), Entry::Bytes(other[name].clone()))])));
    }
    all.retain(|(_, delta)| {
        delta.iter().any(|(name, entry)| files.get(name).is_none_or(|b| *entry != Entry::Bytes(b.clone())))
    });
    all
}
