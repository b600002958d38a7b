//! The backend: every op checks its arguments, computes, and charges its errors to itself.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use modelbench_contract::{
    Activation, AttentionSpec, Backend, BackendError, Cap, Caps, Class, Collectives, DType, DeviceInfo,
    DeviceKind, DeviceTensor, HostTensor, KvStore, NumericProfile, Op, Result, RopeSpec,
};

use crate::{RefKv, RefTensor, add, argmax, attention, check, matmul, norm, rope, swiglu, upload};

/// Gives each instance an id, so that collectives can tell whose tensor they got.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

/// cpu-ref: the `Reference` backend, scalar arithmetic of the same bits on every machine.
#[derive(Debug)]
pub struct CpuRef {
    pub(crate) id: u64,
    pub(crate) ranks: Option<usize>,
    hardware: String,
}

impl CpuRef {
    /// A fresh backend on this machine's processor.
    pub fn new() -> Self {
        CpuRef { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), ranks: None, hardware: processor_name() }
    }

    /// A result of the shape of `like`.
    fn shaped(&self, like: &RefTensor, values: Vec<f32>) -> RefTensor {
        RefTensor::from_f32(like.desc().shape.clone(), values, self.id)
    }
}

impl Default for CpuRef {
    fn default() -> Self {
        Self::new()
    }
}

/// The operating system's name of the processor, or `cpu` where it has none.
fn processor_name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    model_name(&info).unwrap_or("cpu").to_owned()
}

fn model_name(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    let (_, name) = line.split_once(':')?;
    Some(name.trim()).filter(|name| !name.is_empty())
}

impl Backend for CpuRef {
    type Tensor = RefTensor;
    type Kv = RefKv;

    fn name(&self) -> &str {
        "cpu-ref"
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn tier(&self) -> &str {
        "scalar"
    }

    fn class(&self) -> Class {
        Class::Reference
    }

    fn caps(&self) -> Caps {
        Caps::from([Cap::UploadDtype, Cap::Collective])
    }

    fn numerics(&self) -> NumericProfile {
        NumericProfile { q8_activation: Activation::Int8, ..NumericProfile::F32 }
    }

    fn device(&self) -> DeviceInfo {
        DeviceInfo {
            kind: DeviceKind::Cpu,
            hardware: self.hardware.clone(),
            driver: String::new(),
            runtime: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<RefTensor> {
        upload::upload(tensor, as_dtype, self.id).map_err(|e| e.in_op(Op::Upload))
    }

    fn host<'a>(&'a mut self, tensor: &'a RefTensor) -> Result<Option<Cow<'a, [f32]>>> {
        Ok(tensor.as_f32().map(Cow::Borrowed))
    }

    fn read(&mut self, tensor: &RefTensor) -> Result<Vec<f32>> {
        tensor.to_f32().map_err(|e| e.in_op(Op::Read))
    }

    fn free(&mut self, tensor: RefTensor) -> Result<()> {
        drop(tensor);
        Ok(())
    }

    fn matmul(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        let values = matmul::matmul(w, x).map_err(|e| e.in_op(Op::Matmul))?;
        Ok(RefTensor::from_f32([values.len()], values, self.id))
    }

    fn batched_matmul(&mut self, w: &RefTensor, x: &RefTensor) -> Result<RefTensor> {
        let (values, shape) = matmul::batched_matmul(w, x).map_err(|e| e.in_op(Op::BatchedMatmul))?;
        Ok(RefTensor::from_f32(shape, values, self.id))
    }

    fn rms_norm(&mut self, x: &RefTensor, weight: &RefTensor, eps: f32) -> Result<RefTensor> {
        let normed = || {
            let (_, n) = check::rows("x", x)?;
            check::vector_of("weight", weight, "x", x)?;
            check::scalar("eps", eps, eps >= 0.0, "a finite number of at least 0")?;
            let (values, weight) = (check::f32_values("x", x)?, check::f32_values("weight", weight)?);
            let mut out = check::zeros("rms_norm result", values.len())?;
            for (row, out) in values.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
                norm::rms_norm_row(row, weight, eps, out);
            }
            Ok(self.shaped(x, out))
        };
        normed().map_err(|e: BackendError| e.in_op(Op::RmsNorm))
    }

    fn rope(&mut self, x: &RefTensor, spec: RopeSpec) -> Result<RefTensor> {
        let rotated = || {
            let (_, n) = check::rows("x", x)?;
            Ok(self.shaped(x, rope::rope_rows(check::f32_values("x", x)?, n, spec)?))
        };
        rotated().map_err(|e: BackendError| e.in_op(Op::Rope))
    }

    fn swiglu(&mut self, gate: &RefTensor, up: &RefTensor) -> Result<RefTensor> {
        let gated = || {
            check::rows("gate", gate)?;
            check::same_shape("gate", gate, "up", up)?;
            let (g, u) = (check::f32_values("gate", gate)?, check::f32_values("up", up)?);
            let mut out = check::room("swiglu result", g.len())?;
            out.extend(g.iter().zip(u).map(|(g, u)| swiglu::swiglu(*g, *u)));
            Ok(self.shaped(gate, out))
        };
        gated().map_err(|e: BackendError| e.in_op(Op::Swiglu))
    }

    fn add_in_place(&mut self, dst: &mut RefTensor, src: &RefTensor) -> Result<()> {
        let checked = || {
            check::rows("dst", dst)?;
            check::same_shape("dst", dst, "src", src)?;
            check::f32_values("dst", dst)?;
            check::f32_values("src", src)
        };
        let src = checked().map_err(|e| e.in_op(Op::AddInPlace))?;
        if let Some(dst) = dst.as_f32_mut() {
            add::add_row(dst, src);
        }
        Ok(())
    }

    fn add_bias(&mut self, dst: &mut RefTensor, bias: &RefTensor) -> Result<()> {
        let checked = || {
            check::rows("dst", dst)?;
            check::vector_of("bias", bias, "dst", dst)?;
            check::f32_values("dst", dst)?;
            check::f32_values("bias", bias)
        };
        let bias = checked().map_err(|e| e.in_op(Op::AddBias))?;
        if let Some(dst) = dst.as_f32_mut() {
            dst.chunks_exact_mut(bias.len()).for_each(|row| add::add_row(row, bias));
        }
        Ok(())
    }

    fn attention(
        &mut self,
        q: &RefTensor,
        kv: &RefKv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<RefTensor> {
        let attended = || {
            let (_, n) = check::rows("q", q)?;
            let rows = kv.rows(layer)?;
            let expected =
                check::product("[kv_heads, head_dim, group] =", &[rows.kv_heads, rows.head_dim, spec.group])?;
            if n != expected {
                return Err(BackendError::invalid(format!(
                    "q has shape {:?}; expected rows of kv_heads {} * group {} * head_dim {} = {expected}",
                    q.desc().shape,
                    rows.kv_heads,
                    spec.group,
                    rows.head_dim
                )));
            }
            Ok(self.shaped(q, attention::attention(check::f32_values("q", q)?, rows, spec)?))
        };
        attended().map_err(|e| e.in_op(Op::Attention))
    }

    fn argmax(&mut self, logits: &RefTensor) -> Result<usize> {
        let first = || {
            let shape = &logits.desc().shape;
            if shape.len() != 1 {
                return Err(BackendError::invalid(format!("logits have shape {shape:?}; expected [n]")));
            }
            argmax::argmax(check::f32_values("logits", logits)?)
                .ok_or_else(|| BackendError::invalid("logits have no elements; expected at least one"))
        };
        first().map_err(|e| e.in_op(Op::Argmax))
    }

    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = RefTensor, Kv = RefKv>> {
        Some(self)
    }

    fn collectives(&mut self) -> Option<&mut dyn Collectives<Tensor = RefTensor>> {
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::model_name;

    #[test]
    fn the_processor_name_comes_from_its_line() {
        assert_eq!(
            model_name("processor\t: 0\nmodel name\t: Chip: 9 @ 2GHz\nflags : x\n"),
            Some("Chip: 9 @ 2GHz")
        );
        assert_eq!(model_name("processor\t: 0\nBogoMIPS\t: 50\n"), None);
        assert_eq!(model_name("model name\t: \n"), None);
    }
}
