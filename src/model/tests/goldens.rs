//! Goldens: what they hold, that the manifest says the same, and that broken ones are refused.

use sha2::{Digest, Sha256};

use super::make::open_bundled;
use super::*;
use crate::model::source::Source;

const MANIFEST: &str = include_str!("../../../golden/MANIFEST.toml");
const MODELS: [(&str, &[u8]); 4] = [
    ("models/kjv.safetensors", include_bytes!("../../../golden/models/kjv.safetensors")),
    ("models/tied.safetensors", include_bytes!("../../../golden/models/tied.safetensors")),
    ("models/untied.safetensors", include_bytes!("../../../golden/models/untied.safetensors")),
    ("models/smollm2-135m.safetensors", include_bytes!("../../../golden/models/smollm2-135m.safetensors")),
];

#[test]
fn the_manifest_and_the_program_agree_on_every_model() {
    let manifest: toml::Table = MANIFEST.parse().unwrap();
    let entries = manifest["golden"].as_array().unwrap();
    for (path, bytes) in MODELS {
        let entry =
            entries.iter().find(|e| e["path"].as_str() == Some(path)).unwrap_or_else(|| panic!("{path}"));
        assert_eq!(entry["sha256"].as_str(), Some(hex::encode(Sha256::digest(bytes)).as_str()), "{path}");
        let model = entry["model_sha256"].as_str().unwrap();
        let golden = ModelGolden::read(path, bytes).unwrap();
        assert_eq!(bundled_golden(model).unwrap().unwrap(), golden, "{path}");
    }
    for name in BUNDLED {
        let digest = open_bundled(name).digest().to_owned();
        let entry = entries.iter().find(|e| e.get("model_sha256").and_then(|v| v.as_str()) == Some(&digest));
        assert_eq!(entry.unwrap()["path"].as_str(), Some(format!("models/{name}.safetensors").as_str()));
    }
    assert!(bundled_golden("0").is_none() && bundled("nothing").is_none());
}

#[test]
fn a_large_model_has_a_digest_of_its_logits() {
    let golden = ModelGolden::read(MODELS[3].0, MODELS[3].1).unwrap();
    assert_eq!(golden.input_ids.len(), 17);
    assert!(golden.logits.is_none() && golden.hidden.is_empty());
    let (argmax, ids) = (golden.argmax.unwrap(), golden.top8_ids.unwrap());
    let (values, margin) = (golden.top8_logits.unwrap(), golden.margin.unwrap());
    for position in 0..17 {
        assert_eq!(ids.row(position).unwrap()[0], argmax[position]);
        let row = values.row(position).unwrap();
        assert!((row[0] - row[1] - margin[position]).abs() < 1e-12);
    }
    assert_eq!(golden.last_logits.unwrap()[argmax[16]], values.row(16).unwrap()[0]);
    assert_eq!(golden.final_hidden.unwrap().columns, 576);
}

#[test]
fn broken_goldens_are_refused_by_tensor() {
    let f64s =
        |shape: &str, end: usize| format!(r#"{{"dtype":"F64","shape":{shape},"data_offsets":[8,{end}]}}"#);
    let ids = r#""input_ids":{"dtype":"I32","shape":[2],"data_offsets":[0,8]}"#;
    let cases = [
        (format!("{{{}}}", ids.replace("input_ids", "ids")), 8, "input_ids"),
        (format!("{{{ids}}}"), 8, "logits_f64\": expected this tensor, or argmax"),
        (format!(r#"{{{ids},"logits_f64":{}}}"#, f64s("[1,2]", 24)), 24, "a row for each of 2 tokens"),
        (format!(r#"{{{ids},"extra":{}}}"#, f64s("[2,1]", 24)), 24, "\"extra\": expected only the tensors"),
        (
            format!(r#"{{{ids},"logits_f64":{}}}"#, f64s("[4]", 24).replace("F64", "F32")),
            24,
            "F64 of one or two dimensions",
        ),
    ];
    for (header, data, message) in cases {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; data]].concat();
        let error = ModelGolden::from_source(&Source::owned("g", bytes)).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    let header = format!(r#"{{{ids},"logits_f64":{}}}"#, f64s("[2,1]", 24));
    let mut bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &[0; 24]].concat();
    assert!(ModelGolden::from_source(&Source::owned("g", bytes.clone())).is_ok());
    let at = bytes.len() - 8;
    bytes[at..].copy_from_slice(&f64::NAN.to_le_bytes());
    let error = ModelGolden::from_source(&Source::owned("g", bytes.clone())).unwrap_err().to_string();
    assert!(error.contains("finite"), "{error}");
    bytes[at - 16..at - 12].copy_from_slice(&(-1i32).to_le_bytes());
    let error = ModelGolden::from_source(&Source::owned("g", bytes)).unwrap_err().to_string();
    assert!(error.contains("no negative values, found -1"), "{error}");
}
