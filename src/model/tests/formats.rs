//! Both file formats: same model, same bits.

use std::collections::BTreeMap;
use std::sync::Arc;

use tempfile::TempDir;

use super::make::{
    GgufWriter, Tensors, config_json, gguf_of, open_bundled, safetensors_bytes, tensors_of, tiny,
};
use super::*;
use crate::model::gguf::Gguf;
use crate::model::safetensors::read_header;
use crate::model::source::Source;

const TOKENS: [usize; 6] = [3, 14, 15, 9, 2, 6];

pub(super) fn hf_folder(config: &ModelConfig, tensors: &Tensors) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config_json(config).to_string()).unwrap();
    std::fs::write(folder.path().join("model.safetensors"), safetensors_bytes(tensors)).unwrap();
    folder
}

fn gguf_file(gguf: &GgufWriter) -> (TempDir, Model) {
    let folder = tempfile::tempdir().unwrap();
    // The name says nothing: content decides.
    let path = folder.path().join("some.model");
    std::fs::write(&path, gguf.write().0).unwrap();
    let model = Model::open(&path).unwrap();
    (folder, model)
}

#[test]
fn gguf_gives_the_bits_of_the_folder_it_came_from() {
    for name in ["tied", "untied"] {
        let model = open_bundled(name);
        let gguf = gguf_of(model.config(), &tensors_of(&model));
        let (_folder, converted) = gguf_file(&gguf);
        assert_eq!(converted.config(), model.config());
        assert_eq!((converted.parameters(), converted.name()), (model.parameters(), "some"));
        assert_eq!(bits(&run(&mut cpu(), &converted, &TOKENS)), bits(&run(&mut cpu(), &model, &TOKENS)));
    }
}

#[test]
fn parameters_count_a_tied_matrix_once() {
    assert_eq!(open_bundled("kjv").parameters(), 771_200);
    let difference = open_bundled("untied").parameters() - open_bundled("tied").parameters();
    assert_eq!(difference, 128 * 64);
}

#[test]
fn a_loose_safetensors_file_takes_the_config_beside_it() {
    let (config, tensors) = tiny(Family::Llama, true);
    let folder = hf_folder(&config, &tensors);
    let path = folder.path().join("model.safetensors");
    let from_folder = Model::open(folder.path()).unwrap();
    let from_file = Model::open(&path).unwrap();
    assert_eq!(from_file.config(), from_folder.config());
    assert_eq!(from_file.digest(), from_folder.digest());
    // Its own configuration wins over the common one.
    let mut own = config_json(&config);
    own["rope_theta"] = 500.0.into();
    std::fs::write(folder.path().join("model.config.json"), own.to_string()).unwrap();
    assert_eq!(Model::open(&path).unwrap().config().theta, 500.0);
    assert_eq!(from_folder.files().len(), 2);
    assert_eq!(from_folder.files()[0].sha256, from_folder.digest());
}

#[test]
fn shards_are_one_model() {
    let whole = open_bundled("untied");
    let tensors = tensors_of(&whole);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), config_json(whole.config()).to_string()).unwrap();
    let mut map = BTreeMap::new();
    for part in 0..3 {
        let shard = format!("model-0000{}-of-00003.safetensors", part + 1);
        let mine: Vec<_> = tensors.iter().skip(part).step_by(3).collect();
        mine.iter().for_each(|(name, _)| drop(map.insert((*name).clone(), shard.clone())));
        std::fs::write(folder.path().join(shard), safetensors_bytes(mine)).unwrap();
    }
    let index = serde_json::json!({"metadata": {"total_size": 0}, "weight_map": map});
    std::fs::write(folder.path().join("model.safetensors.index.json"), index.to_string()).unwrap();
    let model = Model::open(folder.path()).unwrap();
    assert_eq!(bits(&run(&mut cpu(), &model, &TOKENS)), bits(&run(&mut cpu(), &whole, &TOKENS)));
    assert_eq!(model.files().len(), 4);
    assert_ne!(model.digest(), whole.digest());
}

#[test]
fn every_f16_and_bf16_code_decodes_to_the_golden() {
    let golden = include_bytes!("../../../golden/conversions.safetensors");
    let source = Source::embedded("conversions", golden);
    let entries = read_header(&source).unwrap();
    let codes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    for (encoding, name, kind) in [(Encoding::F16, "f16.f32", 1), (Encoding::Bf16, "bf16.f32", 30)] {
        let mut gguf = GgufWriter::new();
        gguf.tensor("codes", &[256, 256], kind, codes.clone());
        let file = Arc::new(Source::owned("codes", gguf.write().0));
        let stored = &Gguf::read(&file).unwrap().tensors["codes"];
        let want = source.read_at(entries[name].offset, entries[name].bytes).unwrap();
        let want = want.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b));
        let mut got = Vec::new();
        stored.rows(0, 256, |_, row| got.extend_from_slice(row)).unwrap();
        assert_eq!(got.len(), want.len(), "{encoding}");
        for (code, (got, want)) in got.into_iter().zip(want).enumerate() {
            // The payload of a NaN is its own affair.
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{encoding} code {code:#06x}: {got:e}, the golden says {want:e}");
        }
    }
}

#[test]
fn blocks_decode_to_the_bits_of_the_gguf_package() {
    let golden = include_bytes!("../../../golden/gguf_blocks.safetensors");
    let source = Source::embedded("gguf_blocks", golden);
    let entries = read_header(&source).unwrap();
    let kinds = [
        (Encoding::F32, 0),
        (Encoding::F16, 1),
        (Encoding::Bf16, 30),
        (Encoding::Q4_0, 2),
        (Encoding::Q4_1, 3),
        (Encoding::Q5_0, 6),
        (Encoding::Q5_1, 7),
        (Encoding::Q8_0, 8),
        (Encoding::Q4K, 12),
        (Encoding::Q5K, 13),
        (Encoding::Q6K, 14),
    ];
    assert_eq!(kinds.map(|(encoding, _)| encoding).len(), Encoding::ALL.len());
    assert_eq!(entries.len(), 2 * kinds.len());
    let mut gguf = GgufWriter::new();
    for (encoding, kind) in kinds {
        let raw = &entries[&format!("{encoding}.raw")];
        gguf.tensor(encoding.as_str(), &[512, 4], kind, source.read_at(raw.offset, raw.bytes).unwrap());
    }
    for version in [2, 3] {
        gguf.version = version;
        let file = Arc::new(Source::owned("blocks", gguf.write().0));
        let tensors = Gguf::read(&file).unwrap().tensors;
        for encoding in Encoding::ALL {
            let stored = &tensors[encoding.as_str()];
            assert_eq!((stored.encoding, stored.shape.as_slice()), (encoding, [4, 512].as_slice()));
            let want = &entries[&format!("{encoding}.f32")];
            let want = source.read_at(want.offset, want.bytes).unwrap();
            let mut got = Vec::new();
            stored.rows(0, 4, |_, row| got.extend(row.iter().flat_map(|x| x.to_le_bytes()))).unwrap();
            assert_eq!(got, want, "{encoding}");
            let mut third = Vec::new();
            stored
                .rows(2, 1, |row, values| {
                    assert_eq!(row, 2);
                    third.extend(values.iter().flat_map(|x| x.to_le_bytes()));
                })
                .unwrap();
            assert_eq!(third, want[2 * 2048..3 * 2048], "{encoding}");
        }
    }
}

#[test]
fn half_precision_safetensors_widen_exactly() {
    let (config, tensors) = tiny(Family::Llama, true);
    let raw: Vec<_> = tensors
        .iter()
        .enumerate()
        .map(|(n, (name, (shape, values)))| {
            let (dtype, bytes): (_, Vec<u8>) = if n % 2 == 0 {
                let each = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes());
                (::safetensors::Dtype::F16, each.collect())
            } else {
                let each = values.iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes());
                (::safetensors::Dtype::BF16, each.collect())
            };
            (name, shape, values, dtype, bytes)
        })
        .collect();
    let views = raw.iter().map(|(name, shape, _, dtype, bytes)| {
        (*name, ::safetensors::tensor::TensorView::new(*dtype, shape.to_vec(), bytes).unwrap())
    });
    let folder = hf_folder(&config, &tensors);
    std::fs::write(folder.path().join("model.safetensors"), ::safetensors::serialize(views, None).unwrap())
        .unwrap();
    let read = tensors_of(&Model::open(folder.path()).unwrap());
    for (name, _, values, dtype, _) in raw {
        let widened = |v: f32| match dtype {
            ::safetensors::Dtype::F16 => half::f16::from_f32(v).to_f32(),
            _ => half::bf16::from_f32(v).to_f32(),
        };
        assert_eq!(read[name].1, values.iter().map(|&v| widened(v)).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn a_token_is_one_row_of_the_embedding() {
    let model = open_bundled("untied");
    let all = &tensors_of(&model)["model.embed_tokens.weight"].1;
    assert_eq!(model.embed(127).unwrap(), all[127 * 64..]);
    assert_eq!(model.embed(5).unwrap(), all[5 * 64..6 * 64]);
    assert!(model.embed(128).unwrap_err().to_string().contains("expected less than 128"));
    let missing = model.tensor(Weight::Layer(9, LayerWeight::AttnQ)).unwrap_err().to_string();
    assert_eq!(missing, "untied has no weight blk.9.attn_q.weight");
}
