//! What a user may choose about the device.

use std::ffi::OsString;

use modelbench_contract::Cap;

/// Environment variable that names the device: an index, a UUID or the device's whole name.
pub const DEVICE_VARIABLE: &str = "MODELBENCH_VULKAN_DEVICE";
/// Environment variable that turns the validation layers on (`1`) or leaves them off (`0` or absent).
pub const VALIDATION_VARIABLE: &str = "MODELBENCH_VULKAN_VALIDATION";
/// Environment variable that lists caps which are not to be advertised, by name, with commas between them.
pub const WITHOUT_VARIABLE: &str = "MODELBENCH_VULKAN_WITHOUT";

/// How to open the backend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Index in the loader's list, UUID in hexadecimal, or whole name of the device; `None` takes the first discrete
    /// one, else the first integrated, virtual or software one.
    pub device: Option<String>,
    /// Turns the Khronos validation layer on, with its check of synchronisation; its messages become errors.
    pub validation: bool,
    /// Caps that are not advertised, though the backend has them: leaving one out is always safe.
    pub without: Vec<Cap>,
    /// Times every kernel by the device's own clock; see [`crate::Vulkan::times`].
    pub timing: bool,
}

/// An option that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// A switch is neither on nor off.
    #[error("{variable} is {value:?}; expected 1, 0 or nothing")]
    Switch {
        /// Name of the environment variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A value is no text.
    #[error("{variable} is not UTF-8: {value:?}; expected text")]
    Text {
        /// Name of the environment variable.
        variable: &'static str,
        /// Its value.
        value: OsString,
    },
    /// No cap has this name.
    #[error("{WITHOUT_VARIABLE} names {name:?}; expected caps such as Async or UploadDtype")]
    Cap {
        /// What was written.
        name: String,
    },
}

impl Options {
    /// Options from [`DEVICE_VARIABLE`], [`VALIDATION_VARIABLE`] and [`WITHOUT_VARIABLE`]; empty values count as absent.
    ///
    /// # Errors
    /// [`OptionsError`] for a switch that is neither `1` nor `0`, for a name that is no cap's, and for what is no text.
    pub fn from_environment() -> Result<Options, OptionsError> {
        Options::from_variables(|name| std::env::var_os(name))
    }

    fn from_variables(get: impl Fn(&str) -> Option<OsString>) -> Result<Options, OptionsError> {
        let given = |variable| {
            let value = get(variable).filter(|value| !value.is_empty()).map(OsString::into_string);
            value.transpose().map_err(|value| OptionsError::Text { variable, value })
        };
        let validation = match given(VALIDATION_VARIABLE)?.as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => {
                return Err(OptionsError::Switch { variable: VALIDATION_VARIABLE, value: other.to_owned() });
            }
        };
        let named = given(WITHOUT_VARIABLE)?.unwrap_or_default();
        let cap = |name: &str| {
            let known = Cap::ALL.into_iter().find(|cap| cap.as_str() == name);
            known.ok_or_else(|| OptionsError::Cap { name: name.to_owned() })
        };
        let without = named.split(',').filter(|name| !name.is_empty()).map(cap).collect::<Result<_, _>>()?;
        Ok(Options { device: given(DEVICE_VARIABLE)?, validation, without, ..Options::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_and_bad_switches_refused() {
        let with = |device: &str, validation: &str, without: &str| {
            Options::from_variables(|name| {
                let value = match name {
                    DEVICE_VARIABLE => device,
                    VALIDATION_VARIABLE => validation,
                    _ => without,
                };
                Some(value.into())
            })
        };
        assert_eq!(with("", "", ""), Ok(Options::default()));
        let chosen = Options {
            device: Some("1".to_owned()),
            validation: true,
            without: vec![Cap::Async, Cap::FusedAttn],
            ..Options::default()
        };
        assert_eq!(with("1", "1", "Async,FusedAttn"), Ok(chosen));
        assert!(with("", "yes", "").is_err());
        assert!(with("", "", "async").is_err());
        for garbage in ["2", "true", "1 ", "-1", "\0"] {
            assert!(with("", garbage, "").is_err(), "{garbage:?} as a switch");
        }
        for garbage in ["Async UploadDtype", "Async, UploadDtype", "*", "no such cap"] {
            assert!(with("", "", garbage).is_err(), "{garbage:?} as caps");
        }
        assert_eq!(Options::from_variables(|_| None), Ok(Options::default()));
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_no_text_is_refused_and_not_taken_for_absent() {
        use std::os::unix::ffi::OsStringExt;
        for variable in [DEVICE_VARIABLE, VALIDATION_VARIABLE, WITHOUT_VARIABLE] {
            let get = |name: &str| (name == variable).then(|| OsString::from_vec(vec![b'1', 0xff]));
            let error = Options::from_variables(get).unwrap_err();
            assert!(error.to_string().starts_with(variable), "{error}");
        }
    }
}
