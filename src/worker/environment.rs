//! Which environment variables reach a worker, and which of them deserve a remark in the record.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

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

/// Variables that put foreign code between the backend and its device, or choose another device or driver.
const SUSPICIOUS: &[&str] = &[
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "VK_ICD_FILENAMES",
    "VK_DRIVER_FILES",
    "VK_ADD_DRIVER_FILES",
    "VK_INSTANCE_LAYERS",
    "VK_LAYER_PATH",
    "VK_ADD_LAYER_PATH",
    "VK_LOADER_LAYERS_ENABLE",
    "VK_LOADER_DRIVERS_SELECT",
    "LIBGL_ALWAYS_SOFTWARE",
    "CUDA_INJECTION64_PATH",
    "PYTHONPATH",
];

/// Parts of a name that mark a secret; such a variable never reaches a worker, whatever its prefix.
const SECRETS: &[&str] = &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSPHRASE", "CREDENTIAL"];

/// The environment of a worker: what passes an allow-list, plus what the launcher adds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    passed: BTreeMap<OsString, OsString>,
    suspicious: BTreeMap<String, String>,
}

impl Environment {
    /// What this process would pass on.
    pub fn from_host() -> Self {
        Self::select(std::env::vars_os())
    }

    /// Filters variables by the allow-list. Names that are not UTF-8 are dropped.
    pub fn select(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Environment::default();
        for (name, value) in variables {
            let Some(text) = name.to_str() else { continue };
            let passes = is_passed(text);
            if SUSPICIOUS.contains(&text) {
                let fate = if passes { "passed on" } else { "not passed on" };
                environment
                    .suspicious
                    .insert(text.to_owned(), format!("{} ({fate})", value.to_string_lossy()));
            }
            if passes {
                environment.passed.insert(name, value);
            }
        }
        environment
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

    /// Variables of this process that could change which code or device does the work: name to value, with a remark
    /// whether the worker gets it.
    pub fn suspicious(&self) -> &BTreeMap<String, String> {
        &self.suspicious
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
        assert!(got.suspicious().is_empty());
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
        assert_eq!(got.suspicious()["LD_PRELOAD"], "/evil.so (not passed on)");
        assert_eq!(got.suspicious()["VK_ICD_FILENAMES"], "/icd.json (passed on)");
    }

    #[test]
    fn the_launcher_may_add_anything() {
        assert_eq!(select(&[]).with("TMPDIR", "/s").names(), ["TMPDIR"]);
    }
}
