//! What is compiled into the binary: suites, goldens and the bundled models, so that it works from any folder.

use std::borrow::Cow;

use rust_embed::RustEmbed;

/// Version of the kit.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(RustEmbed)]
#[folder = "suites"]
#[include = "*.toml"]
struct Suites;

#[derive(RustEmbed)]
#[folder = "golden"]
#[include = "MANIFEST.toml"]
#[include = "models/*.safetensors"]
struct Golden;

#[derive(RustEmbed)]
#[folder = "fixtures/models"]
#[include = "*.json"]
#[include = "*.safetensors"]
struct Models;

type File = (String, Cow<'static, [u8]>);

fn all<E: RustEmbed>() -> impl Iterator<Item = File> {
    let mut paths: Vec<String> = E::iter().map(Cow::into_owned).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| E::get(&path).map(|file| (path, file.data)))
}

/// The suite files, by path within `suites/`.
pub fn suite_files() -> impl Iterator<Item = File> {
    all::<Suites>()
}

/// The goldens, by path within `golden/`.
pub fn golden_files() -> impl Iterator<Item = File> {
    all::<Golden>()
}

/// The bundled models, by path within `fixtures/models/`.
pub fn model_files() -> impl Iterator<Item = File> {
    all::<Models>()
}

/// One golden.
pub fn golden(path: &str) -> Option<Cow<'static, [u8]>> {
    Golden::get(path).map(|file| file.data)
}

/// One file of a bundled model.
pub fn model_file(path: &str) -> Option<Cow<'static, [u8]>> {
    Models::get(path).map(|file| file.data)
}
