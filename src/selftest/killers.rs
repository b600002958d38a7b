//! The list of killers: a file in the repository that continuous integration compares with what it finds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::trial::Trial;

/// What stands at the top of the file.
const PREFACE: &str = "\
# What rejects each behaviour of the zoo: the first two killers in the fixed order of `modelbench selftest`.
# Written by: modelbench selftest -write fixtures/zoo/killers.toml
# A change here is a change of what the kit can see; say in the commit why it is right.
";

/// Why a list of killers cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KillersError {
    /// The file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("{} cannot be written: {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The file is not a list of killers.
    #[error("{}: {source}; modelbench selftest -write makes a good one", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        source: Box<toml::de::Error>,
    },
    /// The list cannot be put into words; a defect of the kit.
    #[error("the list cannot be written as TOML: {0}")]
    Format(#[from] toml::ser::Error),
}

/// The first killers of each behaviour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Killers {
    schema: u32,
    seed: String,
    allowed: Vec<String>,
    killers: BTreeMap<String, Vec<String>>,
}

impl Killers {
    /// The list that trials amount to.
    pub fn of(trials: &[Trial], seed: u64) -> Killers {
        let (allowed, others): (Vec<&Trial>, Vec<&Trial>) =
            trials.iter().partition(|trial| trial.behaviour.allowed);
        let by = |trial: &Trial| trial.killers.iter().map(|killer| killer.by.clone()).collect();
        Killers {
            schema: 1,
            seed: format!("{seed:#x}"),
            allowed: allowed.iter().map(|trial| trial.behaviour.name.to_owned()).collect(),
            killers: others.iter().map(|trial| (trial.behaviour.name.to_owned(), by(trial))).collect(),
        }
    }

    /// Reads a list.
    ///
    /// # Errors
    /// [`KillersError`] naming the file.
    pub fn read(path: &Path) -> Result<Killers, KillersError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| KillersError::Read { path: path.into(), source })?;
        toml::from_str(&text)
            .map_err(|source| KillersError::Parse { path: path.into(), source: Box::new(source) })
    }

    /// Writes the list.
    ///
    /// # Errors
    /// [`KillersError`] naming the file.
    pub fn write(&self, path: &Path) -> Result<(), KillersError> {
        let text = format!("{PREFACE}\n{}", toml::to_string_pretty(self)?);
        std::fs::write(path, text).map_err(|source| KillersError::Write { path: path.into(), source })
    }

    /// How a found list differs from this one, in words with both values. With `whole` false only the behaviours that
    /// were tried are compared.
    pub fn differences(&self, found: &Killers, whole: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut differ = |what: &str, file: String, run: String| {
            if file != run {
                lines.push(format!("{what}: the file says {file}, this run found {run}"));
            }
        };
        differ("schema", self.schema.to_string(), found.schema.to_string());
        differ("seed", self.seed.clone(), found.seed.clone());
        let tried = |name: &String| whole || found.allowed.contains(name) || found.killers.contains_key(name);
        let show = |list: &Killers, name: &String| match (list.killers.get(name), list.allowed.contains(name))
        {
            (Some(by), _) if by.is_empty() => "no killer".to_owned(),
            (Some(by), _) => by.join(" and "),
            (None, true) => "allowed".to_owned(),
            (None, false) => "nothing".to_owned(),
        };
        let names = |list: &Killers| list.killers.keys().chain(&list.allowed).cloned().collect::<Vec<_>>();
        let mut all = [names(self), names(found)].concat();
        all.sort_unstable();
        all.dedup();
        for name in all.iter().filter(|name| tried(name)) {
            differ(name, show(self, name), show(found, name));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, &[&str])]) -> Killers {
        let owned = |by: &[&str]| by.iter().map(|id| (*id).to_owned()).collect();
        Killers {
            schema: 1,
            seed: "0x5eed".to_owned(),
            allowed: vec!["honest".to_owned()],
            killers: entries.iter().map(|(name, by)| ((*name).to_owned(), owned(by))).collect(),
        }
    }

    #[test]
    fn a_difference_shows_both_values() {
        let file = list(&[("nan", &["a", "b"]), ("panic", &["c"])]);
        assert_eq!(file.differences(&file.clone(), true), Vec::<String>::new());
        let found = list(&[("nan", &["a", "d"])]);
        let whole = file.differences(&found, true);
        assert_eq!(whole[0], "nan: the file says a and b, this run found a and d");
        assert_eq!(whole[1], "panic: the file says c, this run found nothing");
        assert_eq!(whole.len(), 2);
        assert_eq!(file.differences(&found, false), &whole[..1], "panic was not tried");
    }

    #[test]
    fn what_is_written_reads_back() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("killers.toml");
        let file = list(&[("nan", &["a", "b"]), ("alive", &[])]);
        file.write(&path).expect("written");
        assert_eq!(Killers::read(&path).expect("read"), file);
        std::fs::write(&path, "schema = 1\ncolour = \"red\"\n").expect("written");
        assert!(Killers::read(&path).expect_err("unknown key").to_string().contains("colour"));
    }
}
