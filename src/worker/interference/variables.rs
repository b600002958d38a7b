//! Environment variables, by what they can do to the work of a backend.

/// What a variable can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::worker) enum Effect {
    /// Puts code into any process that gets it, this one included, before a line of ours runs.
    Anywhere,
    /// Puts code between the backend and its device, or replaces the driver, in the process that gets it.
    InWorker,
    /// Chooses among the devices, drivers or instructions of this machine. Worth a remark.
    Choice,
}

/// Variables of the dynamic loader that add no code and redirect nothing.
const LOADER_HARMLESS: [&str; 8] = [
    "LD_BIND_NOW",
    "LD_DEBUG",
    "LD_DEBUG_OUTPUT",
    "LD_RUN_PATH",
    "LD_SHOW_AUXV",
    "LD_TRACE_LOADED_OBJECTS",
    "LD_VERBOSE",
    "LD_WARN",
];

/// Variables of the Vulkan loader that only print, hide or sort. Every other one with its prefix counts as
/// interference, so that names which newer loaders add are not missed.
const VULKAN_HARMLESS: [&str; 3] =
    ["VK_LOADER_DEBUG", "VK_LOADER_LAYERS_DISABLE", "VK_LOADER_DISABLE_INST_EXT_FILTER"];

/// Variables that choose.
const CHOICES: [&str; 16] = [
    "CUDA_DEVICE_ORDER",
    "CUDA_VISIBLE_DEVICES",
    "GLIBC_TUNABLES",
    "GPU_DEVICE_ORDINAL",
    "HIP_VISIBLE_DEVICES",
    "HSA_OVERRIDE_GFX_VERSION",
    "LD_BIND_NOT",
    "LD_HWCAP_MASK",
    "MESA_VK_DEVICE_SELECT",
    "MESA_VK_DEVICE_SELECT_FORCE_DEFAULT_DEVICE",
    "ONEAPI_DEVICE_SELECTOR",
    "ROCR_VISIBLE_DEVICES",
    "VK_LOADER_DEVICE_SELECT",
    "VK_LOADER_DISABLE_SELECT",
    "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY",
];

/// Variables that put code between a backend and its device, or replace the driver, by exact name.
const IN_WORKER: [&str; 23] = [
    // Drivers of Mesa, OpenGL and EGL: which one is loaded, and software in place of hardware.
    "GALLIUM_DRIVER",
    "GBM_BACKENDS_PATH",
    "LIBGL_ALWAYS_SOFTWARE",
    "LIBGL_DRIVERS_PATH",
    "MESA_LOADER_DRIVER_OVERRIDE",
    "RADV_FORCE_FAMILY",
    "__EGL_VENDOR_LIBRARY_DIRS",
    "__EGL_VENDOR_LIBRARY_FILENAMES",
    "__GLX_VENDOR_LIBRARY_NAME",
    // Layers that a variable of their own switches on.
    "ENABLE_VKBASALT",
    "ENABLE_VK_LAYER_VALVE_steam_overlay_1",
    "MANGOHUD",
    // Libraries that CUDA, HSA, ROCm and Level Zero load into the process.
    "CUDA_INJECTION32_PATH",
    "CUDA_INJECTION64_PATH",
    "CUDA_MPS_PIPE_DIRECTORY",
    "HIP_TOOLS_LIB",
    "HSA_TOOLS_LIB",
    "NVTX_INJECTION64_PATH",
    "ZET_ENABLE_PROGRAM_INSTRUMENTATION",
    // Where Python finds its modules.
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
];

/// The same, by the start of their names.
const IN_WORKER_PREFIXES: [&str; 7] =
    ["VK_", "OCL_ICD_", "OPENCL_", "ROCP_", "ROCPROFILER_", "ROCTRACER_", "ZE_ENABLE_"];

/// What a variable can do to the work of a backend; `None` if nothing is known of it.
pub(in crate::worker) fn effect(name: &str) -> Option<Effect> {
    if CHOICES.contains(&name) {
        return Some(Effect::Choice);
    }
    if LOADER_HARMLESS.contains(&name) || VULKAN_HARMLESS.contains(&name) {
        return None;
    }
    if name.starts_with("LD_") || name.starts_with("DYLD_") {
        return Some(Effect::Anywhere);
    }
    let listed = IN_WORKER.contains(&name) || IN_WORKER_PREFIXES.iter().any(|start| name.starts_with(start));
    listed.then_some(Effect::InWorker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaders_reach_everything_and_drivers_the_worker() {
        for name in
            ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "LD_NEWER_THAN_THIS_LIST", "DYLD_INSERT_LIBRARIES"]
        {
            assert_eq!(effect(name), Some(Effect::Anywhere), "{name}");
        }
        for name in [
            "VK_ICD_FILENAMES",
            "VK_DRIVER_FILES",
            "VK_ADD_DRIVER_FILES",
            "VK_INSTANCE_LAYERS",
            "VK_LAYER_PATH",
            "VK_ADD_LAYER_PATH",
            "VK_IMPLICIT_LAYER_PATH",
            "VK_ADD_IMPLICIT_LAYER_PATH",
            "VK_LOADER_LAYERS_ENABLE",
            "VK_LOADER_LAYERS_ALLOW",
            "VK_LOADER_DRIVERS_SELECT",
            "VK_LOADER_DRIVERS_DISABLE",
            "VK_NEWER_THAN_THIS_LIST",
            "OCL_ICD_VENDORS",
            "OCL_ICD_FILENAMES",
            "OPENCL_VENDOR_PATH",
            "OPENCL_LAYERS",
            "CUDA_INJECTION64_PATH",
            "HSA_TOOLS_LIB",
            "ROCP_TOOL_LIB",
            "MESA_LOADER_DRIVER_OVERRIDE",
            "GALLIUM_DRIVER",
            "LIBGL_ALWAYS_SOFTWARE",
            "PYTHONPATH",
            "ZE_ENABLE_ALT_DRIVERS",
        ] {
            assert_eq!(effect(name), Some(Effect::InWorker), "{name}");
        }
    }

    #[test]
    fn what_chooses_is_a_remark_and_what_prints_is_nothing() {
        for name in
            ["CUDA_VISIBLE_DEVICES", "VK_LOADER_DEVICE_SELECT", "MESA_VK_DEVICE_SELECT", "GLIBC_TUNABLES"]
        {
            assert_eq!(effect(name), Some(Effect::Choice), "{name}");
        }
        for name in [
            "PATH",
            "HOME",
            "VK_LOADER_DEBUG",
            "VK_LOADER_LAYERS_DISABLE",
            "LD_DEBUG",
            "LDFLAGS",
            "MESA_DEBUG",
            "",
        ] {
            assert_eq!(effect(name), None, "{name}");
        }
    }

    #[test]
    fn no_name_is_in_two_lists() {
        for name in CHOICES {
            assert!(
                !IN_WORKER.contains(&name)
                    && !VULKAN_HARMLESS.contains(&name)
                    && !LOADER_HARMLESS.contains(&name),
                "{name}"
            );
        }
    }
}
