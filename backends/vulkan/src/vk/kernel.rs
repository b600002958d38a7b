//! The compiled shaders and the pipelines made of them.

use std::collections::HashMap;
use std::sync::Arc;

use vulkano::device::Device as LogicalDevice;
use vulkano::pipeline::compute::ComputePipelineCreateInfo;
use vulkano::pipeline::{ComputePipeline, PipelineLayout, PipelineShaderStageCreateInfo};
use vulkano::shader::{ShaderModule, ShaderModuleCreateInfo, SpecializationConstant};

use super::Fault;

/// Words of push constants that every kernel gets; it reads the first few.
pub(crate) const PUSH_WORDS: usize = 8;

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $file:literal, writes $written:literal, texels $texels:expr;)*) => {
        /// A shader of `shaders/`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Kernel { $($(#[$doc])* $name,)* }

        impl Kernel {
            /// Number of the binding that it writes; it reads the others, and this one too if it works in place.
            pub(crate) fn written(self) -> usize {
                match self { $(Kernel::$name => $written,)* }
            }

            /// Numbers of the parts that it reads by texel, from binding [`BINDINGS`](super::device::BINDINGS) on.
            pub(crate) fn texels(self) -> &'static [usize] {
                match self { $(Kernel::$name => &$texels,)* }
            }

            /// Its name, which is that of its file.
            pub(crate) fn name(self) -> &'static str {
                match self { $(Kernel::$name => $file,)* }
            }

            fn code(self) -> &'static [u8] {
                match self { $(Kernel::$name => include_bytes!(concat!("../../shaders/spv/", $file, ".spv")),)* }
            }
        }
    };
}

kernels! {
    /// Products with a vector, by format.
    MatvecF32 = "matvec_f32", writes 2, texels [];
    MatvecF16 = "matvec_f16", writes 2, texels [];
    MatvecBf16 = "matvec_bf16", writes 2, texels [];
    MatvecQ8_0 = "matvec_q8_0", writes 2, texels [];
    MatvecQ4K = "matvec_q4_k", writes 2, texels [];
    /// Products with several rows, by format.
    MatmulF32 = "matmul_f32", writes 2, texels [];
    MatmulF16 = "matmul_f16", writes 2, texels [];
    MatmulBf16 = "matmul_bf16", writes 2, texels [];
    MatmulQ8_0 = "matmul_q8_0", writes 2, texels [];
    MatmulQ4K = "matmul_q4_k", writes 2, texels [];
    /// The same for rows of whole texels.
    TexelMatvecF32 = "texel_matvec_f32", writes 2, texels [0, 1];
    TexelMatvecF16 = "texel_matvec_f16", writes 2, texels [0, 1];
    TexelMatvecBf16 = "texel_matvec_bf16", writes 2, texels [0, 1];
    TexelMatvecQ8_0 = "texel_matvec_q8_0", writes 2, texels [0, 1];
    TexelMatvecQ4K = "texel_matvec_q4_k", writes 2, texels [0, 1];
    /// The same for rows of whole texels.
    TexelMatmulF32 = "texel_matmul_f32", writes 2, texels [0, 1];
    TexelMatmulF16 = "texel_matmul_f16", writes 2, texels [0, 1];
    TexelMatmulBf16 = "texel_matmul_bf16", writes 2, texels [0, 1];
    TexelMatmulQ8_0 = "texel_matmul_q8_0", writes 2, texels [0, 1];
    TexelMatmulQ4K = "texel_matmul_q4_k", writes 2, texels [0, 1];
    Norm = "norm", writes 2, texels [];
    Rope = "rope", writes 2, texels [];
    Swiglu = "swiglu", writes 2, texels [];
    Add = "add", writes 1, texels [];
    Bias = "bias", writes 1, texels [];
    Attention = "attention", writes 3, texels [];
    /// The same for heads of whole texels.
    TexelAttention = "texel_attention", writes 3, texels [1, 2];
    Argmax = "argmax", writes 1, texels [];
    Probe = "probe", writes 1, texels [];
}

/// Pipelines, made when they are first needed.
#[derive(Debug)]
pub(super) struct Kernels {
    device: Arc<LogicalDevice>,
    layout: Arc<PipelineLayout>,
    made: HashMap<(Kernel, u32, bool), Arc<ComputePipeline>>,
}

impl Kernels {
    pub(super) fn new(device: Arc<LogicalDevice>, layout: Arc<PipelineLayout>) -> Kernels {
        Kernels { device, layout, made: HashMap::new() }
    }

    pub(super) fn layout(&self) -> &Arc<PipelineLayout> {
        &self.layout
    }

    /// The pipeline of a kernel with groups of `lanes`.
    pub(super) fn get(
        &mut self,
        kernel: Kernel,
        lanes: u32,
        unpack_is_exact: bool,
    ) -> Result<&Arc<ComputePipeline>, Fault> {
        let key = (kernel, lanes, unpack_is_exact);
        if !self.made.contains_key(&key) {
            let pipeline = self.make(kernel, lanes, unpack_is_exact)?;
            self.made.insert(key, pipeline);
        }
        self.made.get(&key).ok_or(Fault::Invalid { call: "a look-up", text: format!("{kernel:?} is gone") })
    }

    fn make(&self, kernel: Kernel, lanes: u32, unpack_is_exact: bool) -> Result<Arc<ComputePipeline>, Fault> {
        let (words, _) = kernel.code().as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        // SAFETY: the code was made by glslc and passed spirv-val; `.ci/shaders` checks both.
        let module =
            unsafe { ShaderModule::new(Arc::clone(&self.device), ShaderModuleCreateInfo::new(&words)) };
        let module = module.map_err(Fault::checked("vkCreateShaderModule"))?;
        let constants = module.specialization_constants().iter().map(|(&id, &default)| match id {
            0 => (id, SpecializationConstant::U32(lanes)),
            1 => (id, SpecializationConstant::Bool(unpack_is_exact)),
            _ => (id, default),
        });
        let constants = constants.collect();
        let invalid = |text: &str| Fault::Invalid { call: "a shader", text: format!("{kernel:?}: {text}") };
        let module = module.specialize(constants).map_err(|why| invalid(&why.to_string()))?;
        let entry = module.entry_point("main").ok_or_else(|| invalid("no entry point main"))?;
        let stage = PipelineShaderStageCreateInfo::new(entry);
        let info = ComputePipelineCreateInfo::stage_layout(stage, Arc::clone(&self.layout));
        ComputePipeline::new(Arc::clone(&self.device), None, info)
            .map_err(Fault::checked("vkCreateComputePipelines"))
    }
}
