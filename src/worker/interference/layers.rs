//! Implicit Vulkan layers: libraries that the loader puts into every Vulkan program because a manifest is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::variables::effect;

/// Largest manifest that is read.
const LONGEST: u64 = 1 << 20;

/// What decides whether the loader uses an installed layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::worker) enum Switch {
    /// Setting this variable, to whatever value, keeps it out. The loader requires such a variable of every layer and
    /// obeys it before it looks at anything else of the layer.
    Off(String),
    /// Nothing that may be set without harm keeps it out.
    Stuck {
        /// Why not.
        why: String,
    },
}

/// An installed implicit layer, or another manifest that the loader obeys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::worker) struct Layer {
    /// The manifest.
    pub(in crate::worker) file: PathBuf,
    /// What the manifest calls itself.
    pub(in crate::worker) name: String,
    /// How to keep it out.
    pub(in crate::worker) switch: Switch,
}

/// The layers that a process with this environment would get, sorted by file: manifests in the folders that the loader
/// of Linux and macOS searches, and settings files, which can switch layers on.
///
/// `root` is `/`, or a folder built like it. `variable` gives the value of a variable of that process.
pub(in crate::worker) fn implicit_layers(
    root: &Path,
    variable: impl Fn(&str) -> Option<String>,
) -> Vec<Layer> {
    let mut found = BTreeMap::new();
    for folder in search_folders(&variable) {
        let folder = root.join(folder.strip_prefix("/").unwrap_or(&folder)).join("vulkan");
        for file in files(&folder.join("implicit_layer.d")) {
            let (name, switch) = read(&file);
            found.insert(file.clone(), Layer { file, name, switch });
        }
        let settings = folder.join("loader_settings.d/vk_loader_settings.json");
        if settings.exists() {
            let why =
                "settings of the loader can switch layers on, and no variable turns them off".to_owned();
            let (name, switch) = ("loader settings".to_owned(), Switch::Stuck { why });
            found.insert(settings.clone(), Layer { file: settings, name, switch });
        }
    }
    found.into_values().collect()
}

/// Folders that hold `vulkan/implicit_layer.d`, as the loader's document "Layer Discovery" lists them.
fn search_folders(variable: &impl Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let home = |name: &str, below: &str| {
        set(name).map(PathBuf::from).or_else(|| Some(PathBuf::from(set("HOME")?).join(below)))
    };
    let list = |name: &str, fallback: &str| {
        let list = set(name).unwrap_or_else(|| fallback.to_owned());
        std::env::split_paths(&list).collect::<Vec<_>>()
    };
    let mut folders = Vec::new();
    folders.extend(home("XDG_CONFIG_HOME", ".config"));
    folders.extend(list("XDG_CONFIG_DIRS", "/etc/xdg"));
    folders.extend(["/usr/local/etc", "/etc"].map(PathBuf::from));
    folders.extend(home("XDG_DATA_HOME", ".local/share"));
    folders.extend(list("XDG_DATA_DIRS", "/usr/local/share:/usr/share"));
    folders
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect()
}

fn read(file: &Path) -> (String, Switch) {
    let unknown = |why: String| ("unknown layer".to_owned(), Switch::Stuck { why });
    let manifest = std::fs::metadata(file).and_then(|meta| {
        if meta.len() > LONGEST {
            return Err(std::io::Error::other(format!("{} bytes are too many for a manifest", meta.len())));
        }
        std::fs::read(file)
    });
    let manifest = match manifest {
        Ok(bytes) => bytes,
        Err(error) => return unknown(format!("its manifest cannot be read: {error}")),
    };
    match serde_json::from_slice::<Value>(&manifest) {
        Ok(manifest) => judge(&manifest),
        Err(error) => unknown(format!("its manifest is no JSON: {error}")),
    }
}

fn judge(manifest: &Value) -> (String, Switch) {
    let layers: Vec<&Value> = match manifest.get("layers").and_then(Value::as_array) {
        Some(several) => several.iter().collect(),
        None => manifest.get("layer").into_iter().collect(),
    };
    let names: Vec<&str> = layers.iter().filter_map(|layer| layer.get("name")?.as_str()).collect();
    let name = if names.is_empty() { "unknown layer".to_owned() } else { names.join(" ") };
    let stuck = |why: &str| Switch::Stuck { why: why.to_owned() };
    let [layer] = layers[..] else {
        return (name, stuck("its manifest does not describe exactly one layer"));
    };
    let variables = layer.get("disable_environment").and_then(Value::as_object);
    let Some((variable, _)) = variables.and_then(|variables| variables.iter().next()) else {
        return (name, stuck("its manifest names no variable that turns it off"));
    };
    let plain = !variable.is_empty()
        && variable.len() <= 64
        && variable.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !plain || effect(variable).is_some() || !looks_like_a_switch(variable) {
        return (
            name,
            stuck(&format!("the variable {variable:?} that turns it off may not be set for this")),
        );
    }
    (name, Switch::Off(variable.clone()))
}

/// A manifest must not make the kit set a variable that means something else, such as `PATH`.
fn looks_like_a_switch(variable: &str) -> bool {
    ["DISABLE", "NODEVICE_SELECT", "NO_"].iter().any(|part| variable.to_ascii_uppercase().contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, disable: &str) -> String {
        format!(
            r#"{{"file_format_version": "1.0.0", "layer": {{"name": "{name}", {disable} "type": "GLOBAL"}}}}"#
        )
    }

    fn switch(text: &str) -> Switch {
        judge(&serde_json::from_str(text).expect("json")).1
    }

    #[test]
    fn the_variable_that_turns_a_layer_off_is_found() {
        for variable in ["NODEVICE_SELECT", "DISABLE_VK_LAYER_VALVE_steam_overlay_1", "DISABLE_MANGOHUD"] {
            let disable = format!(r#""disable_environment": {{"{variable}": "1"}},"#);
            assert_eq!(switch(&manifest("VK_LAYER_X", &disable)), Switch::Off(variable.to_owned()));
        }
    }

    #[test]
    fn manifests_cannot_make_the_kit_set_what_means_something_else() {
        for disable in [
            "",
            r#""disable_environment": {},"#,
            r#""disable_environment": "X","#,
            r#""disable_environment": {"PATH": "/evil"},"#,
            r#""disable_environment": {"LD_PRELOAD": "/evil.so"},"#,
            r#""disable_environment": {"VK_DISABLE_X": "1"},"#,
            r#""disable_environment": {"DISABLE=X": "1"},"#,
            r#""disable_environment": {"": "1"},"#,
        ] {
            assert!(matches!(switch(&manifest("VK_LAYER_X", disable)), Switch::Stuck { .. }), "{disable}");
        }
        for text in ["{}", "[]", r#"{"layers": []}"#, r#"{"layers": [{"name": "a"}, {"name": "b"}]}"#] {
            assert!(matches!(switch(text), Switch::Stuck { .. }), "{text}");
        }
    }

    #[test]
    fn every_folder_of_the_loader_is_searched() {
        let root = tempfile::tempdir().expect("root");
        let off = manifest("VK_LAYER_A", r#""disable_environment": {"DISABLE_A": "1"},"#);
        let folders = [
            "home/me/.config",
            "etc/xdg",
            "usr/local/etc",
            "etc",
            "home/me/.local/share",
            "usr/local/share",
            "usr/share",
        ];
        for folder in folders {
            let folder = root.path().join(folder).join("vulkan/implicit_layer.d");
            std::fs::create_dir_all(&folder).expect("folder");
            std::fs::write(folder.join("a.json"), &off).expect("manifest");
            std::fs::write(folder.join("README"), "no manifest").expect("file");
        }
        let home = |name: &str| (name == "HOME").then(|| "/home/me".to_owned());
        let found = implicit_layers(root.path(), home);
        assert_eq!(found.len(), folders.len(), "{found:?}");
        for layer in &found {
            assert_eq!(
                (layer.name.as_str(), &layer.switch),
                ("VK_LAYER_A", &Switch::Off("DISABLE_A".to_owned()))
            );
        }
        let elsewhere = |name: &str| match name {
            "XDG_CONFIG_HOME" | "XDG_DATA_HOME" => Some("/usr/share".to_owned()),
            "XDG_CONFIG_DIRS" | "XDG_DATA_DIRS" => Some("/nowhere:/usr/local/share".to_owned()),
            _ => None,
        };
        assert_eq!(implicit_layers(root.path(), elsewhere).len(), 4);
    }

    #[test]
    fn broken_manifests_and_settings_are_stuck() {
        let root = tempfile::tempdir().expect("root");
        let folder = root.path().join("etc/vulkan");
        std::fs::create_dir_all(folder.join("implicit_layer.d/folder.json")).expect("folder");
        std::fs::create_dir_all(folder.join("loader_settings.d")).expect("folder");
        std::fs::write(folder.join("implicit_layer.d/broken.json"), "{").expect("manifest");
        std::fs::write(folder.join("loader_settings.d/vk_loader_settings.json"), "{}").expect("settings");
        let found = implicit_layers(root.path(), |_| None);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found.iter().all(|layer| matches!(&layer.switch, Switch::Stuck { why } if !why.is_empty())),
            "{found:?}"
        );
    }
}
