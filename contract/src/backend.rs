//! The whole-op interface that a backend implements.

use std::borrow::Cow;

use crate::{
    BackendError, Caps, Class, Collectives, DType, DeviceCapacity, DeviceInfo, DeviceTensor, GraphCompile,
    HostCapacity, HostTensor, Identity, KvStore, NumericProfile, Op,
};

/// Result of every call of the contract.
pub type Result<T, E = BackendError> = std::result::Result<T, E>;

/// How a query meets the KV store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionSpec {
    /// Query heads for each KV head; `n_heads = kv_heads * group`.
    pub group: usize,
    /// Factor on every score, usually `1/sqrt(head_dim)`.
    pub scale: f32,
    /// With `P` query rows, row `p` sees only the first `len - P + 1 + p` positions.
    pub causal: bool,
}

impl AttentionSpec {
    /// What models use: causal, with a factor of `1/sqrt(head_dim)`, rounded once.
    pub fn causal(group: usize, head_dim: usize) -> AttentionSpec {
        AttentionSpec { group, scale: (1.0 / (head_dim as f64).sqrt()) as f32, causal: true }
    }
}

/// Where and how `rope` rotates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeSpec {
    /// Position of the first row; row `p` is at `pos + p`.
    pub pos: usize,
    /// Heads in a row; the row length is `n_heads * head_dim`.
    pub n_heads: usize,
    /// Elements of a head, even.
    pub head_dim: usize,
    /// Base of the frequencies: `freq_j = theta^(-2j/head_dim)`.
    pub theta: f32,
}

/// An ML compute backend under test. See the crate documentation for the rules that hold for every method.
///
/// Every op has a default that answers [`ErrorKind::Unimplemented`](crate::ErrorKind::Unimplemented), so a new
/// backend starts with residency and one op. Row-wise ops take `[n]` or `[P, n]` and treat each row alone.
pub trait Backend {
    /// A tensor on the device.
    type Tensor: DeviceTensor;
    /// A KV store on the device; [`NoKv`] for a backend without one.
    type Kv;

    /// Stable id, `[a-z0-9][a-z0-9-]{0,31}`.
    fn name(&self) -> &str;
    /// Version of the backend.
    fn version(&self) -> &str;
    /// Private tier string (`scalar`, `avx2`, `sm90`, `software:llvmpipe`).
    fn tier(&self) -> &str;
    /// Promise of closeness to cpu-ref.
    fn class(&self) -> Class;
    /// Advertised caps. False is always safe.
    fn caps(&self) -> Caps;
    /// Declared arithmetic.
    fn numerics(&self) -> NumericProfile;
    /// Hardware, driver and runtime.
    fn device(&self) -> DeviceInfo;

    /// All of the above in one value.
    fn identity(&self) -> Identity {
        Identity {
            name: self.name().to_owned(),
            version: self.version().to_owned(),
            tier: self.tier().to_owned(),
            class: self.class(),
            caps: self.caps(),
            numerics: self.numerics(),
            device: self.device(),
        }
    }

    /// Copies a tensor to the device. With the cap `UploadDtype` an f32 tensor is narrowed to `as_dtype`
    /// (round to nearest even; `q8_0` as in the GGUF quantiser but with f32 scales allowed); without it `as_dtype`
    /// must be the tensor's own dtype or the call may keep the dtype it got: the result's `desc` tells.
    fn upload(&mut self, tensor: &HostTensor, as_dtype: DType) -> Result<Self::Tensor>;
    /// A view of an f32 tensor that lives in host memory, `None` where it does not.
    fn host<'a>(&'a mut self, tensor: &'a Self::Tensor) -> Result<Option<Cow<'a, [f32]>>>;
    /// Waits for everything submitted and copies the values out as f32, row-major.
    fn read(&mut self, tensor: &Self::Tensor) -> Result<Vec<f32>>;
    /// Releases a tensor.
    fn free(&mut self, tensor: Self::Tensor) -> Result<()>;
    /// Waits for everything submitted; reports the first error of a pipelined call, if any.
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }

    /// Work items (kernels, command buffers) given to the device since the backend was made, `None` if it does not
    /// count them. Work that is put off counts when it is given to the device. The caps `FusedAttn` and `FusedFFN` are
    /// proven by it.
    fn dispatches(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// `w[out, in]` times `x[in]` gives `[out]`, f32. Dispatches on the weight's dtype; `x` is f32.
    fn matmul(&mut self, w: &Self::Tensor, x: &Self::Tensor) -> Result<Self::Tensor> {
        let _ = (w, x);
        Err(BackendError::unimplemented(Op::Matmul))
    }
    /// `w[out, in]` times each row of `x[P, in]` gives `[P, out]`, f32.
    fn batched_matmul(&mut self, w: &Self::Tensor, x: &Self::Tensor) -> Result<Self::Tensor> {
        let _ = (w, x);
        Err(BackendError::unimplemented(Op::BatchedMatmul))
    }
    /// `x / sqrt(mean(x^2) + eps) * weight` for each row; `weight` is `[n]`.
    fn rms_norm(&mut self, x: &Self::Tensor, weight: &Self::Tensor, eps: f32) -> Result<Self::Tensor> {
        let _ = (x, weight, eps);
        Err(BackendError::unimplemented(Op::RmsNorm))
    }
    /// Rotates pairs `(j, j + head_dim/2)` of each head by `pos * freq_j`; a new tensor, `x` stays.
    fn rope(&mut self, x: &Self::Tensor, spec: RopeSpec) -> Result<Self::Tensor> {
        let _ = (x, spec);
        Err(BackendError::unimplemented(Op::Rope))
    }
    /// `gate / (1 + exp(-gate)) * up`, elementwise; shapes are equal.
    fn swiglu(&mut self, gate: &Self::Tensor, up: &Self::Tensor) -> Result<Self::Tensor> {
        let _ = (gate, up);
        Err(BackendError::unimplemented(Op::Swiglu))
    }
    /// `dst += src`; shapes are equal.
    fn add_in_place(&mut self, dst: &mut Self::Tensor, src: &Self::Tensor) -> Result<()> {
        let _ = (dst, src);
        Err(BackendError::unimplemented(Op::AddInPlace))
    }
    /// `dst[.., n] += bias[n]`, row by row.
    fn add_bias(&mut self, dst: &mut Self::Tensor, bias: &Self::Tensor) -> Result<()> {
        let _ = (dst, bias);
        Err(BackendError::unimplemented(Op::AddBias))
    }
    /// Softmax-weighted values: `q` is `[n_heads*head_dim]` or `[P, n_heads*head_dim]`, so is the result. Query
    /// head `h` reads KV head `h / group`. The store already holds the queries' own positions.
    fn attention(
        &mut self,
        q: &Self::Tensor,
        kv: &Self::Kv,
        layer: usize,
        spec: AttentionSpec,
    ) -> Result<Self::Tensor> {
        let _ = (q, kv, layer, spec);
        Err(BackendError::unimplemented(Op::Attention))
    }
    /// Index of the first maximum of `[n]`; waits. NaN never replaces a value, and a NaN in front stays.
    fn argmax(&mut self, logits: &Self::Tensor) -> Result<usize> {
        let _ = logits;
        Err(BackendError::unimplemented(Op::Argmax))
    }

    /// The KV store extension, if there is one.
    fn kv_store(&mut self) -> Option<&mut dyn KvStore<Tensor = Self::Tensor, Kv = Self::Kv>> {
        None
    }
    /// The collectives extension, present only with the cap `Collective`.
    fn collectives(&mut self) -> Option<&mut dyn Collectives<Tensor = Self::Tensor>> {
        None
    }
    /// The device capacity extension, present only with the cap `CapacityProbe`.
    fn device_capacity(&mut self) -> Option<&mut dyn DeviceCapacity> {
        None
    }
    /// The host capacity extension, present only with the cap `HostCapacityProbe`.
    fn host_capacity(&mut self) -> Option<&mut dyn HostCapacity> {
        None
    }
    /// The graph compile extension, present only with the cap `GraphCompile`.
    fn graph_compile(&mut self) -> Option<&mut dyn GraphCompile<Tensor = Self::Tensor>> {
        None
    }
}

/// The KV type of a backend without a KV store; it has no values.
#[derive(Debug, Clone, Copy)]
pub enum NoKv {}
