//! The models and model goldens that are part of the program.

use super::golden::{GoldenError, ModelGolden};
use super::weights::{Model, ModelError};

/// Names of the bundled models: `kjv` is trained, `tied` and `untied` are random.
pub const BUNDLED: [&str; 3] = ["kjv", "tied", "untied"];

macro_rules! fixture {
    ($name:literal, $file:literal) => {
        include_bytes!(concat!("../../fixtures/models/", $name, "/", $file))
    };
}

macro_rules! golden {
    ($name:literal) => {
        (
            concat!("golden/models/", $name, ".safetensors"),
            include_bytes!(concat!("../../golden/models/", $name, ".safetensors")),
        )
    };
}

/// A bundled model, or `None` if there is none of this name.
///
/// # Errors
/// As [`Model::open`]; a bundled model that fails is a defect of the program.
pub fn bundled(name: &str) -> Option<Result<Model, ModelError>> {
    let (config, weights): (&'static [u8], &'static [u8]) = match name {
        "kjv" => (fixture!("kjv", "config.json"), fixture!("kjv", "model.safetensors")),
        "tied" => (fixture!("tied", "config.json"), fixture!("tied", "model.safetensors")),
        "untied" => (fixture!("untied", "config.json"), fixture!("untied", "model.safetensors")),
        _ => return None,
    };
    Some(Model::from_embedded(name, config, weights))
}

/// The golden of the model whose weights have this SHA-256 ([`Model::digest`]), or `None` if there is none.
///
/// # Errors
/// As [`ModelGolden::read`].
pub fn bundled_golden(model_digest: &str) -> Option<Result<ModelGolden, GoldenError>> {
    let (file, bytes): (&str, &'static [u8]) = match model_digest {
        "354beb1ab58894d1b55a5753bd9e6d029004fc14ae92e04c8021fc43da8d2724" => golden!("kjv"),
        "f0bea16d2c2e363c565e95176ba2e7b64d5c9bc4f62313a1ea811724bc17071e" => golden!("tied"),
        "adfe25540ed6ada72be771d6af400c20c873182362b3b156920f86e1c81608b5" => golden!("untied"),
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53" => golden!("smollm2-135m"),
        _ => return None,
    };
    Some(ModelGolden::read(file, bytes))
}
