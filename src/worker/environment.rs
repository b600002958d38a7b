//! Which environment variables reach a worker, what deserves a remark in the record, and what interferes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::interference::{Effect, Switch, effect, implicit_layers, preload_list};

/// Variables that a worker gets, by exact name. `TMPDIR` is not among them: the launcher points it at the scratch folder.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "LD_LIBRARY_PATH",
    "XDG_RUNTIME_DIR",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "LIBGL_ALWAYS_SOFTWARE",
    "RUST_BACKTRACE",
    "PYTHONPATH",
    "VIRTUAL_ENV",
];

/// Variables that a worker gets, by the start of their names.
const PASSED_PREFIXES: &[&str] =
    &["LC_", "VK_", "MESA_", "RADV_", "LP_", "RAYON_", "OMP_", "OPENBLAS_", "MKL_", "MODELBENCH_"];

/// Parts of a name that mark a secret; such a variable never reaches a worker, whatever its prefix.
const SECRETS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIAL"];

/// The environment of a worker: what passes an allow-list, plus what the launcher adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    passed: BTreeMap<OsString, OsString>,
    remarks: BTreeMap<String, String>,
    interference: BTreeMap<String, String>,
}

impl Environment {
    /// What this process would pass on, and what is installed on this machine that would reach into a worker. An
    /// implicit Vulkan layer that a variable keeps out is kept out.
    pub fn from_host() -> Self {
        Self::select(std::env::vars_os()).installed(Path::new("/"))
    }

    /// Filters variables by the allow-list. Names that are not UTF-8 are dropped.
    pub fn select(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Environment::default();
        for (name, value) in variables {
            let Some(text) = name.to_str() else { continue };
            let passes = is_passed(text);
            environment.note(text, &value.to_string_lossy(), passes);
            if passes {
                environment.passed.insert(name, value);
            }
        }
        environment
    }

    fn note(&mut self, name: &str, value: &str, passes: bool) {
        let Some(effect) = effect(name) else { return };
        // The dynamic loader takes an empty value for none. What it loads is in this process too, whatever is passed on.
        let interferes = match effect {
            Effect::Anywhere => !value.is_empty(),
            Effect::InWorker => passes,
            Effect::Choice => false,
        };
        let fate = match (passes, interferes) {
            (true, _) => "passed on",
            (false, true) => "not passed on, but obeyed by modelbench itself",
            (false, false) => "not passed on",
        };
        let map = if interferes { &mut self.interference } else { &mut self.remarks };
        map.insert(format!("variable {name}"), format!("{value} ({fate})"));
    }

    /// Adds what is installed below `root`, and keeps layers out where a variable does that.
    fn installed(mut self, root: &Path) -> Self {
        let passed = self.passed.clone();
        let variable = |name: &str| Some(passed.get(OsStr::new(name))?.to_string_lossy().into_owned());
        for layer in implicit_layers(root, variable) {
            let (key, name) = (format!("implicit layer {}", layer.file.display()), layer.name);
            match layer.switch {
                Switch::Off(variable) => {
                    self.remarks.insert(key, format!("{name}, kept out of the worker by {variable}=1"));
                    self.passed.insert(variable.into(), "1".into());
                }
                Switch::Stuck { why } => {
                    self.interference.insert(key, format!("{name}: {why}"));
                }
            }
        }
        let list = root.join("etc/ld.so.preload");
        let found = match preload_list(&list) {
            Ok(named) => named,
            Err(error) => Some(format!("cannot be read: {error}")),
        };
        if let Some(found) = found {
            self.interference.insert(format!("preload list {}", list.display()), found);
        }
        self
    }

    /// The same environment with one more variable, whatever the allow-list says.
    pub fn with(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.passed.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
        self
    }

    /// Names and values as the worker gets them.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.passed.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Names of the variables that the worker gets, sorted.
    pub fn names(&self) -> Vec<String> {
        self.passed.keys().map(|name| name.to_string_lossy().into_owned()).collect()
    }

    /// What is worth knowing and does not interfere, with its fate: `variable CUDA_VISIBLE_DEVICES` to
    /// `0 (passed on)`, `implicit layer /usr/share/…` to its name and what keeps it out.
    pub fn remarks(&self) -> &BTreeMap<String, String> {
        &self.remarks
    }

    /// What can put foreign code between the backend and its device, or send it to another device or driver: `variable
    /// LD_PRELOAD`, `implicit layer FILE` or `preload list FILE`, to its value and fate. Empty where nothing was found.
    pub fn interference(&self) -> &BTreeMap<String, String> {
        &self.interference
    }
}

fn is_passed(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let secret = SECRETS.iter().any(|part| upper.contains(part));
    !secret && (PASSED.contains(&name) || PASSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(variables: &[(&str, &str)]) -> Environment {
        Environment::select(variables.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))))
    }

    #[test]
    fn only_listed_variables_pass() {
        let got = select(&[("PATH", "/bin"), ("LC_ALL", "C"), ("VK_LOADER_DEBUG", "all"), ("EDITOR", "vi")]);
        assert_eq!(got.names(), ["LC_ALL", "PATH", "VK_LOADER_DEBUG"]);
        assert!(got.remarks().is_empty() && got.interference().is_empty());
    }

    #[test]
    fn secrets_never_pass() {
        let got = select(&[("MODELBENCH_KEY", "x"), ("MODELBENCH_api_token", "y"), ("MODELBENCH_LOG", "z")]);
        assert_eq!(got.names(), ["MODELBENCH_LOG"]);
    }

    #[test]
    fn preloads_are_named_and_dropped_and_drivers_are_named_and_kept() {
        let got = select(&[("LD_PRELOAD", "/evil.so"), ("VK_ICD_FILENAMES", "/icd.json")]);
        assert_eq!(got.names(), ["VK_ICD_FILENAMES"]);
        let own = "/evil.so (not passed on, but obeyed by modelbench itself)";
        assert_eq!(got.interference()["variable LD_PRELOAD"], own);
        assert_eq!(got.interference()["variable VK_ICD_FILENAMES"], "/icd.json (passed on)");
        assert!(got.remarks().is_empty());
    }

    #[test]
    fn what_reaches_nobody_or_merely_chooses_is_a_remark() {
        let got = select(&[
            ("CUDA_INJECTION64_PATH", "/profiler.so"),
            ("CUDA_VISIBLE_DEVICES", "1"),
            ("LD_PRELOAD", ""),
            ("EDITOR", "vi"),
        ]);
        let want = [
            ("variable CUDA_INJECTION64_PATH", "/profiler.so (not passed on)"),
            ("variable CUDA_VISIBLE_DEVICES", "1 (passed on)"),
            ("variable LD_PRELOAD", " (not passed on)"),
        ];
        let want = want.map(|(name, fate)| (name.to_owned(), fate.to_owned()));
        assert_eq!(*got.remarks(), BTreeMap::from(want));
        assert!(got.interference().is_empty());
    }

    #[test]
    fn installed_layers_are_kept_out_or_interfere() {
        let root = tempfile::tempdir().expect("root");
        let folder = root.path().join("usr/share/vulkan/implicit_layer.d");
        std::fs::create_dir_all(&folder).expect("folder");
        let off = r#"{"layer": {"name": "VK_LAYER_A", "disable_environment": {"DISABLE_A": "1"}}}"#;
        std::fs::write(folder.join("a.json"), off).expect("manifest");
        let quiet = select(&[]).installed(root.path());
        assert!(quiet.interference().is_empty(), "{quiet:?}");
        let key = format!("implicit layer {}", folder.join("a.json").display());
        assert_eq!(quiet.remarks()[&key], "VK_LAYER_A, kept out of the worker by DISABLE_A=1");
        assert_eq!(quiet.names(), ["DISABLE_A"]);

        std::fs::write(folder.join("b.json"), r#"{"layer": {"name": "VK_LAYER_B"}}"#).expect("manifest");
        std::fs::create_dir_all(root.path().join("etc")).expect("etc");
        std::fs::write(root.path().join("etc/ld.so.preload"), "/evil.so\n").expect("list");
        let found = select(&[]).installed(root.path());
        assert_eq!(found.interference().len(), 2, "{found:?}");
        let key = format!("implicit layer {}", folder.join("b.json").display());
        assert!(found.interference()[&key].starts_with("VK_LAYER_B: "), "{found:?}");
        let key = format!("preload list {}", root.path().join("etc/ld.so.preload").display());
        assert_eq!(found.interference()[&key], "/evil.so");
    }

    #[test]
    fn the_launcher_may_add_anything() {
        assert_eq!(select(&[]).with("TMPDIR", "/s").names(), ["TMPDIR"]);
    }
}
