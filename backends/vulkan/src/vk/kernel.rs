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
    ($($(#[$doc:meta])* $name:ident = $file:literal, writes $written:literal;)*) => {
        /// A shader of `shaders/`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(crate) enum Kernel { $($(#[$doc])* $name,)* }

        impl Kernel {
            /// Number of the binding that it writes; it reads the others, and this one too if it works in place.
            pub(crate) fn written(self) -> usize {
                match self { $(Kernel::$name => $written,)* }
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
    MatvecF32 = "matvec_f32", writes 2;
    MatvecF16 = "matvec_f16", writes 2;
    MatvecBf16 = "matvec_bf16", writes 2;
    MatvecQ8_0 = "matvec_q8_0", writes 2;
    MatvecQ4K = "matvec_q4_k", writes 2;
    /// Products with several rows, by format.
    MatmulF32 = "matmul_f32", writes 2;
    MatmulF16 = "matmul_f16", writes 2;
    MatmulBf16 = "matmul_bf16", writes 2;
    MatmulQ8_0 = "matmul_q8_0", writes 2;
    MatmulQ4K = "matmul_q4_k", writes 2;
    Norm = "norm", writes 2;
    Rope = "rope", writes 2;
    Swiglu = "swiglu", writes 2;
    Add = "add", writes 1;
    Bias = "bias", writes 1;
    Attention = "attention", writes 3;
    Argmax = "argmax", writes 1;
    Probe = "probe", writes 1;
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
