//! A concrete case: one point of a group, with a stable printable name.

use std::sync::Arc;

use indexmap::IndexMap;
use modelbench_evidence::record::Rung;

use super::{AxisValue, Group, Limits, SuiteError};
use crate::inputs::Stream;

/// One case of a suite.
#[derive(Debug, Clone)]
pub struct Case {
    /// Stable printable name: rung, family, group and parameters as a path.
    pub id: String,
    /// The rung.
    pub rung: Rung,
    /// The file's stem, such as `matmul`.
    pub family: String,
    /// The file within the tree.
    pub file: String,
    /// Line of the group in the file, from 1.
    pub line: usize,
    /// What the case shares with its neighbours.
    pub group: Arc<Group>,
    /// Wrong answers that the case cannot tell from a right one, found when the suites were built; `None` for a case that
    /// answers yes or no.
    pub accepts: Option<Vec<String>>,
    params: IndexMap<String, AxisValue>,
}

impl Case {
    /// Names the case after its parameters: neighbouring sizes share a segment, names have one each.
    pub(super) fn new(
        rung: Rung,
        family: &str,
        file: &str,
        line: usize,
        group: &Arc<Group>,
        params: IndexMap<String, AxisValue>,
    ) -> Case {
        let mut id = format!("{}/{family}/{}", rung.as_str(), group.name);
        let mut after_size = false;
        for (name, value) in &params {
            match value {
                AxisValue::Int(n) => {
                    id.push(if after_size { '-' } else { '/' });
                    id.push_str(&format!("{name}{n}"));
                    after_size = true;
                }
                AxisValue::Text(text) => {
                    id.push('/');
                    id.push_str(text);
                    after_size = false;
                }
            }
        }
        Case {
            id,
            rung,
            family: family.into(),
            file: file.into(),
            line,
            group: Arc::clone(group),
            accepts: None,
            params,
        }
    }

    /// The parameters, in the order of the id.
    pub fn params(&self) -> &IndexMap<String, AxisValue> {
        &self.params
    }

    /// A size, or `default` if the group does not give it.
    ///
    /// # Errors
    /// [`SuiteError::Invalid`] if it is a name or does not fit the machine.
    pub fn size_or(&self, name: &str, default: usize) -> Result<usize, SuiteError> {
        match self.params.get(name) {
            None => Ok(default),
            Some(AxisValue::Int(n)) => usize::try_from(*n)
                .map_err(|_| self.invalid(format!("{name} = {n} does not fit this machine"))),
            Some(AxisValue::Text(t)) => Err(self.invalid(format!("{name} = {t:?}: expected a number"))),
        }
    }

    /// A size.
    ///
    /// # Errors
    /// [`SuiteError::Invalid`] if it is missing, a name, or does not fit the machine.
    pub fn size(&self, name: &str) -> Result<usize, SuiteError> {
        if self.params.contains_key(name) {
            self.size_or(name, 0)
        } else {
            Err(self.invalid(format!("check {:?} needs the axis {name:?}, a number", self.group.check)))
        }
    }

    /// A name.
    ///
    /// # Errors
    /// [`SuiteError::Invalid`] if it is missing or a number.
    pub fn text(&self, name: &str) -> Result<&str, SuiteError> {
        match self.params.get(name) {
            Some(AxisValue::Text(text)) => Ok(text),
            Some(AxisValue::Int(n)) => Err(self.invalid(format!("{name} = {n}: expected a name"))),
            None => {
                Err(self.invalid(format!("check {:?} needs the axis {name:?}, a name", self.group.check)))
            }
        }
    }

    /// The case with the sizes that the seed draws; the same case if its group draws none.
    pub fn drawn(&self, seed: u64) -> Case {
        let mut case = self.clone();
        for (name, range) in &self.group.random {
            let [least, most, step] = spread(range);
            let steps = (most - least) / step + 1;
            let size = least + step * Stream::new(seed, &self.id, name).below(0, steps);
            case.params.insert(name.clone(), AxisValue::Int(size));
        }
        case
    }

    /// Checks the ranges of [`Case::drawn`].
    ///
    /// # Errors
    /// [`SuiteError::Invalid`] if a range is not `[least, most]` or `[least, most, step]`, or its name is an axis too.
    pub(super) fn check_draws(&self) -> Result<(), SuiteError> {
        for (name, range) in &self.group.random {
            let [least, most, step] = spread(range);
            let shape = matches!(range.len(), 2 | 3) && least <= most && step > 0;
            if !shape || self.params.contains_key(name) {
                return Err(self.invalid(format!(
                    "random.{name} = {range:?}: expected [least, most] or [least, most, step], and no axis of that name"
                )));
            }
        }
        if self.group.random.is_empty() == self.params.contains_key("draw") {
            return Err(self.invalid("the axis \"draw\" numbers random sizes: give both or none"));
        }
        Ok(())
    }

    /// A limit of the group.
    ///
    /// # Errors
    /// [`SuiteError::Invalid`] if the group does not give it.
    pub fn limit(&self, name: &str, pick: impl Fn(&Limits) -> Option<u64>) -> Result<u64, SuiteError> {
        self.group.limits.as_ref().and_then(pick).ok_or_else(|| {
            self.invalid(format!("check {:?} needs limits.{name}, a number", self.group.check))
        })
    }

    /// An error at the group's line.
    pub fn invalid(&self, reason: impl Into<String>) -> SuiteError {
        SuiteError::Invalid {
            file: self.file.clone(),
            line: self.line,
            reason: format!("group {:?}: {}", self.group.name, reason.into()),
        }
    }
}

fn spread(range: &[u64]) -> [u64; 3] {
    let at = |i: usize, default| range.get(i).copied().unwrap_or(default);
    [at(0, 0), at(1, 0), at(2, 1)]
}
