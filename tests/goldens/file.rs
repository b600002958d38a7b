//! A golden file in memory.

use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

/// The folder of the goldens.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The bytes of a golden.
pub fn read(path: &str) -> Vec<u8> {
    let path = folder().join(path);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Tensors whose names share a prefix, such as `matmul.3`.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    pub file: &'a SafeTensors<'a>,
    pub prefix: &'a str,
}

impl Fields<'_> {
    /// The raw bytes of a field, `None` if there is none of that name.
    pub fn find(&self, field: &str) -> Option<Vec<u8>> {
        self.file.tensor(&format!("{}.{field}", self.prefix)).ok().map(|t| t.data().to_vec())
    }

    pub fn bytes(&self, field: &str) -> Vec<u8> {
        self.find(field).unwrap_or_else(|| panic!("{}: no field {field}", self.prefix))
    }

    pub fn shape(&self, field: &str) -> Vec<usize> {
        self.file.tensor(&format!("{}.{field}", self.prefix)).unwrap().shape().to_vec()
    }

    pub fn f32s(&self, field: &str) -> Vec<f32> {
        f32s(&self.bytes(field))
    }

    pub fn f64s(&self, field: &str) -> Vec<f64> {
        f64s(&self.bytes(field))
    }

    pub fn u16s(&self, field: &str) -> Vec<u16> {
        self.bytes(field).as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect()
    }

    pub fn sizes(&self, field: &str) -> Vec<usize> {
        let bytes = self.bytes(field);
        bytes.as_chunks().0.iter().map(|b| usize::try_from(i64::from_le_bytes(*b)).unwrap()).collect()
    }
}

/// Little-endian f32 values.
pub fn f32s(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

/// Little-endian f64 values.
pub fn f64s(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}
